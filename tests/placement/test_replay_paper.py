"""The paper's own setting, held to the paper's results on its own logs."""

from __future__ import annotations

import csv
import gzip

import pytest
from shared_traces import shared

from tree_placement.replay.paper import (
    LoggedRequest,
    entry_placement,
    read_paper_log,
    replay_entries,
)

ENTRIES = {
    "quality_measured": 20,
    "quality_simulated": 20,
    "system_prompts_measured": 50,
    "system_prompts_simulated": 100,
    "narrativeqa_simulated": 100,
}
AGREEMENT = 0.01
FEW_DEPTHS = 0.05
"""Of the dynamic program on system prompts: few depths recur, and the warm-up decides which."""


def published(dataset: str, family: str) -> dict[str, float]:
    with shared("paper_logs/results.csv").open() as lines:
        return {
            row["strategy"]: float(row["share_after_first_fill"])
            for row in csv.DictReader(lines)
            if row["dataset"] == dataset and row["strategy"].startswith(f"{family}_")
        }


def replayed(dataset: str, strategy: str) -> float:
    log = read_paper_log(shared(f"paper_logs/{dataset}.csv.gz"))
    placement = entry_placement(strategy, log)
    return replay_entries(log, ENTRIES[dataset], placement).share_of_tokens


@pytest.mark.parametrize("family", ["block", "balanced", "dp"])
@pytest.mark.parametrize("dataset", ENTRIES)
def test_published_shares(dataset: str, family: str) -> None:
    shares = published(dataset, family)
    assert shares
    learned = family == "dp" and dataset.startswith("system_prompts")
    agreement = FEW_DEPTHS if learned else AGREEMENT
    for strategy, share in shares.items():
        assert replayed(dataset, strategy) == pytest.approx(share, abs=agreement), strategy


@pytest.mark.parametrize("dataset", ENTRIES)
def test_two_states_by_forecast_save_more_than_eight_by_the_dynamic_program(dataset: str) -> None:
    by_forecast = replayed(dataset, "forecast_2")
    assert by_forecast > published(dataset, "dp")["dp_8"] > replayed(dataset, "balanced_2")


def test_another_number_of_states_would_be_seen() -> None:
    shares = published("quality_measured", "balanced")
    assert abs(replayed("quality_measured", "balanced_2") - shares["balanced_3"]) > AGREEMENT


def test_entries_leave_in_order_and_the_oldest_that_matches_serves() -> None:
    log = [
        LoggedRequest("a", 1_000, 0),
        LoggedRequest("b", 1_000, 0),
        LoggedRequest("a", 1_000, 900),
        LoggedRequest("a", 1_000, 900),
    ]
    # With one entry the third request finds none of its conversation, and takes what there is.
    depths = iter(([100], [200], [300], [400]))
    placement = {id(request): next(depths) for request in log}
    assert [
        replay_entries(log, entries, lambda request: placement[id(request)]).share_of_tokens
        for entries in (1, 2, 3)
    ] == [(200 + 300) / 3_000, (100 + 300) / 2_000, 100 / 1_000]


def test_an_entry_that_reaches_further_matches_better() -> None:
    log = [LoggedRequest("a", 500, 0), LoggedRequest("a", 1_000, 0), LoggedRequest("a", 950, 900)]
    placement = entry_placement("tail_192", log)
    assert replay_entries(log, 2, placement).share_of_tokens == 768 / 950


@pytest.mark.parametrize("name", ["", "block", "dp_0", "tail_-1", "sqrt", "block_1 "])
def test_other_placements_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="placement: got"):
        entry_placement(name, [])


@pytest.mark.parametrize("content", [b"", b"x\n", gzip.compress(b"a,b\n1,2\n"), gzip.compress(b"")])
def test_other_files_are_refused(tmp_path, content: bytes) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"log\.csv\.gz: got"):
        read_paper_log(path)
