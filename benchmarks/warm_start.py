"""What do kept statistics save after a restart? The second part of a trace, begun again and again.

    python benchmarks/warm_start.py --trace system_prompts_blk16.jsonl.gz --slots 32

All begin with an empty tree, as a restarted server does, at moments spread over the trace: a policy
cold, and one with the bytes that the policy of the first part wrote (`--sparse-statistics` keeps
them in a file). The control begins with those of a trace that is like nothing here: prompts that
share nothing. One start alone is chance: what few prompts ask for first decides it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tree_placement.policy import PolicySettings, SparsePolicy
from tree_placement.replay import Budget, Request, Trace, read_trace, replay
from tree_placement.replay.policies.sparse import SparseReplay
from tree_placement.replay.summary import total_saving


def main() -> int:
    """Print the mean shares of the first prompts after a start; return the exit status."""
    given = _arguments()
    span = max(given.count)
    try:
        trace = read_trace(given.trace, given.block)
        spare = len(trace.requests) - given.first - span
        if spare < 0:
            got = f"{given.first} and {span} after them"
            need = f"at most the {len(trace.requests)} requests"
            raise ValueError(f"--first, --count: got {got}; need {need}; lower one")
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    earlier = Trace(trace.block, trace.requests[: given.first])
    budget = Budget(slots=given.slots)
    begins = {
        "cold": None,
        "warm": _statistics(earlier, budget),
        "warm, of prompts that share nothing": _statistics(_unrelated(earlier), budget),
    }
    shares: dict[str, list[list[float]]] = {name: [] for name in begins}
    for number in track(range(given.starts), description="starts"):
        start = given.first + spare * number // max(given.starts - 1, 1)
        later = Trace(trace.block, trace.requests[start : start + span])
        for name, statistics in begins.items():
            shares[name].append(_shares(later, budget, statistics, given.count))
    table = Table("start", *(f"first {count}" for count in given.count), "ahead of cold")
    for name, found in shares.items():
        ahead = sum(own[-1] > cold[-1] for own, cold in zip(found, shares["cold"], strict=True))
        means = (f"{mean(column):.4f}" for column in zip(*found, strict=True))
        table.add_row(name, *means, f"{ahead} of {given.starts}" if name != "cold" else "")
    Console().print(
        f"mean share of what a state at every grid depth would save; {given.slots} slots, "
        f"statistics of {given.first} prompts, then {given.starts} starts on an empty tree"
    )
    Console().print(table)
    return 0


def _statistics(trace: Trace, budget: Budget) -> bytes:
    policy = SparsePolicy(PolicySettings())
    for _ in replay(trace, SparseReplay(policy), budget):
        pass
    return policy.statistics()


def _shares(
    trace: Trace, budget: Budget, statistics: bytes | None, counts: list[int]
) -> list[float]:
    policy = SparsePolicy(PolicySettings())
    if statistics is not None:
        policy.restore(statistics)
    served = replay(trace, SparseReplay(policy), budget)
    return [total_saving(served[:count], budget.grid).share_of_dense_oracle for count in counts]


def _unrelated(trace: Trace) -> Trace:
    """Return prompts of the same lengths without a block in common."""
    requests, block = [], 0
    for request in trace.requests:
        requests.append(Request(request.length, tuple(range(block, block + len(request.blocks)))))
        block += len(request.blocks)
    return Trace(trace.block, tuple(requests))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--trace", type=Path, required=True, metavar="FILE", help="JSON lines, .gz or plain")
    add("--block", type=int, default=16, help="tokens of a block (default: %(default)s)")
    add("--slots", type=int, default=32, help="states that live at most (default: %(default)s)")
    add("--first", type=int, default=1_000, help="prompts before (default: %(default)s)")
    add("--starts", type=int, default=9, help="after them (default: %(default)s)")
    add("--count", type=int, nargs="+", default=[50, 100, 200, 400], help="prompts after a start")
    given = parser.parse_args()
    given.count.sort()
    for name, least in (
        ("block", given.block),
        ("slots", given.slots),
        ("first", given.first),
        ("starts", given.starts),
        ("count", given.count[0]),
    ):
        if least < 1:
            parser.error(f"--{name}: got {least}; need at least 1; raise it")
    return given


if __name__ == "__main__":
    sys.exit(main())
