"""Small sparse caches, and prompts taken through them."""

from __future__ import annotations

from collections.abc import Sequence

from cache_checks import check
from cache_fixtures import CacheHarness, Running
from cache_pools import configurations

from sglang_sparse.request_plans import PendingCapture


def harness_of(states_per_path: int = 4, **pools: int) -> CacheHarness:
    """A sparse cache with pages of 4 tokens and a grid of 8."""
    cfg = next(cfg for cfg in configurations(**pools) if cfg.page_size == 4)
    return CacheHarness(cfg, sparse=True, states_per_path=states_per_path)


def tokens_of(length: int, *, seed: int = 0) -> list[int]:
    return [(seed * 1_000_003 + position * 7919) % 50_021 for position in range(length)]


def computed(
    harness: CacheHarness, name: int, tokens: Sequence[int], namespace: str | None = None
) -> Running:
    """Return a request whose whole prompt is computed, its captures pending."""
    running = harness.start(name, tokens, namespace)
    assert harness.extend(running, len(tokens))
    return running


def pending(harness: CacheHarness, running: Running) -> list[PendingCapture]:
    captures: list[PendingCapture] = harness.cache._plans[running.req].pending
    return captures


def serve(
    harness: CacheHarness, name: int, tokens: Sequence[int], namespace: str | None = None
) -> int:
    """Take a prompt through its life; return the depth it resumed from."""
    running = computed(harness, name, tokens, namespace)
    resumed: int = running.req.prefix_len
    harness.publish(running)
    harness.finish(running)
    check(harness)
    return resumed


def prompts_along(trunk: Sequence[int]) -> list[list[int]]:
    """Prompts that leave a trunk all over, and one that goes on beyond it."""
    forks = [[*trunk[:depth], *tokens_of(40, seed=depth)] for depth in range(16, len(trunk), 24)]
    return [list(trunk), *forks, [*trunk, *tokens_of(200, seed=1)]]
