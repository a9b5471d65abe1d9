"""A star, a comb and a general tree, with the states that are optimal under one shared budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tree_placement.figures.style import BLUE, GREY, RED, column_figure, thousands
from tree_placement.tree.exact import place_tree
from tree_placement.tree.prefix_tree import PrefixTree, TreePlacement, tree_recompute

GRID = 64


class Example(NamedTuple):
    """A tree with states on it.

    Parameters
    ----------
    name
        For the reader.
    tree
        Weights are probabilities.
    placement
        The states, and what the tree then costs.
    """

    name: str
    tree: PrefixTree
    placement: TreePlacement


def examples() -> tuple[Example, ...]:
    """Return the three trees, solved."""
    trees = (("star", _star(), 5), ("comb", _comb(), 5), ("general tree", _general(), 7))
    return tuple(
        Example(name, tree, place_tree(tree, budget, grid=GRID)) for name, tree, budget in trees
    )


def draw() -> Figure:
    """Draw the three trees."""
    return draw_trees(examples())


def draw_trees(solved: Sequence[Example]) -> Figure:
    """Draw trees, at least one, from left to right: depth in tokens along the horizontal axis."""
    rows = [int(rows_of(each.tree).max()) + 1 for each in solved]
    figure = column_figure(0.17 * sum(rows) + 0.4 * len(rows) + 0.8)
    panels = figure.subplots(len(solved), 1, height_ratios=rows, squeeze=False)[:, 0]
    for axes, example in zip(panels, solved, strict=True):
        _draw_tree(axes, example)
        axes.set_xlim(left=0)
        thousands(axes)
    panels[-1].set_xlabel("depth from the root (tokens)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def rows_of(tree: PrefixTree) -> NDArray[np.int64]:
    """Return the row that each node's edge is drawn in; a tallest child shares its parent's."""
    rows = np.zeros(len(tree), dtype=np.int64)
    waiting = [(0, True)]
    while waiting:
        node, shares = waiting.pop()
        rows[node] = rows[tree.parents[node]] if shares and node else rows.max() + bool(node)
        *others, tallest = sorted(
            tree.children_of(node).tolist(), key=lambda child: tree.heights[child]
        ) or [None]
        waiting += [(child, False) for child in others]
        if tallest is not None:
            waiting.append((tallest, True))
    return rows


def _draw_tree(axes: Axes, example: Example) -> None:
    tree, rows = example.tree, rows_of(example.tree)
    above = tree.depths - tree.lengths
    for node in range(1, len(tree)):
        parent = int(tree.parents[node])
        axes.plot(
            [above[node], above[node], tree.depths[node]],
            [rows[parent], rows[node], rows[node]],
            color=GREY,
            linewidth=0.8,
            solid_joinstyle="miter",
            zorder=1,
        )
    weighty = np.flatnonzero(tree.weights)
    axes.scatter(
        tree.depths[weighty],
        rows[weighty],
        s=250 * tree.weights[weighty],
        clip_on=False,
        color=BLUE,
        linewidths=0,
        alpha=0.75,
        zorder=2,
        label="overlaps end (area: probability)",
    )
    nodes = np.array([node for node, _ in example.placement.states], dtype=np.int64)
    within = np.array([depth for _, depth in example.placement.states], dtype=np.int64)
    axes.scatter(
        above[nodes] + within,
        rows[nodes],
        s=55,
        marker="|",
        color=RED,
        linewidths=1.8,
        zorder=3,
        label="state",
    )
    without = tree_recompute(tree, [])
    axes.set_title(
        f"{example.name}, {nodes.size} states\n"
        f"mean recompute {without:,.0f} \N{RIGHTWARDS ARROW} {example.placement.cost:,.0f} tokens",
        loc="left",
    )
    axes.set_ylim(rows.max() + 0.7, -0.7)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _tree(parents: list[int], lengths: list[int], weights: list[float]) -> PrefixTree:
    shares = np.array(weights, dtype=np.float64)
    return PrefixTree(np.array(parents), np.array(lengths), shares / shares.sum())


def _star() -> PrefixTree:
    """Return one document with seven questions, some of them asked again."""
    parents, lengths, weights = [-1, 0], [0, 3_000], [0.0, 9.0]
    for first, second, weight in (
        (900, 2_600, 5),
        (300, 0, 2),
        (1_400, 1_500, 6),
        (700, 0, 1),
        (2_100, 900, 3),
        (500, 0, 2),
        (1_200, 0, 4),
    ):
        parents.append(1)
        lengths.append(first)
        weights.append(1.0 if second else weight)
        if second:
            parents.append(len(parents) - 1)
            lengths.append(second)
            weights.append(weight)
    return _tree(parents, lengths, weights)


def _comb() -> PrefixTree:
    """Return a long prompt that others leave at six depths."""
    parents, lengths, weights = [-1], [0], [0.0]
    spine = 0
    for step, tooth, on_spine, on_tooth in (
        (1_100, 800, 4, 1),
        (700, 1_300, 1, 4),
        (1_500, 600, 3, 1),
        (400, 2_000, 1, 2),
        (1_600, 900, 4, 2),
        (900, 700, 2, 1),
    ):
        parents += [spine, len(parents)]
        lengths += [step, tooth]
        weights += [on_spine, on_tooth]
        spine = len(parents) - 2
    parents.append(spine)
    lengths.append(1_400)
    weights.append(5.0)
    return _tree(parents, lengths, weights)


def _general() -> PrefixTree:
    """Return a tree in which branches branch again."""
    rng = np.random.default_rng(7)
    parents = [-1, 0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 5, 7, 7, 9, 9, 10, 10, 12]
    lengths = [0, *(64 * rng.integers(6, 30, len(parents) - 1)).tolist()]
    weights = [0.0, *rng.integers(0, 7, len(parents) - 1).tolist()]
    return _tree(parents, lengths, weights)
