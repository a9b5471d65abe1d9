"""What `pareto` writes: its figures, and the tables of what they show."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tree_placement.replay import Summary
from tree_placement.replay.kept import KeptTree
from tree_placement.replay.overlaps import Overlap
from tree_placement.tree.prefix_tree import TreePlacement, tree_recompute
from tree_placement.tree.shape import TreeShape

if TYPE_CHECKING:
    from tree_placement.figures.pareto import Panel
    from tree_placement.figures.trees import Example


class Point(NamedTuple):
    """What one replay came to."""

    trace: str
    policy: str
    slots: int
    summary: Summary


class Place(NamedTuple):
    """A tree with its states, and the trace that it is from."""

    trace: str
    kept: KeptTree


def drawn(
    points: Sequence[Point],
    found: Mapping[str, Sequence[Overlap]],
    places: Sequence[Place],
    format: str,
) -> dict[str, bytes]:
    """Return the figures' files by name; there is none of trees where no tree is fit to draw."""
    from tree_placement.figures import Picture, render
    from tree_placement.figures import overlaps as of_overlaps
    from tree_placement.figures import pareto as of_points
    from tree_placement.figures import trees as of_trees

    distances = [
        of_overlaps.Distances(
            name,
            np.array([each.depth for each in those], dtype=np.int64),
            np.array([each.from_end for each in those], dtype=np.int64),
        )
        for name, those in found.items()
    ]
    pictures = [
        Picture("pareto", partial(of_points.draw, _panels(points))),
        Picture("overlaps", partial(of_overlaps.draw, distances)),
    ]
    if places:
        pictures.append(Picture("trees", partial(of_trees.draw_trees, _examples(places))))
    return {f"{each.name}.{format}": render(each, format) for each in pictures}


def tables(
    points: Sequence[Point], found: Mapping[str, Sequence[Overlap]], places: Sequence[Place]
) -> dict[str, bytes]:
    """Return the tables' files by name."""
    return {
        "pareto.csv": _csv(_POINT_COLUMNS, map(_point_row, points)),
        "overlaps.csv": _csv(_OVERLAP_COLUMNS, _overlap_rows(found)),
        "trees.csv": _csv(_NODE_COLUMNS, _node_rows(places)),
    }


def _panels(points: Sequence[Point]) -> list[Panel]:
    from tree_placement.figures.pareto import Curve, Panel

    lines: dict[str, dict[str, list[Point]]] = {}
    for point in points:
        lines.setdefault(point.trace, {}).setdefault(point.policy, []).append(point)
    return [
        Panel(
            trace,
            tuple(
                Curve(
                    policy,
                    tuple(each.slots for each in line),
                    tuple(each.summary.whole.share_of_dense_oracle for each in line),
                )
                for policy, line in by_policy.items()
            ),
        )
        for trace, by_policy in lines.items()
    ]


def _examples(places: Sequence[Place]) -> list[Example]:
    from tree_placement.figures.trees import Example

    return [
        Example(
            f"{_NAMES[kept.shape]} of {trace}, {kept.requests} requests",
            kept.tree,
            TreePlacement(kept.states, tree_recompute(kept.tree, kept.states)),
        )
        for trace, kept in places
    ]


_NAMES = {
    TreeShape.STAR: "star",
    TreeShape.COMB: "comb",
    TreeShape.GENERAL: "general tree",
}
_POINT_COLUMNS = (
    "trace",
    "policy",
    "slots",
    "share_of_tokens",
    "share_of_dense_oracle",
    "gap_per_hit",
    "states_written",
    "states_live",
)
_OVERLAP_COLUMNS = ("trace", "request", "depth", "earlier_length", "from_end")
_NODE_COLUMNS = ("shape", "trace", "node", "parent", "length", "weight", "states")


def _point_row(point: Point) -> tuple[object, ...]:
    whole = point.summary.whole
    return (
        *point[:3],
        f"{whole.share_of_tokens:.6f}",
        f"{whole.share_of_dense_oracle:.6f}",
        f"{whole.gap_per_hit:.2f}",
        point.summary.states_written,
        f"{point.summary.states_live:.2f}",
    )


def _overlap_rows(found: Mapping[str, Sequence[Overlap]]) -> Iterator[tuple[object, ...]]:
    for trace, those in found.items():
        for each in those:
            yield (trace, *each, each.from_end)


def _node_rows(places: Iterable[Place]) -> Iterator[tuple[object, ...]]:
    """Yield a row a node, with the depths of its states within the edge into it."""
    for trace, kept in places:
        tree = kept.tree
        for node in range(len(tree)):
            states = " ".join(str(within) for at, within in kept.states if at == node)
            edge = (tree.parents[node], tree.lengths[node], f"{tree.weights[node]:.6f}")
            yield (kept.shape.value, trace, node, *edge, states)


def _csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    table.writerows(rows)
    return text.getvalue().encode()
