"""How packed sequences are cut into chunks, and which states are asked for in which chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch

from state_kernels.records import Captures

CHUNK = 64


@dataclass(frozen=True)
class ChunkTokens:
    """Where the tokens of some chunks stand in the packed sequences.

    Attributes
    ----------
    index : Tensor ``[R, 64]``, int64
        Place of each token; those past a sequence's end repeat its last one.
    exists : Tensor ``[R, 64]``, bool
    complete : bool
        Whether all exist.
    run : slice, optional
        The places, if all exist and follow one another: those of a single sequence do.
    """

    index: torch.Tensor
    exists: torch.Tensor
    complete: bool
    run: slice | None

    def gather(self, packed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return packed ``[T, heads, ...]`` as ``[R, heads, 64, ...]``, zero where none exists."""
        if self.run is not None:
            rows = packed[self.run].view(-1, CHUNK, *packed.shape[1:])
        else:
            rows = packed[self.index]
            if not self.complete:
                rows[~self.exists] = 0
        return rows.transpose(1, 2).to(dtype).contiguous()

    def scatter(self, rows: torch.Tensor, first: int, packed: torch.Tensor) -> None:
        """Write rows `first` and on, ``[r, heads, 64, ...]``, to packed ``[T, heads, ...]``."""
        by_token, end = rows.transpose(1, 2), first + len(rows)
        if self.run is not None:
            place = self.run.start + CHUNK * first
            packed[place : place + CHUNK * len(rows)].view(by_token.shape).copy_(by_token)
        else:
            exists = self.exists[first:end]
            packed[self.index[first:end][exists]] = by_token[exists].to(packed.dtype)


class ChunkLayout:
    """Chunks of packed sequences, ordered for a recurrence that runs over the chunk index.

    Sequences are ranked by falling number of chunks, so those that still have a chunk with index
    `j` are always the first `active(j)` ranks. A *row* is one chunk of one sequence.

    Parameters
    ----------
    bounds : tuple of int
        Cumulative sequence lengths, starting at 0.
    device : torch.device
        Where index tensors are made.
    """

    def __init__(self, bounds: tuple[int, ...], device: torch.device) -> None:
        self.device = device
        self._tokens: dict[range, ChunkTokens] = {}
        self.starts = torch.tensor(bounds[:-1], dtype=torch.int64)
        self.lengths = torch.tensor(bounds, dtype=torch.int64).diff()
        counts = (self.lengths + CHUNK - 1) // CHUNK
        self.order = torch.argsort(counts, descending=True, stable=True)
        self.rank = torch.argsort(self.order)
        self._counts = counts[self.order]
        self._first_row = (counts.cumsum(0) - counts)[self.order]
        self.chunks = int(counts.max()) if len(counts) else 0
        self.total_chunks = int(counts.sum())

    def active(self, chunk: int) -> int:
        """Return how many sequences have a chunk with this index."""
        return int((self._counts > chunk).sum())

    def rows(self, chunk: int) -> torch.Tensor:
        """Return where this chunk of each active rank stands, by sequence, then by chunk."""
        return (self._first_row[: self.active(chunk)] + chunk).to(self.device)

    def slabs(self, heads: int, matrices: int) -> Iterator[range]:
        """Yield ranges of chunk indices holding about `matrices` chunk-heads each."""
        first = 0
        while first < self.chunks:
            width = max(1, matrices // (heads * self.active(first)))
            yield range(first, min(first + width, self.chunks))
            first += width

    def tokens(self, slab: range) -> ChunkTokens:
        """Return where the tokens of a slab stand; rows by chunk index, then by rank.

        Kept for the next call: the layers of a model ask for the same ones.
        """
        known = self._tokens.get(slab)
        if known is not None:
            return known
        place = torch.arange(CHUNK)
        indices, exist = [], []
        for chunk in slab:
            sequences = self.order[: self.active(chunk)]
            within = chunk * CHUNK + place
            last = self.lengths[sequences, None] - 1
            indices.append(self.starts[sequences, None] + torch.minimum(within, last))
            exist.append(within <= last)
        index, exists = torch.cat(indices), torch.cat(exist)
        complete = bool(exists.all())
        first, size = int(index[0, 0]), index.numel()
        follows = complete and bool((index.flatten() == torch.arange(first, first + size)).all())
        run = slice(first, first + size) if follows else None
        tokens = ChunkTokens(index.to(self.device), exists.to(self.device), complete, run)
        self._tokens[slab] = tokens
        return tokens


@lru_cache(maxsize=4)
def layout_of(bounds: tuple[int, ...], device: torch.device) -> ChunkLayout:
    """Return the layout of a batch, the same object to each layer of a model."""
    return ChunkLayout(bounds, device)


class ChunkCapture(NamedTuple):
    """A capture that falls into a chunk index.

    Attributes
    ----------
    rank : int
    cut : int
        Tokens of the chunk that enter; 64 where the state at the chunk's end is asked for.
    target : Tensor ``[HV, V, K]``
        Slot of the pool that receives the state.
    """

    rank: int
    cut: int
    target: torch.Tensor


def schedule_captures(
    captures: Captures | None, pool: torch.Tensor | None, layout: ChunkLayout
) -> dict[int, list[ChunkCapture]]:
    """Group captures by chunk index; none if captures or pool are not given."""
    schedule: dict[int, list[ChunkCapture]] = {}
    if captures is None or pool is None:
        return schedule
    sequence, depth = captures.sequence.cpu(), captures.depth.cpu()
    chunk = (depth - 1) // CHUNK
    cut = depth - chunk * CHUNK
    cut[depth == layout.lengths[sequence]] = CHUNK
    columns = (chunk, layout.rank[sequence], cut, captures.slot)
    for index, rank, tokens, slot in zip(*(x.tolist() for x in columns), strict=True):
        schedule.setdefault(index, []).append(ChunkCapture(rank, tokens, pool[slot]))
    return schedule
