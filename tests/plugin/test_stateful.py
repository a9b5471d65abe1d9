"""Random lives of requests on SGLang's fixtures: ours beside stock, checked after each step."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from cache_checks import check
from cache_fixtures import CacheHarness, Running
from cache_pools import configurations, grid_of
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType
from sglang.test.kits.unified_radix_cache.config import CacheConfig

STEPS = 600
STATES_PER_PATH = (4, 20, 2)
"""By seed: plans that fill the pool, and paths that must give states up."""
CONFIGURATIONS = configurations()


@dataclass
class Script:
    """One seed's choices, taken on both caches; they draw nothing themselves."""

    cfg: CacheConfig
    random: random.Random
    harnesses: list[CacheHarness]
    names: int = 0
    told: list[list[int]] = field(default_factory=list)
    pins: dict[int, list[Any]] = field(default_factory=dict)

    def step(self) -> None:
        kinds: list[tuple[Callable[[], None], int]] = [
            (self.start, 20),
            (self.advance, 40),
            (self.finish, 14),
            (self.abort, 4),
            (self.retract, 4),
            (self.look, 8),
            (self.pin, 2),
            (self.unpin, 3),
            (self.evict_states, 3),
            (self.evict_kv, 3),
            (self.reset, 1),
        ]
        steps, weights = zip(*kinds, strict=True)
        self.random.choices(steps, weights)[0]()

    def prompt(self) -> list[int]:
        """Return a prompt that leaves an earlier one somewhere, or goes on from its end."""
        grid = grid_of(self.cfg)
        new = [self.random.randrange(50) for _ in range(self.random.randrange(1, 6 * grid))]
        if self.told and self.random.random() < 0.9:
            earlier = self.random.choice(self.told)
            cut = self.random.choice((len(earlier), self.random.randrange(len(earlier) + 1)))
            new = earlier[: min(cut, 12 * grid)] + new
        return new

    def namespace(self) -> str | None:
        return self.random.choice((None, None, None, "other"))

    def start(self) -> None:
        tokens, namespace = self.prompt(), self.namespace()
        self.names += 1
        for harness in self.harnesses:
            if len(harness.running) < self.cfg.max_num_reqs:
                harness.start(self.names, tokens, namespace)

    def chosen(self) -> list[tuple[CacheHarness, Running]]:
        """Return one request, on each of the caches where it still runs."""
        names = sorted({name for harness in self.harnesses for name in harness.running})
        if not names:
            return []
        name = self.random.choice(names)
        return [(each, each.running[name]) for each in self.harnesses if name in each.running]

    def advance(self) -> None:
        steps = self.random.choice((2, 5, 16))
        tokens = [self.random.randrange(50) for _ in range(self.random.randrange(1, 12))]
        at_once = self.random.random() < 0.5
        for harness, running in self.chosen():
            if running.stage in ("matched", "prompt"):
                if not harness.extend(running, steps):
                    harness.abort(running)
                if not at_once:
                    continue
            if running.stage == "computed":
                harness.publish(running)
                self.told = [*self.told[-5:], list(running.req.origin_input_ids)]
            elif running.stage == "decoding" and not harness.decode(running, tokens):
                harness.finish(running)

    def finish(self) -> None:
        for harness, running in self.chosen():
            ended = running.req.extend_end == len(running.req.full_untruncated_fill_ids)
            if running.stage == "decoding" or (running.stage == "computed" and ended):
                tokens = [*running.req.origin_input_ids, *running.req.output_ids]
                self.told = [*self.told[-5:], tokens]
                harness.finish(running)

    def abort(self) -> None:
        for harness, running in self.chosen():
            harness.abort(running)

    def retract(self) -> None:
        for harness, running in self.chosen():
            if running.stage != "matched":
                harness.retract(running)

    def look(self) -> None:
        tokens, namespace = self.prompt(), self.namespace()
        for harness in self.harnesses:
            harness.look(tokens, namespace, None)

    def pin(self) -> None:
        tokens, namespace = self.prompt(), self.namespace()
        for harness in self.harnesses:
            pins = self.pins.setdefault(id(harness), [])
            if len(pins) < 2:
                node = harness.look(tokens, namespace, None).last_device_node
                pins.append(harness.cache.lock(node))

    def unpin(self) -> None:
        for harness in self.harnesses:
            for lock in self.pins.pop(id(harness), ()):
                harness.cache.unlock(lock)

    def evict_states(self) -> None:
        count = self.random.randrange(1, 6)
        for harness in self.harnesses:
            before, kv = harness.states(), harness.cache.full_evictable_size()
            evictable = harness.cache.mamba_evictable_size()
            expected = least_valuable(harness, count) if harness.sparse else None
            harness.evict(count, 0)
            gone = {state.slot for state in before - harness.states()}
            if expected is not None:
                assert gone == expected
                assert len(gone) == min(count, evictable)
                assert harness.cache.full_evictable_size() == kv, "its KV went with a state"

    def evict_kv(self) -> None:
        tokens = self.random.randrange(1, 12) * grid_of(self.cfg)
        for harness in self.harnesses:
            harness.evict(0, tokens)

    def reset(self) -> None:
        self.unpin()
        for harness in self.harnesses:
            for running in list(harness.running.values()):
                harness.abort(running)
            harness.reset()
            assert harness.slots.available_size() == harness.slots.size


def least_valuable(harness: CacheHarness, count: int) -> set[int]:
    """Return the slots of the `count` states first in order that no request holds."""
    free = []
    for state in harness.cache.planner.eviction_order():
        data = harness.cache.tree_core.node_by_id(state).component_data[ComponentType.MAMBA]
        if data.lock_ref == 0:
            free.append(int(data.value))
    return set(free[:count])


@pytest.mark.parametrize("seed", range(len(STATES_PER_PATH)))
@pytest.mark.parametrize("cfg", CONFIGURATIONS, ids=lambda cfg: cfg.label)
def test_random_lives_keep_every_state_in_its_place(cfg: CacheConfig, seed: int) -> None:
    ours = CacheHarness(cfg, sparse=True, states_per_path=STATES_PER_PATH[seed])
    stock = CacheHarness(cfg, sparse=False)
    script = Script(cfg, random.Random(seed), [ours, stock])
    for _ in range(STEPS):
        script.step()
        check(ours)
        check(stock)
    counters = ours.cache.counters
    assert counters.published > 0, "nothing was tried: no captured state reached the tree"
    given_back = counters.discarded + counters.revoked
    assert given_back > 0, "nothing was tried: no captured state was given back"
