"""Where states stand once prompts left one at several depths, in a live cache of few slots."""

from __future__ import annotations

from itertools import count

import pytest
from cache_checks import check
from cache_fixtures import CacheHarness
from cache_pools import configurations

GRID = 8
LEAVES = (48, 96, 136)


def tokens_of(length: int, seed: int) -> list[int]:
    return [(seed * 1_000_003 + position * 7919) % 50_021 for position in range(length)]


def depths_resumed(*, sparse: bool, others: int, slots: int) -> dict[int, int]:
    """Serve prompts that leave one trunk, among others that share nothing.

    Returns how deep a prompt that leaves at each depth would resume in the end.
    """
    cfg = next(cfg for cfg in configurations(rows=1, slots=slots) if cfg.page_size == 4)
    harness = CacheHarness(cfg, sparse=sparse, states_per_path=16)
    trunk, seeds = tokens_of(200, 0), count(1)
    prompts = [trunk]
    for _ in range(12):
        for depth in LEAVES:
            prompts.append(trunk[:depth] + tokens_of(24, next(seeds)))
            prompts += [tokens_of(40, next(seeds)) for _ in range(others)]
    for name, prompt in enumerate(prompts):
        running = harness.start(name, prompt)
        assert harness.extend(running, len(prompt))
        harness.publish(running)
        harness.finish(running)
        if sparse:
            check(harness)
    return {depth: harness.look(trunk[:depth], None, None).device_prefix_len for depth in LEAVES}


def test_few_states_stand_where_prompts_leave() -> None:
    """The three depths have a state each, and no state above them went for the next."""
    assert depths_resumed(sparse=True, others=2, slots=10) == {depth: depth for depth in LEAVES}


def test_in_the_cache_as_it_is_they_do_not() -> None:
    resumed = depths_resumed(sparse=False, others=2, slots=10)
    assert any(at < depth - GRID for depth, at in resumed.items())


@pytest.mark.parametrize("sparse", [True, False])
def test_with_slots_for_all_both_keep_them(sparse: bool) -> None:
    """The control of the control: it is the number of slots that makes the difference."""
    assert depths_resumed(sparse=sparse, others=0, slots=90) == {depth: depth for depth in LEAVES}
