"""Every policy by name."""

from __future__ import annotations

import re
from collections.abc import Callable

from tree_placement._check import check_count, invalid
from tree_placement.policy import PolicySettings, SparsePolicy
from tree_placement.replay.policies import placements as at
from tree_placement.replay.policies.learned import LearnedPlacement
from tree_placement.replay.policies.marconi import Marconi
from tree_placement.replay.policies.offline import offline_plan
from tree_placement.replay.policies.rules import (
    Placement,
    RulePolicy,
    least_gap_and_hits_over_age,
    least_gap_over_age,
    least_recently_used,
)
from tree_placement.replay.policies.sparse import SparseReplay
from tree_placement.replay.simulator import Budget, ReplayPolicy
from tree_placement.replay.trace import Trace

DENSE = "dense"
"""Has a state at every grid depth; what it saves in unbounded slots is what others are held to."""

_END_JUNCTION = at.union(at.end, at.junction)
_TAIL_JUNCTION = at.union(at.tail, at.junction)
_ALL = at.union(at.end, at.tail, at.junction)

_PLACEMENTS: dict[str, Placement] = {
    "none": at.nowhere,
    DENSE: at.everywhere,
    "end": at.end,
    "tail_192": at.tail,
    "end_branch": _END_JUNCTION,
    "tail_branch": _TAIL_JUNCTION,
    "end_tail_branch": _ALL,
    "sqrt": at.square_roots,
    "log": at.doublings,
    "vllm_align": at.vllm_align(),
    "vllm_align_retention": at.vllm_align(retention=4_096),
    "tensorrt_llm": at.tensorrt_llm(2_048, from_start=[512], from_end=[64]),
    "llama_cpp": at.llama_cpp(32, 8_192, anchors=[516, 4]),
}
"""Placements kept under least recently used. Where a system leaves its numbers to the user, those
here are for prompts of a few thousand tokens."""

_COUNTED: dict[str, Callable[[int], Placement]] = {
    "block": at.blocks,
    "balanced": at.evenly_spaced,
    "dp": LearnedPlacement,
}
"""The same for families that a number follows."""

_GAP_RULES = {
    "gap": least_gap_and_hits_over_age,
    "gapr": least_gap_over_age,
}
_GAP_PLACEMENTS = {
    "e": at.end,
    "eb": _END_JUNCTION,
    "tb": _TAIL_JUNCTION,
    "etb": _ALL,
}

NAMES = (
    *_PLACEMENTS,
    *(f"{family}_N" for family in _COUNTED),
    *(f"{rule}_{places}" for rule in _GAP_RULES for places in _GAP_PLACEMENTS),
    "stock",
    "stock_nobr",
    "marconi",
    "sparse",
    "offline_plan",
)


def is_policy(name: str) -> bool:
    """Tell whether `policy_named` knows a name."""
    family, _, number = name.partition("_")
    if family in _COUNTED:
        return re.fullmatch(r"[1-9]\d{0,8}", number, re.ASCII) is not None
    if family in _GAP_RULES:
        return number in _GAP_PLACEMENTS
    return name in NAMES


def policy_named(name: str, trace: Trace, budget: Budget, chunk: int = at.CHUNK) -> ReplayPolicy:
    """Return a new policy.

    Parameters
    ----------
    name
        One of `NAMES`, with a number for N.
    trace, budget
        What it will be replayed on and under; only a plan that knows the future looks at the trace.
    chunk
        Tokens of a forward pass, >= 1, which only SGLang's own rules depend on.

    Raises
    ------
    ValueError
        If there is no such policy, or `chunk` is below 1.

    Examples
    --------
    >>> from tree_placement.replay import trace_of_prompts
    >>> type(policy_named("block_512", trace_of_prompts(["abc"], 1), Budget())).__name__
    'RulePolicy'
    """
    chunk = check_count("chunk", chunk, 1, "pass the tokens of a forward pass")
    if not is_policy(name):
        raise invalid("policy", name, "one of " + ", ".join(NAMES), "correct the name")
    if name == "offline_plan":
        return offline_plan(trace, budget)
    if name == "marconi":
        return Marconi(budget)
    if name == "sparse":
        return SparseReplay(SparsePolicy(PolicySettings(grid=budget.grid)))
    if name in ("stock", "stock_nobr"):
        return RulePolicy(at.sglang(chunk, junctions=name == "stock"), least_recently_used)
    if name in _PLACEMENTS:
        return RulePolicy(_PLACEMENTS[name], least_recently_used)
    family, _, rest = name.partition("_")
    if family in _GAP_RULES:
        return RulePolicy(_GAP_PLACEMENTS[rest], _GAP_RULES[family])
    return RulePolicy(_COUNTED[family](int(rest)), least_recently_used)
