"""What do kept statistics save after a restart? A trace in two parts, the second begun twice.

    python benchmarks/warm_start.py --trace system_prompts_blk16.jsonl.gz --slots 32

Both begin with an empty tree, as a restarted server does: one policy cold, one with the bytes that
the policy of the first part wrote (`--sparse-statistics` keeps them in a file). The control begins
with those of a trace that is like nothing here: prompts that share nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tree_placement.policy import PolicySettings, SparsePolicy
from tree_placement.replay import Budget, Request, Served, Trace, read_trace, replay
from tree_placement.replay.policies.sparse import SparseReplay
from tree_placement.replay.summary import total_saving


def main() -> int:
    """Print the shares of the first prompts after the start; return the exit status."""
    given = _arguments()
    trace = read_trace(given.trace, given.block)
    if len(trace.requests) <= given.first:
        got = len(trace.requests)
        print(f"--first: got {given.first}; need fewer than the {got} requests", file=sys.stderr)
        return 2
    earlier = Trace(trace.block, trace.requests[: given.first])
    later = Trace(trace.block, trace.requests[given.first :])
    budget = Budget(slots=given.slots)
    starts = {
        "cold": None,
        "warm": _statistics(earlier, budget),
        "warm, of prompts that share nothing": _statistics(_unrelated(earlier), budget),
    }
    table = Table("start", *(f"first {count}" for count in given.count), "all")
    for name, statistics in starts.items():
        served = _serve(later, budget, statistics)
        savings = (
            total_saving(served[:count], budget.grid) for count in (*given.count, len(served))
        )
        table.add_row(name, *(f"{each.share_of_dense_oracle:.4f}" for each in savings))
    Console().print(
        f"share of what a state at every grid depth would save; {given.slots} slots, statistics of "
        f"{len(earlier.requests)} prompts, then {len(later.requests)} on an empty tree"
    )
    Console().print(table)
    return 0


def _statistics(trace: Trace, budget: Budget) -> bytes:
    policy = SparsePolicy(PolicySettings())
    for _ in replay(trace, SparseReplay(policy), budget):
        pass
    return policy.statistics()


def _serve(trace: Trace, budget: Budget, statistics: bytes | None) -> list[Served]:
    policy = SparsePolicy(PolicySettings())
    if statistics is not None:
        policy.restore(statistics)
    return list(replay(trace, SparseReplay(policy), budget))


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
    add("--count", type=int, nargs="+", default=[50, 100, 200, 400], help="prompts after")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
