"""A cache over SGLang's fixture pools, and the truth about what its tree holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from cache_pools import build_cache, grid_of
from identities import Identities
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType
from sglang.test.kits.unified_radix_cache.config import CacheConfig


class TreeState(NamedTuple):
    """A state found in the tree: the identity of the path above its end, and its slot."""

    identity: int
    slot: int


class CacheUnderTest:
    """One cache and its pools, read without its help: identities come from walks over the tree.

    Parameters
    ----------
    cfg
        One of `cache_pools.configurations`.
    sparse
        Whether the cache is ours; SGLang's own otherwise.
    states_per_path
        States along one path at most, where it is ours.
    """

    def __init__(self, cfg: CacheConfig, *, sparse: bool, states_per_path: int) -> None:
        self.cfg, self.sparse, self.grid = cfg, sparse, grid_of(cfg)
        self.cache, self.kv, self.rows = build_cache(
            cfg, sparse=sparse, states_per_path=states_per_path
        )
        self.identities = Identities()
        self._evictions = 0
        self._count_evictions()

    @property
    def slots(self) -> Any:
        """SGLang's allocator of state slots."""
        return self.rows.mamba_allocator

    def walk(self) -> Iterator[tuple[Any, list[int]]]:
        """Yield every node below the root with the identities of the prefixes along its key."""
        waiting = [
            (child, self.identities.root(child.key.extra_key))
            for child in self.cache.tree_core.root_node.children.values()
        ]
        while waiting:
            node, above = waiting.pop()
            numbers = self.identities.along(above, node.key.raw_token_ids())
            yield node, numbers
            waiting.extend((child, numbers[-1]) for child in node.children.values())

    def states(self) -> set[TreeState]:
        """Return the states that the tree holds."""
        return {
            TreeState(numbers[-1], int(value))
            for node, numbers in self.walk()
            if (value := node.component_data[ComponentType.MAMBA].value) is not None
        }

    @contextmanager
    def checked_match(self, numbers: Sequence[int]) -> Iterator[list[int]]:
        """Check a match of a path: what is yielded takes its resumed depth, then its overlap.

        Beforehand the tree is walked for what it can serve: a match resumes from the deepest
        state (with a sliding window maybe from one above) and sees all KV, and loses nothing.
        """
        before, evictions = self.states(), self._evictions
        tree = {number for _, along in self.walk() for number in along}
        found: list[int] = []
        yield found
        numbers = numbers[: len(numbers) // self.cfg.page_size * self.cfg.page_size]
        deepest = self._deepest(numbers, {state.identity for state in before})
        kv = self._deepest(numbers, tree) // self.cfg.page_size * self.cfg.page_size
        assert found[0] <= deepest <= kv, f"resumes at {found[0]}, deepest state at {deepest}"
        assert self.cfg.has_swa or found[0] == deepest, f"resumes at {found[0]}, not {deepest}"
        assert found[1:] in ([], [kv]), f"overlap {found[1:]}, the tree holds {kv}"
        assert self._evictions > evictions or self.states() == before, "a match lost a state"

    def check_budget(self, before: set[TreeState]) -> None:
        """No path through a new state has more states than a path may have.

        Its deepest state and those that requests hold do not count.
        """
        limit = self.cache.planner.policy.settings.states_per_path
        new = self.states() - before
        for path in self._paths_of_states():
            if new.intersection(state for state, _ in path):
                held = sum(is_held for _, is_held in path[1:])
                assert len(path) - held <= limit, f"{len(path)} states on a path, {held} held"

    def _paths_of_states(self) -> Iterator[list[tuple[TreeState, bool]]]:
        """Yield the states above each state, itself first, and whether a request holds them."""
        found: dict[int, tuple[TreeState, bool]] = {}
        for node, numbers in self.walk():
            data = node.component_data[ComponentType.MAMBA]
            if data.value is not None:
                found[node.id] = TreeState(numbers[-1], int(data.value)), data.lock_ref > 0
            path, above = [], node
            while above is not None:
                path.extend([found[above.id]] if above.id in found else [])
                above = above.parent
            yield path

    def losses(self) -> int:
        """Return a number that rises where states were evicted or trimmed."""
        trimmed = self.cache.counters.trimmed if self.sparse else 0
        return self._evictions + int(trimmed)

    def _deepest(self, numbers: Sequence[int], among: set[int]) -> int:
        """Return the deepest depth of a path whose prefix is one of `among`, 0 for none."""
        return max((d for d, number in enumerate(numbers, 1) if number in among), default=0)

    def _count_evictions(self) -> None:
        evict = self.cache._evict

        def counted(*args: Any, **kwargs: Any) -> Any:
            self._evictions += 1
            return evict(*args, **kwargs)

        self.cache._evict = counted
