"""How fast placement is, beside a plain O(N^2 M) numpy solver on the same input, and how it grows.

One core, medians of the repetitions after compilation. Every solver's cost is compared with the
plain one's (or the exact solver's with the priced bound) before its time is printed. Slopes are
least-squares fits of log time over log size: 1 is linear growth.

    PYTHONPATH=. OMP_NUM_THREADS=1 python benchmarks/bench_placement.py
    PYTHONPATH=. OMP_NUM_THREADS=1 python benchmarks/bench_placement.py --quick
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np

from tree_placement import SparseWeights, place, place_priced
from tree_placement.tree import PrefixTree
from tree_placement.tree.duality import price_bound
from tree_placement.tree.exact import place_tree
from tree_placement.tree.incremental import PricedTree
from tree_placement.tree.priced import place_tree_priced
from tree_placement.tree.shape import TreeShape, classify

GRID = 64
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


class Row(NamedTuple):
    """A line of the table; seconds, None where there is nothing to say."""

    what: str
    seconds: float
    target: float | None = None
    plain: float | None = None


def seconds(function: Callable[[], object], repetitions: int) -> float:
    """Return the median wall-clock time of a call, after one that is not counted."""
    function()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return median(times)


def path_weights(depths: int, seed: int = 0) -> SparseWeights:
    """Return a weight at each of so many grid depths, few of them heavy."""
    weights = np.random.default_rng(seed).exponential(size=depths) ** 3
    return SparseWeights(GRID * np.arange(1, depths + 1), weights)


def plain_cost(weights: SparseWeights, budget: int) -> float:
    """Return the optimal cost by the recurrence as it is written, one numpy minimum an entry."""
    depths = np.concatenate(([0], weights.depths, [weights.depths[-1] + 1])).astype(np.float64)
    mass = np.concatenate(([0.0, 0.0], np.cumsum(weights.weights)))
    moment = np.concatenate(([0.0, 0.0], np.cumsum(weights.weights * weights.depths)))
    best = moment.copy()
    for _ in range(budget):
        intercepts = best - moment + depths * mass
        following = best.copy()
        for end in range(2, depths.size):
            served = intercepts[1:end] - depths[1:end] * mass[end]
            following[end] = min(best[end], moment[end] + float(served.min()))
        best = following
    return float(best[-1])


def random_tree(nodes: int, height: int, seed: int = 0) -> PrefixTree:
    """Return a tree of at most that height; each node hangs below a recent one or any one."""
    rng = np.random.default_rng(seed)
    parents, levels = [-1], [0]
    while len(parents) < nodes:
        recent = rng.random() < 0.95
        parent = int(rng.integers(max(0, len(parents) - 20) if recent else 0, len(parents)))
        if levels[parent] < height:
            parents.append(parent)
            levels.append(levels[parent] + 1)
    lengths = np.concatenate(([0], GRID * rng.integers(1, 20, nodes - 1)))
    return PrefixTree(np.array(parents), lengths, rng.integers(0, 100, nodes).astype(np.float64))


def chain(nodes: int, seed: int = 0) -> PrefixTree:
    """Return a path written as a tree: the tallest a tree can be."""
    rng = np.random.default_rng(seed)
    lengths = np.concatenate(([0], GRID * rng.integers(1, 20, nodes - 1)))
    return PrefixTree(np.arange(-1, nodes - 1), lengths, rng.random(nodes))


def path_rows(repetitions: int, quick: bool) -> list[Row]:
    """Return the times on one path, the plain solver's beside them."""
    rows = []
    for depths, budget, target in ((16_384, 64, 20e-3), (2_048, 8, 0.5e-3)):
        weights = path_weights(depths)
        name = f"path, N = {depths:,}, M = {budget}"
        plain = None
        if not quick or depths < 10_000:
            start = time.perf_counter()
            truth = plain_cost(weights, budget)
            plain = time.perf_counter() - start
            found = place(weights, budget, grid=GRID).cost
            assert math.isclose(found, truth, rel_tol=1e-9), (found, truth)
        ours = seconds(partial(place, weights, budget, grid=GRID), repetitions)
        rows.append(Row(name, ours, target, plain))
        if depths == 16_384:
            price = _price_of(weights, budget)
            priced = place_priced(weights, price, grid=GRID)
            exact = place(weights, priced.depths.size, grid=GRID)
            assert math.isclose(priced.cost, exact.cost, rel_tol=1e-9)
            name = f"path, N = {depths:,}, priced ({priced.depths.size} states)"
            ours = seconds(partial(place_priced, weights, price, grid=GRID), repetitions)
            rows.append(Row(name, ours, 2e-3, plain))
    dense = np.random.default_rng(1).exponential(size=2_048) ** 3
    ours = seconds(lambda: place(dense, 8), repetitions)
    rows.append(Row("path, dense weights, N = 2,048, M = 8", ours, 0.5e-3))
    long = SparseWeights(np.arange(1, 501) * 2_000, np.random.default_rng(2).random(500))
    ours = seconds(lambda: place(long, 64), repetitions)
    rows.append(Row("path, 10^6 tokens, 500 observed, M = 64", ours))
    return rows


def tree_rows(repetitions: int, quick: bool) -> list[Row]:
    """Return the times on trees."""
    tree = random_tree(2_000, 64)
    assert classify(tree) is TreeShape.GENERAL
    found = place_tree(tree, 64, grid=GRID)
    assert found.cost >= price_bound(tree, 64, grid=GRID).value * (1 - 1e-9)
    few = min(repetitions, 5)
    height = int(tree.heights[0])
    exact = seconds(lambda: place_tree(tree, 64, grid=GRID), few)
    rows = [Row(f"tree, 2,000 nodes, height {height}, k = 64, exact", exact, 2.0)]
    path = chain(2_000)
    rows.append(
        Row("chain, 2,000 nodes, k = 64, exact", seconds(lambda: place_tree(path, 64), few))
    )
    nodes = 20_000 if quick else 100_000
    large = random_tree(nodes, 64)
    price = 50.0 * GRID * 100
    priced = seconds(lambda: place_tree_priced(large, price, grid=GRID), few)
    states = len(place_tree_priced(large, price, grid=GRID).states)
    rows.append(Row(f"tree, {nodes:,} nodes, priced ({states:,} states)", priced, 0.5))
    rows += update_rows(large, price)
    tall = chain(nodes)
    rows.append(
        Row(f"chain, {nodes:,} nodes, priced", seconds(lambda: place_tree_priced(tall, 1e5), few))
    )
    return rows


def update_rows(tree: PrefixTree, price: float) -> list[Row]:
    """Return the times of one change of a weight and of one new leaf, each at random nodes."""
    mended = PricedTree(price, tree, grid=GRID)
    rng = np.random.default_rng(3)
    nodes = rng.integers(1, len(tree), 2_000).tolist()
    weights = rng.integers(0, 100, 2_000).astype(float).tolist()
    changes: list[float] = []
    leaves: list[float] = []
    for node, weight in zip(nodes, weights, strict=True):
        start = time.perf_counter()
        mended.set_weight(node, weight)
        between = time.perf_counter()
        mended.add_leaf(node, 5 * GRID, weight)
        leaves.append(time.perf_counter() - between)
        changes.append(between - start)
    again = place_tree_priced(mended.tree(), price, grid=GRID)
    total = again.cost + price * len(again.states)
    assert math.isclose(mended.total, total, rel_tol=1e-9)
    size = f"tree, {len(tree):,} nodes, priced"
    return [
        Row(f"{size}: one weight changed", median(changes), 50e-6),
        Row(f"{size}: one leaf added", median(leaves), 50e-6),
        Row(f"{size}: one weight changed, 99th percentile", float(np.quantile(changes, 0.99))),
    ]


def slope(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Return the exponent of growth."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def slopes(repetitions: int, quick: bool) -> list[str]:
    """Return a line for each growth: sizes, times and exponent."""
    last = 3 if quick else 4
    n_path = [4_096 * 2**power for power in range(last)]
    n_budget = [16 * 2**power for power in range(last)]
    n_exact = [500 * 2**power for power in range(last)]
    n_priced = [12_500 * 2**power for power in range(last)]
    paths = {size: path_weights(size) for size in (*n_path, 16_384)}
    exact = {size: random_tree(size, 64) for size in (*n_exact, 2_000)}
    priced = {size: random_tree(size, 64) for size in n_priced}
    few = min(repetitions, 5)
    growths: list[tuple[str, list[int], Callable[[int], object]]] = [
        ("path over N, M = 64", n_path, lambda n: place(paths[n], 64, grid=GRID)),
        ("path over M, N = 16,384", n_budget, lambda m: place(paths[16_384], m, grid=GRID)),
        ("path over N, priced", n_path, lambda n: place_priced(paths[n], 1e6, grid=GRID)),
        ("tree over nodes, k = 64, exact", n_exact, lambda n: place_tree(exact[n], 64, grid=GRID)),
        ("tree over k, 2,000 nodes, exact", n_budget, lambda k: place_tree(exact[2_000], k)),
        (
            "tree over nodes, priced",
            n_priced,
            lambda n: place_tree_priced(priced[n], 3.2e5, grid=GRID),
        ),
    ]
    lines = []
    for name, sizes, call in growths:
        times = [seconds(partial(call, size), few) for size in sizes]
        steps = ", ".join(f"{n:,}: {_time(t)}" for n, t in zip(sizes, times, strict=True))
        lines.append(f"{name:34}{slope(sizes, times):5.2f}   {steps}")
    return lines


def import_seconds(repetitions: int) -> float:
    """Return the time that `import tree_placement` takes in a fresh interpreter, numpy's included.

    The interpreter's own start is not counted.
    """
    command = (
        "import time; start = time.perf_counter(); import tree_placement; "
        "print(time.perf_counter() - start)"
    )
    times = []
    for _ in range(repetitions + 1):
        run = subprocess.run(
            [sys.executable, "-c", command], capture_output=True, text=True, check=True
        )
        times.append(float(run.stdout))
    return median(times[1:])


def main() -> None:
    """Print the table and the slopes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--repetitions", type=int, default=21, help="timed calls of each (default: %(default)s)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="leave out the plain solver at N = 16,384, and take smaller trees (seconds, not a "
        "minute)",
    )
    given = parser.parse_args()
    if given.repetitions < 1:
        parser.error(f"--repetitions: got {given.repetitions}; need at least 1; change it")
    print(f"{'median of one call':66}{'ours':>10}{'target':>10}{'plain':>10}{'ratio':>9}")
    for row in path_rows(given.repetitions, given.quick):
        _print(row)
    for row in tree_rows(given.repetitions, given.quick):
        _print(row)
    _print(Row("import tree_placement", import_seconds(min(given.repetitions, 9)), 0.3))
    print(f"\n{'growth':33}slope   median of one call by size")
    print(*slopes(given.repetitions, given.quick), sep="\n")


def _price_of(weights: SparseWeights, budget: int) -> float:
    """Return a price at which about `budget` states pay."""
    less, more = place(weights, budget - 1, grid=GRID), place(weights, budget + 1, grid=GRID)
    return (less.cost - more.cost) / 2


def _print(row: Row) -> None:
    cells = [
        _time(row.seconds),
        "" if row.target is None else _time(row.target),
        "" if row.plain is None else _time(row.plain),
        "" if row.plain is None else f"{row.plain / row.seconds:,.0f}x",
    ]
    missed = "  missed" if row.target is not None and row.seconds > row.target else ""
    print(f"{row.what:66}{cells[0]:>10}{cells[1]:>10}{cells[2]:>10}{cells[3]:>9}{missed}")


def _time(duration: float) -> str:
    scale, unit = next((each for each in UNITS if duration >= each[0]), UNITS[-1])
    return f"{duration / scale:.3g} {unit}"


if __name__ == "__main__":
    main()
