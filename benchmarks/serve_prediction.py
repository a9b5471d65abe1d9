"""What is predicted of a server: its hits, and how long prefills take with them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from statistics import mean, median
from typing import NamedTuple

from sparse_passes import PassReplay
from stock_cache import HELD, StockCache

from sglang_sparse.demo.server import Completion
from sglang_sparse.options import SparseOptions, add_arguments
from tree_placement.cost import PrefillCost
from tree_placement.fitting import fit_prefill_cost
from tree_placement.policy import PolicySettings, SparsePolicy, Visit
from tree_placement.replay import Budget, Request, trace_of_prompts
from tree_placement.replay.foresight import upper_bound
from tree_placement.replay.simulator import Simulator

GRID = 64
BLOCK = 16
"""Where prompts part within so many tokens, the replay sees them part at the first of them."""


class Predicted(NamedTuple):
    """The hit of each request in tokens, and the states that live after the last."""

    hits: tuple[int, ...]
    states: int


class Setting(NamedTuple):
    """What a server has: slots in its whole pool, tokens of KV, tokens of a forward pass; and
    whether it is asked for more than one token."""

    slots: int
    kv_tokens: int
    chunk: int
    decodes: bool = False

    @property
    def budget(self) -> Budget:
        """What is left of it for states and KV between two requests: one tracked its end."""
        return Budget(slots=self.slots - HELD + 1, grid=GRID, kv_tokens=self.kv_tokens)


def held(prompts: Iterable[Sequence[int]]) -> list[Request]:
    """Return prompts as a server holds them: KV down to their last grid depths."""
    trace = trace_of_prompts(prompts, block=BLOCK)
    return [
        Request(each.length, each.blocks[: each.length // GRID * GRID // BLOCK])
        for each in trace.requests
    ]


def predicted(
    prompts: Sequence[Sequence[int]],
    policy: str,
    sparse_flags: Sequence[str],
    setting: Setting,
    earlier: int = 0,
) -> Predicted:
    """Serve the prompts as a server would, one at a time: the replay as sparse, a model as stock.

    `earlier` prompts came before them, in namespaces of their own: the policy learns in batches.
    """
    if policy == "stock":
        cache = StockCache(
            setting.slots, setting.kv_tokens, setting.chunk, GRID, decodes=setting.decodes
        )
        return Predicted(tuple(map(cache.serve, prompts)), cache.states)
    learned = SparsePolicy(_settings(sparse_flags))
    for number in range(earlier):
        learned.observe(Visit(f"earlier {number}", (), 0, 0, 0), GRID)
    rule = PassReplay(learned, setting.slots, setting.chunk, decodes=setting.decodes)
    simulator = Simulator(BLOCK, setting.budget, rule)
    served = list(map(simulator.serve, held(prompts)))
    return Predicted(tuple(each.hit for each in served), served[-1].live)


def oracle_tokens(prompts: Iterable[Sequence[int]]) -> int:
    """Return how many tokens a state at every grid depth would serve."""
    return upper_bound(trace_of_prompts(prompts, block=GRID), Budget(grid=GRID))


class PrefillTime(NamedTuple):
    """Seconds to the first token: an overhead that every request pays, and F beyond its hit."""

    cost: PrefillCost
    overhead: float

    def seconds(self, hit: int, length: int) -> float:
        """Return the seconds of a prompt that resumes at depth `hit`."""
        return self.overhead + float(self.cost(length) - self.cost(hit))

    def restoring(self, answers: Iterable[Completion]) -> float | None:
        """Return the median seconds that resumed requests took beyond that; None without any."""
        beyond = [
            answer.first_token - self.seconds(answer.cached_tokens, answer.prompt_tokens)
            for answer in answers
            if answer.cached_tokens
        ]
        return median(beyond) if beyond else None

    def total(self, hits: Sequence[int], lengths: Sequence[int]) -> float:
        """Return the seconds of all requests."""
        return sum(self.seconds(*each) for each in zip(hits, lengths, strict=True))


def fitted(whole_prefills: Iterable[tuple[int, float]]) -> PrefillTime:
    """Fit the prefill time to (tokens, seconds) of prefills of which nothing was cached."""
    pairs = list(whole_prefills)
    cost = fit_prefill_cost(pairs)
    return PrefillTime(cost, mean(seconds - float(cost(tokens)) for tokens, seconds in pairs))


def _settings(flags: Sequence[str]) -> PolicySettings:
    """Return the policy's settings under the flags of the sparse server."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = SparseOptions.from_mapping(vars(parser.parse_known_args(flags)[0]))
    return PolicySettings(
        states_per_path=options.states_per_path,
        grid=GRID,
        tail=options.tail,
        decay=options.decay,
        bin=options.bin,
        subtrees=options.subtrees,
    )
