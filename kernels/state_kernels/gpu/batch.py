"""Tables of a batch that the kernels read, the same ones for every layer of a model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import torch

from state_kernels.chunked.layout import CHUNK
from state_kernels.records import Captures


@dataclass(frozen=True)
class BatchTables:
    """Where chunks and sequences stand; chunks are ordered by sequence, then by depth.

    Attributes
    ----------
    chunks : Tensor ``[R, 2]``, int64
        First token and number of tokens of each chunk.
    runs : Tensor ``[N, 5]``, int64
        The runs of `state_kernels.gpu.sweep` that are the sequences.
    """

    chunks: torch.Tensor
    runs: torch.Tensor


@dataclass(frozen=True)
class CaptureTables:
    """Where the states of captures come from.

    A state at a chunk's end is stored on the way. One inside a chunk is the final state of a run
    of its own over the chunk's first tokens, from a start state that is kept on the way.

    Attributes
    ----------
    kept_rows : Tensor ``[R, 2]``, int64
        For each chunk the pool's row that takes the state at its end, and the row among the kept
        start states that takes the one at its start; -1 for none.
    runs : Tensor ``[C, 5]``, int64
        Runs from kept start states into rows of the pool.
    kept_starts : int
        Number of kept start states.
    """

    kept_rows: torch.Tensor
    runs: torch.Tensor
    kept_starts: int


@lru_cache(maxsize=4)
def batch_tables(bounds: tuple[int, ...], device: torch.device) -> BatchTables:
    """Return the tables of a batch with these cumulative lengths."""
    chunks: list[tuple[int, int]] = []
    runs: list[tuple[int, int, int, int, int]] = []
    for sequence, (start, end) in enumerate(pairwise(bounds)):
        runs.append((start, end - start, len(chunks), sequence, sequence))
        chunks += [(token, min(CHUNK, end - token)) for token in range(start, end, CHUNK)]
    return BatchTables(_table(chunks, 2, device), _table(runs, 5, device))


def capture_tables(
    captures: Captures, bounds: tuple[int, ...], device: torch.device
) -> CaptureTables:
    """Return the tables of valid captures; waits for a GPU only if they are on one."""
    columns = (tuple(x.tolist()) for x in (captures.sequence, captures.depth, captures.slot))
    return _capture_tables(tuple(zip(*columns, strict=True)), bounds, device)


@lru_cache(maxsize=4)
def _capture_tables(
    captures: tuple[tuple[int, int, int], ...], bounds: tuple[int, ...], device: torch.device
) -> CaptureTables:
    lengths = [end - start for start, end in pairwise(bounds)]
    first_chunks = [0]
    for length in lengths:
        first_chunks.append(first_chunks[-1] + -(-length // CHUNK))
    end_rows: dict[int, int] = {}
    start_rows: dict[int, int] = {}
    runs: list[tuple[int, int, int, int, int]] = []
    for sequence, depth, slot in captures:
        within = (depth - 1) // CHUNK
        chunk, cut = first_chunks[sequence] + within, depth - within * CHUNK
        at_end = cut == CHUNK or depth == lengths[sequence]
        if at_end and chunk not in end_rows:
            end_rows[chunk] = slot
            continue
        start = start_rows.setdefault(chunk, len(start_rows))
        runs.append((bounds[sequence] + within * CHUNK, cut, chunk, start, slot))
    kept = [(end_rows.get(c, -1), start_rows.get(c, -1)) for c in range(first_chunks[-1])]
    return CaptureTables(_table(kept, 2, device), _table(runs, 5, device), len(start_rows))


def _table(
    rows: list[tuple[int, ...]] | list[tuple[int, int]] | list[tuple[int, int, int, int, int]],
    columns: int,
    device: torch.device,
) -> torch.Tensor:
    table = torch.tensor(rows, dtype=torch.int64).view(-1, columns)
    return table.to(device, non_blocking=True)
