"""Checks of the arguments that the recurrences share."""

from __future__ import annotations

from itertools import pairwise
from math import isfinite
from numbers import Real

import torch

from state_kernels.records import Captures
from state_kernels.tensors import check_floating, check_tensors, is_expanded, is_integer


def check_cu_seqlens(cu_seqlens: torch.Tensor, tokens: int) -> list[int]:
    """Return the cumulative lengths as integers, or raise TypeError or ValueError."""
    check_tensors(cu_seqlens=cu_seqlens)
    if cu_seqlens.dim() != 1 or not is_integer(cu_seqlens) or len(cu_seqlens) < 1:
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


def check_shape(
    name: str, value: torch.Tensor, shape: tuple[int, ...], each: str = "token and value head"
) -> None:
    """Raise ValueError unless an input has `shape`; `each` says what it is given for."""
    if tuple(value.shape) != shape:
        raise ValueError(
            f"{name}: got shape {tuple(value.shape)}; need {tuple(shape)}; give it for each {each}"
        )


def check_scale(scale: object) -> None:
    """Raise TypeError or ValueError unless `scale` is a finite number."""
    if isinstance(scale, bool) or not isinstance(scale, Real):
        raise TypeError(f"scale: got {type(scale).__name__}; need a number; pass a float")
    if not isfinite(scale):
        raise ValueError(
            f"scale: got {scale}; need a finite number; leave it out for the usual one"
        )


def check_state(what: str, state: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Raise TypeError or ValueError unless `state` is of floating point and has `shape`."""
    check_floating(**{what: state})
    if tuple(state.shape) != shape:
        raise ValueError(
            f"{what}: got shape {tuple(state.shape)}; need {shape}; "
            "use the layout with values before keys"
        )


def check_pool(pool: torch.Tensor, row: tuple[int, ...]) -> None:
    """Raise TypeError or ValueError unless states of shape `row` can be written to `pool`."""
    check_floating(pool=pool)
    if pool.dim() == 0 or tuple(pool.shape[1:]) != row:
        raise ValueError(
            f"pool: got shape {tuple(pool.shape)}; need [slots, {', '.join(map(str, row))}]; "
            "use the layout with values before keys"
        )
    if is_expanded(pool):
        raise ValueError(
            f"pool: got strides {pool.stride()}; need memory of its own for each element; "
            "clone what was expanded"
        )


def check_captures(
    captures: Captures | None,
    pool: torch.Tensor | None,
    cu_seqlens: torch.Tensor,
    row: tuple[int, ...],
) -> None:
    """Raise TypeError or ValueError unless captures and pool are both absent, or both usable."""
    if captures is None and pool is None:
        return
    if captures is None or pool is None:
        missing = "captures" if captures is None else "pool"
        raise ValueError(
            f"{missing}: got None; need captures and pool together; pass both or neither"
        )
    if not isinstance(captures, Captures):
        raise TypeError(
            f"captures: got {type(captures).__name__}; need Captures; "
            "give it sequences, depths and slots"
        )
    check_pool(pool, row)
    captures.validate(cu_seqlens, pool.shape[0])


def check_slots(slots: torch.Tensor, rows: int, pool_rows: int) -> None:
    """Raise ValueError unless `slots` has one index below `pool_rows` for each row."""
    check_tensors(slots=slots)
    if slots.shape != (rows,) or not is_integer(slots):
        raise ValueError(
            f"slots: got {slots.dtype} of shape {tuple(slots.shape)}; "
            f"need integers of shape ({rows},); give one slot for each row"
        )
    if rows and int(slots.max()) >= pool_rows:
        raise ValueError(
            f"slots: got {int(slots.max())}; need values below {pool_rows}; "
            "use rows of the pool, or a negative slot for padding"
        )


def check_convolution(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None
) -> None:
    """Raise TypeError or ValueError unless the arguments of a convolution fit each other."""
    check_floating(x=x, weight=weight)
    if x.dim() != 2 or weight.dim() != 2 or weight.shape[0] != x.shape[1] or weight.shape[1] < 2:
        raise ValueError(
            f"x and weight: got shapes {tuple(x.shape)} and {tuple(weight.shape)}; "
            "need [T, D] and [D, width of 2 or more]; put tokens first"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"bias: got shape {tuple(bias.shape)}; need ({weight.shape[0]},); "
            "give one number for each channel"
        )
    if activation not in (None, "silu", "swish"):
        raise ValueError(
            f"activation: got {activation!r}; need None, 'silu' or 'swish'; apply others afterwards"
        )
