"""What a benchmark of states on trees prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from tree_moments import CLOSE, Moment, Watched

from tree_placement.tree import Optimality, classify
from tree_placement.tree.optimality import over


def print_report(watched: Sequence[Watched]) -> None:
    """Print a table with a column for each workload, means over its moments, and the verdict."""
    table = Table(title="tokens that the next prompt is expected to compute though they are cached")
    table.add_column("")
    for each in watched:
        table.add_column(each.workload.name, justify="right")
    for name, cell in _ROWS:
        table.add_row(name, *map(cell, watched))
    Console().print(table)
    for each in watched:
        verdict = "within" if each.is_close else "NOT within"
        print(f"{each.workload.name}: {each.ratio:.3f} of the exact placement, {verdict} {CLOSE}")
        if not each.control_is_far:
            print(f"{each.workload.name}: random states are as close, so this says nothing")


def _mean(what: Callable[[Moment], float]) -> Callable[[Watched], str]:
    return lambda watched: f"{watched.mean(what):,.1f}"


def _shape(watched: Watched) -> str:
    shapes = Counter(at.forecast.shape.value for at in watched.moments)
    return shapes.most_common(1)[0][0]


def _extremes(watched: Watched) -> str:
    ratios = [at.forecast.ratio for at in watched.moments]
    return f"{min(ratios):.3f} {max(ratios):.3f}"


def _true_ratio(watched: Watched) -> str:
    exact = watched.mean(lambda at: at.truth.exact)
    return f"{over(watched.mean(lambda at: at.truth.cost), exact):.3f}"


def _saved(which: Callable[[Moment], Optimality]) -> Callable[[Watched], str]:
    def share(watched: Watched) -> str:
        found = list(map(which, watched.moments))
        most = sum(each.without - each.exact for each in found)
        return f"{over(sum(each.without - each.cost for each in found), most):.2%}"

    return share


_ROWS: tuple[tuple[str, Callable[[Watched], str]], ...] = (
    ("drawn from", lambda watched: classify(watched.workload.tree).value),
    ("prompts", lambda watched: str(watched.prompts)),
    ("moments looked at", lambda watched: str(len(watched.moments))),
    ("slots while one request runs", lambda watched: str(watched.slots)),
    ("states kept", _mean(lambda at: at.forecast.states)),
    ("on the forecast, a tree of nodes", _mean(lambda at: at.nodes)),
    ("  its shape at most moments", _shape),
    ("  no state", _mean(lambda at: at.forecast.without)),
    ("  as many at random", _mean(lambda at: at.random)),
    ("  kept", _mean(lambda at: at.forecast.cost)),
    ("  by the decomposition", _mean(lambda at: at.forecast.apart)),
    ("  exact", _mean(lambda at: at.forecast.exact)),
    ("  kept over exact", lambda watched: f"{watched.ratio:.3f}"),
    ("    least and most of a moment", _extremes),
    ("  saved, of what the exact one saves", _saved(lambda at: at.forecast)),
    ("on the truth, a tree of nodes", lambda watched: str(len(watched.workload.tree))),
    ("  no state", _mean(lambda at: at.truth.without)),
    ("  as many at random", _mean(lambda at: at.random_truth)),
    ("  kept", _mean(lambda at: at.truth.cost)),
    ("  exact", _mean(lambda at: at.truth.exact)),
    ("  kept over exact", _true_ratio),
    ("  saved, of what the exact one saves", _saved(lambda at: at.truth)),
)
