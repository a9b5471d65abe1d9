"""The traces beside the repository, which are no part of it."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tree_placement.replay import Trace, read_trace

FOLDER = Path(__file__).parents[2].parent / "shared" / "data"
TRACES = (
    "narrativeqa_blk16",
    "quality_blk16",
    "system_prompts_blk16",
    "sharegpt_multiturn_blk16",
    "mooncake_conversation_blk512",
)


class Cell(NamedTuple):
    """One measured share of what a state at every grid depth saves."""

    trace: str
    slots: int
    policy: str


def shared(name: str) -> Path:
    """Return the path of a file of the shared data; skip the test where it is absent."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"no {path}: the shared data is not here")
    return path


@cache
def shared_trace(name: str) -> Trace:
    """Return one of `TRACES`."""
    return read_trace(shared(f"traces/{name}.jsonl.gz"), block_of(name))


def block_of(name: str) -> int:
    """Tokens of a block of the trace `name`."""
    return int(name.rpartition("_blk")[2])


def grid_of(name: str) -> int:
    """The grid that the cells of the trace `name` were measured with."""
    return max(64, block_of(name))


@cache
def measured() -> dict[Cell, float]:
    """Return the measured cells; slots are -1 where there is no bound."""
    with shared("baselines.csv").open() as lines:
        return {
            Cell(row["trace"], int(row["slots"]), row["policy"]): float(
                row["share_of_dense_oracle"]
            )
            for row in csv.DictReader(lines)
        }
