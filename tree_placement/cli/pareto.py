"""`pareto`: figures of what policies save on traces, where prompts overlap and where states lie."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tree_placement._check import check_count, invalid
from tree_placement.cli.figures import add_out, figures_package, write_out
from tree_placement.cli.files import check_folder
from tree_placement.cli.pareto_report import Place, Point, drawn, tables
from tree_placement.cli.parser import Commands
from tree_placement.cli.progress import Progress
from tree_placement.replay import Budget, Trace, read_trace, replay, summarise
from tree_placement.replay.kept import kept_trees
from tree_placement.replay.overlaps import overlaps
from tree_placement.replay.policies import policy_named
from tree_placement.replay.shapes import shapes
from tree_placement.tree.prefix_tree import PrefixTree
from tree_placement.tree.shape import TreeShape

POLICIES = (
    "sparse",
    "offline_plan",
    "stock",
    "vllm_align",
    "marconi",
    "tail_192",
    "gapr_etb",
    "end_branch",
    "tail_branch",
    "tensorrt_llm",
    "llama_cpp",
    "block_512",
    "balanced_5",
    "sqrt",
    "log",
    "dp_2",
    "dp_8",
)
SLOTS = (16, 32, 64, 128, 256)
LEAVES = 12
"""Of a tree at most, so that it can be read where it is drawn."""

STATES = 3
"""Of a tree at least, so that there is something to see."""

DRAWN = (TreeShape.STAR, TreeShape.COMB, TreeShape.GENERAL)

DESCRIPTION = f"""\
Replay traces with each policy and number of slots, and write into a folder:

  pareto    what each policy saves over its slots, with the offline plan, which knows the future
  overlaps  how far from the start, and from the end of an earlier prompt, prompts leave it
  trees     a star, a comb and a general tree of the traces after the last request, with the states
            that the first policy keeps there in the middle number of slots; of the trees with at
            least {STATES} states and at most {LEAVES} ends, those whose branches are the longest
            against their depth

each as a figure, one column wide (86 mm), and as a .csv of what it shows. Formats of traces are
those of the command replay. A file's name may end in _blkN for blocks of N tokens; else they have
16. States stand at multiples of 64 tokens, or of a block where that is longer.
"""


class LoadedTrace(NamedTuple):
    """A trace with its name and the grid of its states."""

    name: str
    trace: Trace
    grid: int


def add_parser(commands: Commands) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "pareto",
        help="draw what policies save on traces over their slots",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    add = parser.add_argument
    add_out(parser)
    add(
        "--trace",
        type=Path,
        nargs="+",
        metavar="FILE",
        default=[],
        help="traces of block ids",
    )
    add(
        "--policy",
        nargs="+",
        default=list(POLICIES),
        metavar="NAME",
        help=f"as replay knows them (default: {' '.join(POLICIES)})",
    )
    add(
        "--slots",
        type=int,
        nargs="+",
        default=list(SLOTS),
        metavar="N",
        help=f"live states at most (default: {' '.join(map(str, SLOTS))})",
    )
    add("--limit", type=int, metavar="N", help="serve the first N requests of each trace only")
    add(
        "--trees-after",
        type=int,
        metavar="N",
        help="draw the trees as they are after N requests (default: all)",
    )


def run(given: argparse.Namespace) -> None:
    """Replay, draw, and write all files.

    Raises
    ------
    ValueError
        Where matplotlib is missing, or a file or an argument is bad.
    """
    check_folder("--out", given.out)
    figures_package()
    if not given.trace:
        raise invalid("--trace", "none", "a trace", "name its file")
    traces = [_loaded(path, given.limit) for path in given.trace]
    policies, slots = list(dict.fromkeys(given.policy)), sorted(set(given.slots))
    _check(given, traces, policies, slots)
    points, places = _replayed(traces, policies, slots, given.trees_after)
    found = {each.name: overlaps(each.trace) for each in traces}
    chosen = _chosen(places)
    figures = drawn(points, found, chosen, given.format)
    write_out(given.out, {**figures, **tables(points, found, chosen)})


def _check(
    given: argparse.Namespace,
    traces: Sequence[LoadedTrace],
    policies: Sequence[str],
    slots: Sequence[int],
) -> None:
    """Raise ValueError, before the work, for what would end it later."""
    names = [each.name for each in traces]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise invalid("--trace", f"{twice} twice", "names that differ", "rename a file")
    for count in slots:
        budget = Budget(slots=count)
    for policy in policies:
        policy_named(policy, traces[0].trace.first(1), budget)
    if given.trees_after is not None:
        check_count("--trees-after", given.trees_after, 1, "serve one request at least")


def _loaded(path: Path, limit: int | None) -> LoadedTrace:
    stem = path.name.partition(".")[0]
    named = re.fullmatch(r"(.+)_blk([1-9]\d{0,5})", stem)
    block = int(named[2]) if named else 16
    trace = read_trace(path, block)
    if limit is not None:
        trace = trace.first(check_count("--limit", limit, 1, "serve one request at least"))
    grid = -(-64 // block) * block
    return LoadedTrace((named[1] if named else stem).replace("_", " "), trace, grid)


def _replayed(
    traces: Sequence[LoadedTrace],
    policies: Sequence[str],
    slots: Sequence[int],
    trees_after: int | None,
) -> tuple[list[Point], list[Place]]:
    """Replay each trace with each policy and number of slots, once."""
    points, places = [], []
    requests = len(policies) * len(slots) * sum(len(each.trace.requests) for each in traces)
    with Progress("replays", requests) as progress:
        for name, trace, grid in traces:
            of_requests = shapes(trace)
            for policy in policies:
                for count in slots:
                    budget = Budget(slots=count, grid=grid)
                    rule = policy_named(policy, trace, budget)
                    served = replay(trace, rule, budget, watch=lambda _: progress.step())
                    points.append(Point(name, policy, count, summarise(served, grid, of_requests)))
                    if policy == policies[0] and count == slots[len(slots) // 2]:
                        kept = kept_trees(trace, served[:trees_after])
                        places += [Place(name, each) for each in kept]
    return points, places


def _chosen(places: Iterable[Place]) -> list[Place]:
    """Return of each shape the place that is fit to draw and whose branches are the longest."""
    best: dict[TreeShape, Place] = {}
    for place in places:
        kept = place.kept
        if kept.leaves > LEAVES or len(kept.states) < STATES or not kept.tree.weights.any():
            continue
        other = best.get(kept.shape)
        if other is None or _spread(kept.tree) > _spread(other.kept.tree):
            best[kept.shape] = place
    return [best[shape] for shape in DRAWN if shape in best]


def _spread(tree: PrefixTree) -> float:
    """Return the tokens of all edges over those of the deepest path."""
    return float(tree.lengths.sum() / tree.depths.max())
