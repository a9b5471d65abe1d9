"""The rules of the field against measured shares, and foresight against every choice there is."""

from __future__ import annotations

from itertools import combinations

import pytest
from replay_checker import checked_hits
from shared_traces import TRACES, Cell, grid_of, measured, shared_trace
from test_replay import BLOCK, GRID, lines_of, random_trace

from tree_placement.replay import Budget, Served, replay, trace_of_prompts
from tree_placement.replay.foresight import Use, best_uses, possible_uses, upper_bound
from tree_placement.replay.policies import DENSE, NAMES, policy_named

RULES = (
    "stock",
    "stock_nobr",
    "vllm_align",
    "end",
    "tail_192",
    "end_branch",
    "tail_branch",
    "end_tail_branch",
    "log",
    "sqrt",
    "block_512",
    "block_4096",
    "balanced_1",
    "balanced_5",
    "dp_1",
    "dp_2",
    "gap_e",
    "gap_eb",
    "gap_tb",
    "gap_etb",
    "gapr_eb",
    "offline_plan",
)
QUICK = ("narrativeqa_blk16", "quality_blk16")
AGREEMENT = 0.005
TUNED_AGREEMENT = 0.03
"""Of Marconi, whose tuning leaves open more than its description says."""


def share_of_dense_oracle(served: tuple[Served, ...], grid: int) -> float:
    dense = sum(each.overlap // grid * grid for each in served)
    return sum(each.hit for each in served) / dense


def cells_of(policy: str, trace: str) -> list[Cell]:
    return [cell for cell in measured() if cell.policy == policy and cell.trace == trace]


def replayed_share(cell: Cell, policy: str) -> float:
    trace, grid = shared_trace(cell.trace), grid_of(cell.trace)
    budget = Budget(slots=cell.slots, grid=grid)
    return share_of_dense_oracle(replay(trace, policy_named(policy, trace, budget), budget), grid)


@pytest.mark.parametrize("trace", QUICK)
@pytest.mark.parametrize("policy", RULES)
def test_a_rule_saves_what_was_measured(policy: str, trace: str) -> None:
    cells = cells_of(policy, trace)
    assert cells
    for cell in cells:
        assert replayed_share(cell, policy) == pytest.approx(measured()[cell], abs=AGREEMENT)


@pytest.mark.parametrize("trace", QUICK)
def test_marconi_saves_what_was_measured(trace: str) -> None:
    for cell in cells_of("marconi", trace):
        share = replayed_share(cell, "marconi")
        assert share == pytest.approx(measured()[cell], abs=TUNED_AGREEMENT)


def test_marconi_without_tuning_would_be_seen() -> None:
    cell = Cell("quality_blk16", 16, "marconi")
    assert abs(replayed_share(cell, "end_branch") - measured()[cell]) > TUNED_AGREEMENT


@pytest.mark.parametrize("trace", TRACES[2:])
@pytest.mark.parametrize("policy", ["stock", "tail_192", "gap_eb", "offline_plan"])
def test_on_long_traces_too(policy: str, trace: str) -> None:
    cell = Cell(trace, 64, policy)
    assert replayed_share(cell, policy) == pytest.approx(measured()[cell], abs=AGREEMENT)


def test_another_rule_would_be_seen() -> None:
    cell = Cell("quality_blk16", 16, "stock")
    assert abs(replayed_share(cell, "stock_nobr") - measured()[cell]) > AGREEMENT


@pytest.mark.parametrize("trace", TRACES[:4])
def test_the_upper_bound_is_what_was_measured(trace: str) -> None:
    read, grid = shared_trace(trace), grid_of(trace)
    dense = upper_bound(read, Budget(grid=grid))
    for cell in cells_of("upper_bound", trace):
        bound = upper_bound(read, Budget(slots=cell.slots, grid=grid)) / dense
        assert bound == pytest.approx(measured()[cell], abs=1e-4)


@pytest.mark.parametrize("name", [name.replace("_N", "_3") for name in NAMES])
def test_every_policy_keeps_to_what_a_cache_can_do(name: str) -> None:
    trace = random_trace(5)
    budget = Budget(slots=None if name == DENSE else 4, grid=GRID)
    served = replay(trace, policy_named(name, trace, budget), budget)
    hits = checked_hits(trace, GRID, budget.slots, lines_of(served))
    assert sum(hits) <= upper_bound(trace, budget)


@pytest.mark.parametrize("name", [name.replace("_N", "_3") for name in NAMES if name != "none"])
def test_without_a_bound_all_find_room(name: str) -> None:
    prompts = [[*range(2_000), *range(first, first + 700)] for first in range(3_000, 8_000, 1_000)]
    trace, budget = trace_of_prompts(prompts * 2, BLOCK), Budget(slots=None, grid=GRID)
    served = replay(trace, policy_named(name, trace, budget), budget)
    assert any(checked_hits(trace, GRID, None, lines_of(served)))


@pytest.mark.parametrize("name", [name.replace("_N", "_3") for name in NAMES])
def test_no_slots_no_hits(name: str) -> None:
    if name == DENSE:
        return
    trace, budget = random_trace(6), Budget(slots=0, grid=GRID)
    assert not any(each.hit for each in replay(trace, policy_named(name, trace, budget), budget))


def best_by_trying_all(uses: tuple[tuple[Use, ...], ...], slots: int) -> int:
    listed = [use for of_request in uses for use in of_request]
    best = 0
    for count in range(len(listed) + 1):
        for chosen in combinations(listed, count):
            if len({use.to for use in chosen}) == count and fits(chosen, slots, len(uses)):
                best = max(best, sum(use.depth for use in chosen))
    return best


def fits(chosen: tuple[Use, ...], slots: int, requests: int) -> bool:
    return all(
        sum(use.since <= after < use.to for use in chosen) <= slots for after in range(requests)
    )


@pytest.mark.parametrize("seed", range(12))
def test_the_best_uses_are_the_best_of_all(seed: int) -> None:
    uses = possible_uses(random_trace(seed, requests=9), GRID)
    values = [best_uses(uses, slots).tokens for slots in range(5)]
    assert values == [best_by_trying_all(uses, slots) for slots in range(5)]
    for slots, value in enumerate(values):
        chosen = best_uses(uses, slots).uses
        assert fits(chosen, slots, len(uses))
        assert sum(use.depth for use in chosen) == value


@pytest.mark.parametrize(
    "name", ["", "block", "block_0", "block_x", "dp_-1", "gap_x", "gap_", "Stock", "end_3"]
)
def test_a_policy_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"policy: got .*; need one of none, dense"):
        policy_named(name, random_trace(0), Budget())
