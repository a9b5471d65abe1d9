"""Exact copies of states between pools: slot to slot, to packed buffers, to the host and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import index
from typing import Literal, TypeAlias, get_args

import torch

from state_kernels.gpu import require_triton
from state_kernels.pools import PackedPools, StatePools

Slots: TypeAlias = torch.Tensor | Sequence[int]
CopyImplementation = Literal["auto", "torch", "triton"]


def copy_states(
    source: StatePools,
    source_slots: Slots,
    target: StatePools,
    target_slots: Slots,
    *,
    implementation: CopyImplementation = "auto",
) -> None:
    """Copy states from slots to slots, every layer and kind, to the bit.

    All states are read before one is written, so slots of the same pools may be permuted.

    Parameters
    ----------
    source : StatePools
    source_slots : sequence of int, or Tensor ``[C]``, integer
        A slot may be named several times.
    target : StatePools
        Tensors of the source's types and row shapes, in the same order. Its slots `target_slots`
        are overwritten, and no other memory is touched. Where it is on another device, the pools
        on one side have to be packed.
    target_slots : sequence of int, or Tensor ``[C]``, integer
        Distinct.
    implementation : {"auto", "torch", "triton"}
        "triton" is one launch for all layers and slots, and needs rows that are contiguous.
        "torch" is one copy for each layer and slot. "auto" is "triton" for such rows on a CUDA
        device, else "torch".

    Raises
    ------
    ValueError
        If the pools do not fit each other, or slots are unequal in number, out of range, or named
        twice in the target. Nothing is written then.

    Notes
    -----
    Each byte is moved once; twice, through a packed buffer of C states, where slots of one memory
    are both read and written, or the pools are on two devices. On a CUDA device everything is
    queued on the current stream, copies to and from pinned memory too: the host waits for that
    stream before it reads them, or writes there again. Slots are read on the host; a tensor of
    them on a GPU costs a synchronisation.

    Examples
    --------
    >>> temporal, windows = torch.rand(3, 8, 4, 16, 16), torch.rand(3, 8, 192, 3).bfloat16()
    >>> pools = StatePools(temporal, windows)
    >>> copy_states(pools, [0, 1], pools, [1, 0])
    >>> kept = pools.packed(2, device="cpu")
    >>> copy_states(pools, [5, 7], kept, [0, 1])
    >>> torch.equal(kept.tensors[0][1], temporal[0, 7])
    True
    """
    if implementation not in get_args(CopyImplementation):
        raise ValueError(
            f"implementation: got {implementation!r}; need one of {get_args(CopyImplementation)}; "
            "leave it out for the fast one"
        )
    taken = _checked_slots("source_slots", source_slots, source.slots)
    written = _checked_slots("target_slots", target_slots, target.slots)
    _check_pairs(source, taken, target, written)
    if not taken:
        return
    if source.device != target.device:
        _copy_between_devices(source, taken, target, written, implementation)
    elif _meet(source, taken, target, written):
        staged, places = source.packed(len(taken)), range(len(taken))
        _copy_on_device(source, taken, staged, places, implementation)
        _copy_on_device(staged, places, target, written, implementation)
    else:
        _copy_on_device(source, taken, target, written, implementation)


def _copy_on_device(
    source: StatePools,
    taken: Sequence[int],
    target: StatePools,
    written: Sequence[int],
    implementation: CopyImplementation,
) -> None:
    """Copy between slots that do not meet."""
    if implementation == "auto":
        fits = source.rows_contiguous and target.rows_contiguous
        implementation = "triton" if fits and source.device.type == "cuda" else "torch"
    if implementation == "triton":
        require_triton(source.device)
        # Imported here: nothing else of a copy needs Triton.
        from state_kernels.gpu.transfer import copy_rows

        copy_rows(source, taken, target, written)
        return
    for rows, into in zip(source.tensors, target.tensors, strict=True):
        for one, other in zip(taken, written, strict=True):
            into[other].copy_(rows[one])


def _copy_between_devices(
    source: StatePools,
    taken: Sequence[int],
    target: StatePools,
    written: Sequence[int],
    implementation: CopyImplementation,
) -> None:
    """Copy through a packed buffer on the device across from the packed pools."""
    places = range(len(taken))
    if isinstance(target, PackedPools):
        staged = source.packed(len(taken))
        _copy_on_device(source, taken, staged, places, implementation)
        for start, end in _runs(written):
            first = written[start]
            rows = target.buffer[first : first + end - start]
            rows.copy_(staged.buffer[start:end], non_blocking=True)
    elif isinstance(source, PackedPools):
        staged = target.packed(len(taken))
        for start, end in _runs(taken):
            first = taken[start]
            rows = source.buffer[first : first + end - start]
            staged.buffer[start:end].copy_(rows, non_blocking=True)
        _copy_on_device(staged, places, target, written, implementation)
    else:
        raise ValueError(
            f"pools: got {source.device} and {target.device}; need packed ones on one side; "
            "make them with StatePools.packed"
        )


def _runs(slots: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of places over which the slots follow one another."""
    breaks = [place for place, (a, b) in enumerate(pairwise(slots), start=1) if b != a + 1]
    yield from pairwise([0, *breaks, len(slots)])


def _meet(
    source: StatePools, taken: Sequence[int], target: StatePools, written: Sequence[int]
) -> bool:
    """Return whether a copy may read memory that it writes."""
    memory = ({rows.untyped_storage().data_ptr() for rows in x.tensors} for x in (source, target))
    if set.isdisjoint(*memory):
        return False
    same_rows = all(
        (rows.data_ptr(), rows.stride()) == (into.data_ptr(), into.stride())
        for rows, into in zip(source.tensors, target.tensors, strict=True)
    )
    return not same_rows or not set(taken).isdisjoint(written)


def _checked_slots(what: str, slots: Slots, count: int) -> list[int]:
    """Return slots as integers, or raise ValueError unless all are in ``0..count - 1``."""
    if isinstance(slots, torch.Tensor):
        if slots.dim() != 1 or slots.is_floating_point() or slots.dtype == torch.bool:
            raise ValueError(
                f"{what}: got {slots.dtype} of shape {tuple(slots.shape)}; "
                "need integers of shape [C]; give one slot for each state"
            )
        slots = slots.tolist()
    strange = [slot for slot in slots if isinstance(slot, bool) or not hasattr(slot, "__index__")]
    if strange:
        raise ValueError(
            f"{what}: got {strange[0]!r}; need whole numbers; give one slot for each state"
        )
    slots = [index(slot) for slot in slots]
    outside = [slot for slot in slots if not 0 <= slot < count]
    if outside:
        raise ValueError(
            f"{what}: got {outside[0]}; need 0..{count - 1}; use slots that the pools have"
        )
    return slots


def _check_pairs(
    source: StatePools, taken: list[int], target: StatePools, written: list[int]
) -> None:
    """Raise ValueError unless every state fits one target, and no target is named twice."""
    kinds, wanted = (
        [(rows.dtype, tuple(rows.shape[1:])) for rows in pools.tensors]
        for pools in (source, target)
    )
    if kinds != wanted:
        differing = [pair for pair in zip(kinds, wanted, strict=False) if pair[0] != pair[1]]
        got = differing[0] if differing else (f"{len(kinds)} layers", f"{len(wanted)} layers")
        raise ValueError(
            f"pools: got {got[0]} and {got[1]}; need the same types and row shapes in the same "
            "order; a copy converts nothing"
        )
    if len(taken) != len(written):
        raise ValueError(
            f"slots: got {len(taken)} of the source and {len(written)} of the target; "
            "need as many; name one target for each state"
        )
    if len(set(written)) < len(written):
        twice = next(slot for slot in written if written.count(slot) > 1)
        raise ValueError(
            f"target_slots: got {twice} twice; need distinct slots; give each state its own"
        )
