"""Copies of states between slots: one launch for every layer, kind and slot."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import gcd

import torch
import triton
import triton.language as tl

from state_kernels.pools import StatePools

WORDS = {8: tl.int64, 4: tl.int32, 2: tl.int16, 1: tl.int8}
WORDS_OF_A_PROGRAM = 2048


@triton.jit
def _copy_words(  # type: ignore[no-untyped-def]
    source,
    taken,
    target,
    written,
    WORD: tl.constexpr,
    WORD_BYTES: tl.constexpr,
    WORDS_OF_A_PROGRAM: tl.constexpr,
):
    """Copy one stretch of one row; the grid is [slots, tensors, stretches].

    `source` and `target` are tables of `StatePools.addresses`, `taken` and `written` int64 slots.
    """
    pair, row = tl.program_id(0), 3 * tl.program_id(1)
    words = tl.load(source + row + 2) // WORD_BYTES
    place = tl.program_id(2).to(tl.int64) * WORDS_OF_A_PROGRAM + tl.arange(0, WORDS_OF_A_PROGRAM)
    start = tl.load(source + row) + tl.load(taken + pair) * tl.load(source + row + 1)
    into = tl.load(target + row) + tl.load(written + pair) * tl.load(target + row + 1)
    inside = place < words
    data = tl.load(start.to(tl.pointer_type(WORD)) + place, mask=inside)
    tl.store(into.to(tl.pointer_type(WORD)) + place, data, mask=inside)


def copy_rows(
    source: StatePools, taken: Sequence[int], target: StatePools, written: Sequence[int]
) -> None:
    """Copy slots `taken` of one device's pools to slots `written` of others, as bytes.

    Parameters
    ----------
    source, target : StatePools
        With equal row sizes in order, and contiguous rows.
    taken, written : sequence of int
        As many of each, at least one, in range; memory that is written must not be read.

    Raises
    ------
    ValueError
        If a tensor's rows are not contiguous.
    """
    for pools in (source, target):
        if not pools.rows_contiguous:
            strides = next(
                rows.stride() for rows in pools.tensors if not rows[:1].squeeze(0).is_contiguous()
            )
            raise ValueError(
                f"pools: got a layer with strides {strides}; need contiguous rows; "
                "copy with implementation='torch'"
            )
    word_bytes = gcd(max(WORDS), *chain(*source.address_table, *target.address_table))
    stretches = triton.cdiv(max(source.row_bytes), word_bytes * WORDS_OF_A_PROGRAM)
    slots = torch.tensor([list(taken), list(written)], dtype=torch.int64)
    slots = slots.to(source.device, non_blocking=True)
    _copy_words[len(taken), len(source.tensors), stretches](
        source.addresses,
        slots[0],
        target.addresses,
        slots[1],
        WORD=WORDS[word_bytes],
        WORD_BYTES=word_bytes,
        WORDS_OF_A_PROGRAM=WORDS_OF_A_PROGRAM,
        num_warps=8,
    )
