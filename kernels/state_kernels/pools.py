"""Pools of kept states: tensors with common slots, apart or packed into one buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import TypeAlias

import torch

from state_kernels.tensors import check_tensors, is_expanded

Pool: TypeAlias = torch.Tensor | Sequence[torch.Tensor]

# Bytes that a GPU loads at once; what a packed buffer holds starts at multiples of them.
ALIGNMENT = 16


class StatePools:
    """Pools with common slots: a slot holds one state, of every layer and kind.

    Parameters
    ----------
    *pools : Tensor ``[layers, slots, ...]``, or sequence of Tensor ``[slots, ...]``
        SGLang's temporal pool ``[layers, slots, HV, V, K]`` and convolution pool
        ``[layers, slots, D, width - 1]``, for example, or one tensor for each layer. Types and
        strides may differ from tensor to tensor. Nothing is copied, and no gradient follows.

    Attributes
    ----------
    tensors : tuple of Tensor ``[slots, ...]``
        The layers of the pools in order, as views.
    slots : int
    device : torch.device

    Raises
    ------
    TypeError
        If something else than tensors is given.
    ValueError
        If there is no tensor, their slots or devices differ, one is given twice, or elements along
        an axis share their memory.
    """

    def __init__(self, *pools: Pool) -> None:
        layers = _layers(pools)
        self.tensors: tuple[torch.Tensor, ...] = tuple(rows.detach() for rows in layers)
        if not self.tensors or any(rows.dim() == 0 for rows in self.tensors):
            raise ValueError(
                f"pools: got layers of shapes {[tuple(rows.shape) for rows in self.tensors]}; "
                "need [slots, ...] for each layer; pass [layers, slots, ...] or a list of layers"
            )
        places = {(len(rows), rows.device) for rows in self.tensors}
        if len(places) > 1:
            raise ValueError(
                f"pools: got {sorted(f'{slots} slots on {device}' for slots, device in places)}; "
                "need the same for every layer; group layers by their slots"
            )
        expanded = [rows.stride() for rows in self.tensors if is_expanded(rows)]
        if expanded:
            raise ValueError(
                f"pools: got strides {expanded[0]}; need memory of its own for each element; "
                "clone what was expanded"
            )
        begins = [rows.data_ptr() for rows in self.tensors if rows.numel()]
        if len(set(begins)) < len(begins):
            raise ValueError(
                "pools: got a layer twice; need memory of its own for each; clone what was expanded"
            )
        self.slots, self.device = places.pop()

    def packed(self, slots: int, device: torch.device | str | None = None) -> PackedPools:
        """Return new packed pools for the same kind of states.

        Parameters
        ----------
        slots : int
        device : torch.device or str, optional
            These pools' own if not given. Memory of the CPU is pinned where there is a CUDA
            device, so that copies between the two are asynchronous.

        Returns
        -------
        PackedPools
            Not initialised.
        """
        return PackedPools(self, slots, self.device if device is None else torch.device(device))

    @cached_property
    def row_bytes(self) -> tuple[int, ...]:
        """Bytes of one slot in each tensor."""
        return tuple(prod(rows.shape[1:]) * rows.element_size() for rows in self.tensors)

    @cached_property
    def rows_contiguous(self) -> bool:
        """Whether each slot's part of each tensor is contiguous."""
        return all(rows[:1].squeeze(0).is_contiguous() for rows in self.tensors)

    @cached_property
    def address_table(self) -> tuple[tuple[int, int, int], ...]:
        """Address of slot 0, bytes from slot to slot and bytes of a slot, for each tensor."""
        return tuple(
            (rows.data_ptr(), rows.stride(0) * rows.element_size(), size)
            for rows, size in zip(self.tensors, self.row_bytes, strict=True)
        )

    @cached_property
    def addresses(self) -> torch.Tensor:
        """The address table as ``[tensors, 3]``, int64, on the pools' device."""
        return torch.tensor(self.address_table, dtype=torch.int64, device=self.device)


def _layers(pools: Sequence[Pool]) -> Iterator[torch.Tensor]:
    """Yield the layers of pools, or raise TypeError or ValueError."""
    for pool in pools:
        if not isinstance(pool, Sequence):
            check_tensors(pools=pool)
        if isinstance(pool, torch.Tensor) and pool.dim() == 0:
            raise ValueError(
                "pools: got a tensor without axes; need [layers, slots, ...]; "
                "pass a list of layers, or one tensor of them"
            )
        for rows in pool:
            check_tensors(pools=rows)
            yield rows


class PackedPools(StatePools):
    """Pools that are views of one buffer, where a slot is one row; made by `StatePools.packed`.

    Attributes
    ----------
    buffer : Tensor ``[slots, B]``, uint8
        A row holds the slot's layers in order, each filled up to a multiple of 16 bytes.
    """

    def __init__(self, like: StatePools, slots: int, device: torch.device) -> None:
        widths = [-(-size // ALIGNMENT) * ALIGNMENT for size in like.row_bytes]
        starts = list(accumulate(widths, initial=0))
        pinned = device.type == "cpu" and torch.cuda.is_available()
        self.buffer = torch.empty(
            (slots, starts[-1]), dtype=torch.uint8, device=device, pin_memory=pinned
        )
        super().__init__(
            [
                self.buffer[:, start : start + size].view(rows.dtype).view(slots, *rows.shape[1:])
                for start, size, rows in zip(starts, like.row_bytes, like.tensors, strict=False)
            ]
        )
