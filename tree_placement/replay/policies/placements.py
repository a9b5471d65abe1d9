"""Where the systems of the field, and plain rules, keep the states of one prompt.

Each is a `Placement`, or makes one. Depths are in tokens; what is off the grid is floored to it.

>>> from tree_placement.replay import Budget, replay, trace_of_prompts
>>> from tree_placement.replay.policies.rules import RulePolicy, least_recently_used
>>> policy = RulePolicy(union(blocks(256), end), least_recently_used)
>>> served = replay(trace_of_prompts([range(700)], 1), policy, Budget(slots=8))
>>> [state.depth for state in served[0].written]
[256, 512, 640]
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tree_placement.path import block, logarithmic
from tree_placement.replay.policies.rules import Placement
from tree_placement.replay.simulator import Arrival, Cache

ALIGN_BLOCK = 512
CHUNK = 8_192
LOGARITHMIC_FIRST = 768
TAIL = 192


def nowhere(arrival: Arrival, cache: Cache) -> Iterable[int]:
    """No state."""
    return ()


def everywhere(arrival: Arrival, cache: Cache) -> Iterable[int]:
    """Every grid depth."""
    return cache.depths()


def end(arrival: Arrival, cache: Cache) -> Iterable[int]:
    """The end."""
    return [cache.floor(arrival.length)]


def tail(arrival: Arrival, cache: Cache) -> Iterable[int]:
    """The tail, `TAIL` tokens before the prompt's end."""
    return [cache.floor(arrival.length - TAIL)]


def junction(arrival: Arrival, cache: Cache) -> Iterable[int]:
    """The junction, where the prompt left the tree."""
    return [cache.floor(arrival.overlap)]


def union(*placements: Placement) -> Placement:
    """All that several rules place."""
    return lambda arrival, cache: [
        depth for placement in placements for depth in placement(arrival, cache)
    ]


def blocks(size: int) -> Placement:
    """Every multiple of `size` tokens."""
    return lambda arrival, cache: map(int, block(arrival.length, size, grid=cache.budget.grid))


def evenly_spaced(count: int) -> Placement:
    """`count` states at multiples of the length over `count` + 1, rounded down."""

    def placement(arrival: Arrival, cache: Cache) -> Iterable[int]:
        step = arrival.length // (count + 1)
        return [cache.floor(step * index) for index in range(1, count + 1)]

    return placement


def square_roots(arrival: Arrival, cache: Cache) -> Iterable[int]:
    """Every multiple of the square root of the length, or of the grid where that is wider."""
    grid = cache.budget.grid
    return map(int, block(arrival.length, max(math.isqrt(arrival.length), grid), grid=grid))


def doublings(arrival: Arrival, cache: Cache) -> Iterable[int]:
    """`LOGARITHMIC_FIRST` tokens and every doubling of it."""
    return map(int, logarithmic(arrival.length, LOGARITHMIC_FIRST, grid=cache.budget.grid))


def sglang(chunk: int, *, junctions: bool = True) -> Placement:
    """SGLang 0.5.23: one state a forward pass, at its last grid depth.

    A pass computes `chunk` tokens. Where `junctions` are kept, the pass that computes one keeps
    it instead (`ScheduleBatch._mamba_radix_cache_v2_req_prepare_for_extend`).
    """

    def placement(arrival: Arrival, cache: Cache) -> Iterable[int]:
        grid, left = cache.budget.grid, cache.floor(arrival.overlap)
        for start in range(arrival.start, arrival.length, chunk):
            stop = min(start + chunk, arrival.length)
            if junctions and start < left <= stop:
                yield left
            else:
                yield start + (stop - start) // grid * grid

    return placement


def vllm_align(retention: int | None = None) -> Placement:
    """vLLM's `--mamba-cache-mode align`: the last block boundary, and the junction's block.

    The boundary lies before the last token, which is computed in any case (vLLM, pull request
    30877; junctions, 53945). With a `retention` interval, states at its multiples stay as well
    (45845).
    """

    def placement(arrival: Arrival, cache: Cache) -> Iterable[int]:
        aligned = [
            depth // ALIGN_BLOCK * ALIGN_BLOCK for depth in (arrival.length - 1, arrival.overlap)
        ]
        retained = range(retention, arrival.length, retention) if retention is not None else ()
        return [*aligned, *retained]

    return placement


def tensorrt_llm(interval: int, from_start: Iterable[int], from_end: Iterable[int]) -> Placement:
    """TensorRT-LLM: an interval, and fixed offsets from both ends of the prompt.

    Its `MambaStateConfig` names them `periodic_snapshot_interval` and
    `additional_snapshot_offsets_from_start`, `_from_end` (TensorRT-LLM, pull request 16598).
    """
    starts, ends = tuple(from_start), tuple(from_end)

    def placement(arrival: Arrival, cache: Cache) -> Iterable[int]:
        offsets = [*starts, *(arrival.length - offset for offset in ends)]
        periodic = range(interval, arrival.length + 1, interval)
        return [cache.floor(depth) for depth in (*offsets, *periodic)]

    return placement


def llama_cpp(count: int, step: int, anchors: Iterable[int]) -> Placement:
    """llama.cpp's context checkpoints: the last `count` of those every `step` tokens, and anchors.

    The anchors stand a fixed distance before the prompt's end, so that an edited last message
    finds one (llama.cpp, pull request 22929; the flags are `--ctx-checkpoints` and
    `--checkpoint-min-step`).
    """
    distances = tuple(anchors)

    def placement(arrival: Arrival, cache: Cache) -> Iterable[int]:
        spaced = range(step, arrival.length + 1, step)
        near_end = [arrival.length - distance for distance in distances]
        return [cache.floor(depth) for depth in (*spaced, *near_end)][-count:]

    return placement
