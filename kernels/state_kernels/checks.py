"""Checks of the arguments that the recurrences share."""

from __future__ import annotations

from itertools import pairwise

import torch

from state_kernels.records import Captures


def check_cu_seqlens(cu_seqlens: torch.Tensor, tokens: int) -> list[int]:
    """Return the cumulative lengths as integers, or raise ValueError."""
    if cu_seqlens.dim() != 1 or cu_seqlens.is_floating_point() or len(cu_seqlens) < 1:
        raise ValueError(
            f"cu_seqlens: got {cu_seqlens.dtype} of shape {tuple(cu_seqlens.shape)}; "
            "need a 1-D integer tensor [N + 1]; pass cumulative sequence lengths"
        )
    bounds: list[int] = cu_seqlens.tolist()
    rising = all(a <= b for a, b in pairwise(bounds))
    if bounds[0] != 0 or bounds[-1] != tokens or not rising:
        raise ValueError(
            f"cu_seqlens: got {bounds}; need non-decreasing values from 0 to {tokens}; "
            "make them the cumulative lengths of the packed tokens"
        )
    return bounds


def check_keys_and_values(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Raise ValueError unless queries, keys ``[T, H, K]`` and values ``[T, HV, V]`` fit."""
    if q.dim() != 3 or q.shape != k.shape:
        raise ValueError(
            f"q and k: got shapes {tuple(q.shape)} and {tuple(k.shape)}; "
            "need the same [T, H, K]; pack the sequences along the first axis"
        )
    tokens, heads, _ = q.shape
    if v.dim() != 3 or v.shape[0] != tokens or heads == 0 or v.shape[1] % heads:
        raise ValueError(
            f"v: got shape {tuple(v.shape)}; need [{tokens}, a multiple of {heads}, V]; "
            "give each value head one query/key head"
        )


def check_shape(name: str, value: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless an input of the values' tokens and heads has `shape`."""
    if tuple(value.shape) != shape:
        raise ValueError(
            f"{name}: got shape {tuple(value.shape)}; need {shape}; "
            "give it for each token and value head"
        )


def check_state(what: str, state: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless `state` has `shape`."""
    if tuple(state.shape) != shape:
        raise ValueError(
            f"{what}: got shape {tuple(state.shape)}; need {shape}; "
            "use the layout with values before keys"
        )


def check_captures(
    captures: Captures | None,
    pool: torch.Tensor | None,
    cu_seqlens: torch.Tensor,
    row: tuple[int, ...],
) -> None:
    """Raise ValueError unless captures and pool are both absent, or both usable."""
    if captures is None and pool is None:
        return
    if captures is None or pool is None:
        missing = "captures" if captures is None else "pool"
        raise ValueError(
            f"{missing}: got None; need captures and pool together; pass both or neither"
        )
    check_state("pool", pool, (pool.shape[0], *row))
    captures.validate(cu_seqlens, pool.shape[0])


def check_slots(slots: torch.Tensor, rows: int, pool_rows: int) -> None:
    """Raise ValueError unless `slots` has one index below `pool_rows` for each row."""
    if slots.shape != (rows,) or slots.is_floating_point():
        raise ValueError(
            f"slots: got {slots.dtype} of shape {tuple(slots.shape)}; "
            f"need integers of shape ({rows},); give one slot for each row"
        )
    if rows and int(slots.max()) >= pool_rows:
        raise ValueError(
            f"slots: got {int(slots.max())}; need values below {pool_rows}; "
            "use rows of the pool, or a negative slot for padding"
        )
