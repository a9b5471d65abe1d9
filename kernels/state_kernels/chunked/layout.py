"""How packed sequences are cut into chunks, and which states are asked for in which chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch

from state_kernels.records import Captures

CHUNK = 64


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
        self._tokens: dict[range, tuple[torch.Tensor, torch.Tensor]] = {}
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

    def tokens(self, slab: range) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the packed token index, and whether it exists, of each place in a slab.

        Kept for the next call: the layers of a model ask for the same ones.

        Returns
        -------
        index : Tensor ``[R, 64]``, int64
            Rows by chunk index, then by rank. Places past a sequence's end repeat its last token.
        exists : Tensor ``[R, 64]``, bool
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
        tokens = torch.cat(indices).to(self.device), torch.cat(exist).to(self.device)
        self._tokens[slab] = tokens
        return tokens


@lru_cache(maxsize=4)
def layout_of(bounds: tuple[int, ...], device: torch.device) -> ChunkLayout:
    """Return the layout of a batch, the same object to each layer of a model."""
    return ChunkLayout(bounds, device)


@dataclass(frozen=True)
class ChunkCaptures:
    """Captures that fall into one chunk index.

    `rank` and `slot` have one entry a capture; `cut` counts tokens of the chunk before it, and is
    64 where the state at the chunk's end is asked for.
    """

    rank: torch.Tensor
    cut: torch.Tensor
    slot: torch.Tensor


def schedule_captures(captures: Captures, layout: ChunkLayout) -> dict[int, ChunkCaptures]:
    """Group captures by chunk index."""
    sequence, depth = captures.sequence.cpu(), captures.depth.cpu()
    chunk = (depth - 1) // CHUNK
    cut = depth - chunk * CHUNK
    cut[depth == layout.lengths[sequence]] = CHUNK
    rank, slot = layout.rank[sequence], captures.slot.cpu()
    schedule = {}
    for index in sorted(set(chunk.tolist())):
        here = chunk == index
        schedule[index] = ChunkCaptures(
            *(x[here].to(layout.device) for x in (rank, cut, slot)),
        )
    return schedule
