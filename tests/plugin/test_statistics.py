"""What the policy learned is on the disk whole or not at all, and a wrong file costs one line."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cache_fixtures import CacheHarness
from cache_pools import configurations
from sglang.srt.server_args import ServerArgs

from sglang_sparse import endpoint, startup, statistics
from sglang_sparse.options import SparseOptions
from sglang_sparse.statistics import StatisticsFile, unmet_statistics
from tree_placement.policy import PathPart, PolicySettings, SparsePolicy, Visit


def taught(prompts: int, settings: PolicySettings | None = None) -> SparsePolicy:
    policy = SparsePolicy(settings or PolicySettings())
    for prompt in range(prompts):
        policy.observe(Visit("", (PathPart(prompt, 512),), 512, 1000, 1), 1000)
    return policy


def test_a_restarted_policy_begins_with_what_the_last_one_learned(tmp_path: Path) -> None:
    policy, restarted = taught(20), taught(0)
    file = StatisticsFile(tmp_path / "statistics", policy)
    assert file.read() is False
    file.save(20)
    assert StatisticsFile(tmp_path / "statistics", restarted).read() is True
    assert restarted.statistics() == policy.statistics() != taught(0).statistics()
    assert os.listdir(tmp_path) == ["statistics"]
    assert (tmp_path / "statistics").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"cos\nsystem\n(S'touch ran'\ntR.",
        taught(9).statistics()[:-1],
        taught(9).statistics() + b"\0",
        taught(9).statistics().replace(b"TPSP\2", b"TPSP\1"),
        taught(9, PolicySettings(grid=128)).statistics(),
    ],
    ids=["empty", "foreign", "pickle", "torn", "longer", "other version", "other grid"],
)
def test_a_wrong_file_costs_one_line_and_is_kept(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "statistics"
    path.write_bytes(content)
    policy = taught(3)
    before = policy.statistics()
    file = StatisticsFile(path, policy)
    with caplog.at_level(logging.WARNING):
        assert file.read() is False
    (line,) = caplog.messages
    assert line.startswith(f"--sparse-statistics: got {path} (")
    assert "\n" not in line
    assert policy.statistics() == before
    assert path.read_bytes() == content
    file.save(3)
    assert path.read_bytes() == before
    assert (tmp_path / "statistics.refused").read_bytes() == content
    assert not (tmp_path / "ran").exists()


def test_a_write_that_is_cut_short_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "statistics"
    file = StatisticsFile(path, taught(20))
    file.save(20)
    before = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(statistics.os, "fsync", full)
    file.save(21)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["statistics"]
    assert "No space left" in caplog.text


def test_it_is_written_when_it_is_time_and_something_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(statistics.time, "monotonic", lambda: now)
    path = tmp_path / "statistics"
    file = StatisticsFile(path, taught(20))

    def written(prompts: int, *, idle: bool) -> bool:
        file.save_if_due(prompts, idle=idle)
        if file._writer.ident is not None:
            file._writer.join()
        there = path.exists()
        path.unlink(missing_ok=True)
        return there

    assert not written(20, idle=True)
    now += statistics.IDLE_SECONDS
    assert not written(20, idle=False)
    assert written(20, idle=True)
    now += statistics.BUSY_SECONDS
    assert not written(20, idle=True)
    assert written(21, idle=False)
    assert not written(22, idle=True)


def test_where_nothing_can_be_written_is_told(tmp_path: Path) -> None:
    assert unmet_statistics(str(tmp_path / "statistics")) is None
    assert os.listdir(tmp_path) == []
    for path in (tmp_path, tmp_path / "missing" / "statistics"):
        line = unmet_statistics(str(path))
        assert line is not None
        assert line.startswith(f"--sparse-statistics: got {path}")
        assert "\n" not in line


def test_the_start_stops_where_nothing_can_be_written(model_folder: Path) -> None:
    construct = startup.engine_server_args(ServerArgs)
    given = construct(
        model_path=str(model_folder), radix_cache_backend="sparse", sparse_statistics="/missing/x"
    )
    with pytest.raises(ValueError, match=r"^--sparse-statistics: got /missing/x"):
        startup.resolve(pytest.fail, given)


@pytest.fixture
def harness(tmp_path: Path) -> CacheHarness:
    """A cache with a file, in which one prompt was served."""
    cfg = next(cfg for cfg in configurations(rows=3, slots=40) if cfg.page_size == 4)
    made = CacheHarness(cfg, sparse=True)
    made.cache.statistics = StatisticsFile(tmp_path / "statistics", made.cache.planner.policy)
    running = made.start(0, range(100))
    assert made.extend(running, 100)
    made.publish(running)
    made.finish(running)
    return made


def test_a_scheduler_that_ends_has_saved(harness: CacheHarness) -> None:
    harness.cache.release_host_resources()
    saved = harness.cache.statistics.path.read_bytes()
    assert saved == harness.cache.planner.policy.statistics()


def test_an_idle_scheduler_saves(harness: CacheHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "IDLE_SECONDS", 0.0)
    endpoint.on_idle(SimpleNamespace(tree_cache=harness.cache))
    harness.cache.statistics._writer.join()
    assert harness.cache.statistics.path.exists()


class Engine:
    """SGLang's engine before one scheduler."""

    def __init__(self, cache: Any, file: str) -> None:
        self.asked = 0
        self.tokenizer_manager = SimpleNamespace(
            set_internal_state=self.set_internal_state,
            server_args=SimpleNamespace(_sparse_options=SparseOptions(statistics=file)),
        )
        self.loop = asyncio.new_event_loop()
        self._scheduler = SimpleNamespace(tree_cache=cache)

    async def set_internal_state(self, request: Any) -> list[bool]:
        self.asked += 1
        return [endpoint.set_internal_state(pytest.fail, self._scheduler, request).updated]


@pytest.mark.parametrize(("file", "asked"), [("statistics", 1), ("", 0)])
def test_an_engine_that_ends_has_its_scheduler_save_once(
    harness: CacheHarness, file: str, asked: int
) -> None:
    engine = Engine(harness.cache, file)
    for _ in range(2):
        endpoint.shutdown_engine(engine)
    engine.loop.close()
    assert engine.asked == asked
    assert harness.cache.statistics.path.exists() == bool(asked)


def test_an_engine_inside_a_running_loop_ends_without(harness: CacheHarness) -> None:
    engine = Engine(harness.cache, "statistics")

    async def inside() -> None:
        engine.loop.close()
        engine.loop = asyncio.get_running_loop()
        endpoint.shutdown_engine(engine)

    asyncio.run(inside())
    assert engine.asked == 0
