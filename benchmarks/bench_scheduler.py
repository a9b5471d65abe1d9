"""What the sparse cache costs the scheduler per request, beside SGLang's own caches.

No model runs: requests are matched, prepared, published and released on SGLang's fixture pools,
in a tree that is grown to the given size first, with every state slot in use. `prepare` is where
ours plans and takes slots (and gives up states for them), `publish` where it splits and attaches.
`added` is the time inside ours alone, without what it calls of the methods that it extends: what
runs in a stock server as well is not in it, what it asks of SGLang's tree beyond that is, and so is
the time to give up states, which stock's own eviction does for it. `more than stock-python` is the
difference of the whole, both on the same core.

    PYTHONPATH=.:kernels python benchmarks/bench_scheduler.py --nodes 10000 --states 1000
"""

from __future__ import annotations

import argparse
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sglang.srt.environ import envs
from sglang.srt.managers.schedule_batch import FINISH_LENGTH, Req, ScheduleBatch
from sglang.srt.mem_cache.allocation import alloc_req_slots
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.mem_cache.common import checkpoint_kv_cache, release_kv_cache
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.test.kits.unified_radix_cache import fixtures
from sglang.test.kits.unified_radix_cache.config import CacheConfig

from sglang_sparse.cache import SparseRadixCache
from sglang_sparse.capture import ATTRIBUTE, prepare_for_extend
from sglang_sparse.component import SparseStateComponent
from sglang_sparse.planner import Planner
from tree_placement.policy import PolicySettings, SparsePolicy

GRID = 64
ROWS = 2
SERVERS = {"stock-python": "python", "stock-rust": "rust", "sparse": "python"}
"""The caches by name, each with the core of SGLang's tree that it runs on."""

OPERATIONS = ("match", "prepare", "publish", "release", "evict")
EXTENDED = (
    (SparseRadixCache, ("match_prefix", "checkpoint_into_tree", "on_release")),
    (
        SparseStateComponent,
        (
            "commit_insert_component_data",
            "redistribute_on_node_split",
            "evict_component",
            "_evict_device_start",
            "_evict_device_next_node",
            "_evict_device_end",
        ),
    ),
)
"""Methods of ours that SGLang calls, each in the place of the one that it extends."""


class OwnTime:
    """Microseconds of processor time in ours, and not in what it extends, since the last `take`."""

    def __init__(self) -> None:
        self._mine = False
        self._since = 0
        self._nanoseconds = 0

    def extend(self) -> None:
        """Watch the methods of `EXTENDED`, from now on."""
        for ours, names in EXTENDED:
            for name in names:
                extended = next(base for base in ours.__mro__[1:] if name in vars(base))
                setattr(extended, name, self.watch(vars(extended)[name], mine=False))
                setattr(ours, name, self.watch(vars(ours)[name], mine=True))

    def watch(self, function: Callable[..., Any], *, mine: bool) -> Callable[..., Any]:
        """Return a function whose time counts if it is `mine`, and does not if it is not."""

        @wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            outside = self._turn(mine)
            try:
                return function(*args, **kwargs)
            finally:
                self._turn(outside)

        return watched

    def take(self) -> float:
        """Return the time so far, and begin at zero again."""
        microseconds = self._nanoseconds / 1_000
        self._nanoseconds = 0
        return microseconds

    def _turn(self, mine: bool) -> bool:
        now = time.thread_time_ns()
        if self._mine:
            self._nanoseconds += now - self._since
        self._since = now
        before, self._mine = self._mine, mine
        return before


class Pools(NamedTuple):
    """A cache with the pools that it manages, and how it prepares a pass."""

    name: str
    cache: Any
    kv: Any
    rows: Any
    prepare: Callable[[Any, Req], object]


def build(name: str, core: str, states: int, kv_tokens: int, own: OwnTime) -> Pools:
    """Return a cache of SGLang's fixtures: ours under the name `sparse`, watched, else stock."""
    cfg = CacheConfig(
        components=(ComponentType.FULL, ComponentType.MAMBA),
        enable_mamba_extra_buffer=True,
        num_layers=2,
        full_attention_layer_ids=(1,),
        mamba_intermediate_size=8,
        mamba_num_heads=1,
        mamba_head_dim=8,
        mamba_state_size=8,
        mamba_cache_size=states + 4 * ROWS,
        max_num_reqs=ROWS,
        max_context_len=8_192,
        kv_size=kv_tokens,
        head_num=1,
        head_dim=8,
    )
    override = {ComponentType.MAMBA: SparseStateComponent} if name == "sparse" else None
    inspected, kv, rows = fixtures.build_fixture(cfg, component_registry_override=override)
    prepare = ScheduleBatch._mamba_radix_cache_v2_req_prepare_for_extend
    with envs.SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND.override(core):
        if name != "sparse":
            return Pools(name, UnifiedRadixCache(inspected.cache_init_params), kv, rows, prepare)
        cache = SparseRadixCache(inspected.cache_init_params)
    cache.configure(Planner(SparsePolicy(PolicySettings(grid=GRID))), GRID)
    own.extend()
    ours = own.watch(prepare_for_extend, mine=True)
    return Pools(name, cache, kv, rows, partial(ours, own.watch(prepare, mine=False)))


class Workload:
    """Questions about documents: each leaves its document at a depth and adds a few tokens."""

    def __init__(self, seed: int, documents: int) -> None:
        self._random = np.random.default_rng(seed)
        lengths = self._random.integers(1_024, 4_097, documents)
        self._documents = [self._tokens(int(length)) for length in lengths]
        self._rank = 1.0 / np.arange(1, documents + 1)
        self._rank /= self._rank.sum()

    def prompt(self) -> array[int]:
        """Return the next prompt."""
        document = self._documents[self._random.choice(len(self._documents), p=self._rank)]
        leaves = int(self._random.integers(GRID, len(document) + 1))
        return document[:leaves] + self._tokens(int(self._random.integers(GRID, 4 * GRID)))

    def _tokens(self, count: int) -> array[int]:
        return array("q", self._random.integers(0, 150_000, count).tolist())


class Clock:
    """Microseconds of processor time by operation; another process on the machine adds none."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {operation: [] for operation in OPERATIONS}

    @contextmanager
    def measure(self, operation: str) -> Iterator[None]:
        """Time one operation."""
        start = time.thread_time_ns()
        yield
        self.times[operation].append((time.thread_time_ns() - start) / 1_000)


def serve(pools: Pools, tokens: array[int], clock: Clock, *, evict: bool = True) -> None:
    """Take one prompt from its match to its release; with `evict`, give up one state first."""
    cache, kv, rows = pools.cache, pools.kv, pools.rows
    sampling = SamplingParams(temperature=0, max_new_tokens=1)
    req = Req(rid="", origin_input_text="", origin_input_ids=tokens, sampling_params=sampling)
    if evict:
        with clock.measure("evict"):
            cache.evict(EvictParams(num_tokens=0, mamba_num=1))
    with clock.measure("match"):
        req.init_next_round_input(cache)
    req.lock = cache.lock(req.last_node)
    start, end = req.prefix_len, len(tokens)
    req.extend_end = end
    prefix = cache.prefix_device_indices(req)
    alloc_req_slots(rows, [req], cache)
    rows.write((req.kv.req_pool_idx, slice(0, start)), prefix)
    rows.write((req.kv.req_pool_idx, slice(start, end)), kv.alloc(end - start))
    req.kv.kv_committed_len = req.kv.kv_allocated_len = end
    config = SimpleNamespace(hf_text_config=SimpleNamespace(mamba_chunk_size=GRID))
    batch = SimpleNamespace(tree_cache=cache, req_to_token_pool=rows, model_config=config)
    with clock.measure("prepare"):
        pools.prepare(batch, req)
    for _, capture in batch.__dict__.get(ATTRIBUTE, ()):
        cache.mark_written(req, capture)
    with clock.measure("publish"):
        checkpoint_kv_cache(req, cache)
    req.finished_reason = FINISH_LENGTH(length=0)
    with clock.measure("release"):
        release_kv_cache(req, cache, checkpoint=True)


@contextmanager
def freed_together(pools: Pools) -> Iterator[None]:
    """Free KV once at the end, as the scheduler does around a batch's results: each free copies the
    list of all that is free."""
    pools.kv.free_group_begin()
    yield
    pools.kv.free_group_end()


def progress(text: str) -> None:
    """Overwrite one line on a terminal; say nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def grow(pools: Pools, workload: Workload, nodes: int, states: int, requests: int | None) -> int:
    """Serve until the tree is large enough, or `requests` prompts; return how many were served."""
    served = 0
    arena = getattr(pools.cache.tree_core, "_node_arena", None)
    while served < requests if requests is not None else arena is None or len(arena) < nodes:
        with freed_together(pools):
            for _ in range(min(100, requests - served) if requests is not None else 100):
                serve(pools, workload.prompt(), Clock(), evict=False)
                served += 1
        size = len(arena) if arena is not None else served
        progress(f"{pools.name}: growing, {size} nodes, {live_states(pools)} states")
    assert live_states(pools) > states // 2, "too few states: pass more nodes or fewer states"
    return served


def live_states(pools: Pools) -> int:
    """Return how many states the tree holds."""
    return int(pools.cache.mamba_evictable_size() + pools.cache.mamba_protected_size())


def report(
    pools: Pools, clock: Clock, added: list[float], stock: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Print one row an operation, and for ours one of what it added, and the difference to `stock`,
    the microseconds of each of its requests; return those of these."""
    arena = getattr(pools.cache.tree_core, "_node_arena", ())
    head = f"{pools.name} ({len(arena) or 'unknown'} nodes, {live_states(pools)} states)"
    print(f"{head:<44}{'p50':>9}{'p99':>9}{'mean':>9}", flush=True)
    totals = np.sum([clock.times[operation] for operation in OPERATIONS], axis=0)
    rows = [*clock.times.items(), ("all", totals)]
    for name, values in rows + [("added", added)] * (pools.name == "sparse"):
        p50, p99 = np.percentile(values, (50, 99))
        print(f"  {name:<42}{p50:>9.0f}{p99:>9.0f}{np.mean(values):>9.0f}")
    if pools.name == "sparse" and stock is not None:
        p50, p99 = np.percentile(totals, (50, 99)) - np.percentile(stock, (50, 99))
        mean = np.mean(totals) - np.mean(stock)
        print(f"  {'more than stock-python':<42}{p50:>9.0f}{p99:>9.0f}{mean:>9.0f}")
    return np.asarray(totals)


def arguments() -> argparse.Namespace:
    """Parse and check the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=10_000, help="nodes before the measurement")
    parser.add_argument("--states", type=int, default=1_000, help="state slots of the tree")
    parser.add_argument("--requests", type=int, default=500, help="requests measured")
    parser.add_argument("--seed", type=int, default=0, help="seed of the prompts")
    parser.add_argument(
        "--servers", nargs="+", choices=SERVERS, default=list(SERVERS), help="default: all"
    )
    given = parser.parse_args()
    for name in ("nodes", "states", "requests"):
        if getattr(given, name) < 1:
            parser.error(f"--{name}: got {getattr(given, name)}; need at least 1")
    if given.servers[0] == "stock-rust":
        parser.error("--servers: got stock-rust first; need another before it, to grow as many")
    return given


def main() -> None:
    """Measure the caches one after the other."""
    given = arguments()
    kv_tokens = 300 * (given.nodes + given.requests) + 1_000_000
    print("microseconds of the scheduler's thread per request", flush=True)
    served: int | None = None
    stock: NDArray[np.float64] | None = None
    own = OwnTime()
    for name in given.servers:
        try:
            pools = build(name, SERVERS[name], given.states, kv_tokens, own)
        except (ImportError, FileNotFoundError) as error:
            print(f"{name}: not measured, its core does not load: {error}")
            continue
        workload = Workload(given.seed, documents=max(given.nodes // 50, 1))
        same = served if name == "stock-rust" else None
        served = grow(pools, workload, given.nodes, given.states, same)
        clock, added = Clock(), []
        own.take()
        for number in range(given.requests):
            with freed_together(pools):
                serve(pools, workload.prompt(), clock)
            added.append(own.take())
            progress(f"{name}: {number + 1} of {given.requests} requests")
        progress("")
        totals = report(pools, clock, added, stock)
        stock = totals if name == "stock-python" else stock


if __name__ == "__main__":
    main()
