"""A configuration that can never hit says so at start, with what to change."""

from __future__ import annotations

from typing import Any

import pytest
from cache_fixtures import CacheHarness
from cache_pools import configurations

from sglang_sparse.room import Room

PLENTY = Room(slots=32, rows=6, held=3, context=4096, grid=64)


def test_where_there_is_room_nothing_is_said() -> None:
    assert PLENTY.unmet() is None
    assert PLENTY.shortage() is None


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"slots": 3}, "--max-mamba-cache-size: got 3; need more than 3, which one running"),
        ({"context": 64}, "--context-length: got 64; need more than 64, the distance"),
    ],
)
def test_what_can_never_hit_is_refused(change: dict[str, int], line: str) -> None:
    told = PLENTY._replace(**change).unmet()
    assert told is not None
    assert told.startswith(line)
    assert "\n" not in told


@pytest.mark.parametrize("slots", [3, 18])
def test_a_full_server_without_a_slot_is_told(slots: int) -> None:
    told = PLENTY._replace(slots=slots).shortage()
    assert told is not None
    assert told.startswith(f"--max-mamba-cache-size: got {slots}; need more than 18, which 6 ")
    assert PLENTY._replace(slots=19).shortage() is None


def test_it_is_read_off_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request holds what is counted: the harness runs one."""
    cfg: Any = next(cfg for cfg in configurations(rows=3, slots=40) if cfg.page_size == 4)
    harness = CacheHarness(cfg, sparse=True)
    room = Room.of(harness.rows, harness.grid)
    assert (room.slots, room.rows, room.grid) == (40, 3, 8)
    running = harness.start(1, range(7))
    assert harness.extend(running, 1)
    assert room.slots - harness.slots.available_size() == room.held
