"""`python -m sglang_sparse.placement`: ask a running server how near the optimum its states are.

The server tells which states it keeps, and what it expects of the next prompt; the other placements
are computed here, so that no request waits for them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sglang_sparse.asking import ANSWERED, NO_ANSWER, AskError, add_arguments, ask
from tree_placement.policy import TreeForecast
from tree_placement.tree import Optimality, PrefixTree, measure_optimality

ROUTE = "/sparse/placement"


def to_plain(forecast: TreeForecast, grid: int) -> dict[str, Any]:
    """Return what a scheduler tells as JSON; `grid` is the distance between depths of states.

    `parents`, `lengths` (tokens) and `weights` are those of a `PrefixTree`. `kept` are its nodes at
    whose ends a state stands, rising, and `ids` SGLang's names of these.
    """
    tree = forecast.tree
    return {
        "grid": grid,
        "parents": tree.parents.tolist(),
        "lengths": tree.lengths.tolist(),
        "weights": tree.weights.tolist(),
        "kept": [node for node, _ in forecast.kept],
        "ids": list(forecast.ids),
    }


def read_placement(answer: Mapping[str, Any]) -> TreeForecast:
    """Return the forecast that a scheduler told."""
    tree = PrefixTree(answer["parents"], answer["lengths"], answer["weights"])
    kept = tuple((node, int(tree.lengths[node])) for node in answer["kept"])
    return TreeForecast(tree, kept, tuple(answer["ids"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, print how near the optimum each scheduler's states are, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m sglang_sparse.placement", description=__doc__)
    add_arguments(parser)
    given = parser.parse_args(arguments)
    try:
        told = ask(given, ROUTE)
    except AskError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    if given.json:
        print(json.dumps(told))
        return ANSWERED
    try:
        for answer in told:
            forecast = read_placement(answer)
            found = measure_optimality(forecast.tree, forecast.kept, grid=answer["grid"])
            print("\n".join(_lines(found, len(forecast.tree))))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return NO_ANSWER
    return ANSWERED


def _lines(found: Optimality, nodes: int) -> Iterator[str]:
    yield f"{found.states} states kept, on a tree of {nodes} nodes ({found.shape.value})"
    yield "tokens that the next prompt is expected to compute though they are cached"
    yield f"  with no state          {found.without:12,.1f}"
    yield f"  with those kept        {found.cost:12,.1f}"
    yield f"  by the decomposition   {found.apart:12,.1f}"
    yield f"  at best, with as many  {found.exact:12,.1f}"
    yield f"kept over best {found.ratio:.3f}, {found.saved:.1%} of what the best saves"


if __name__ == "__main__":
    sys.exit(main())
