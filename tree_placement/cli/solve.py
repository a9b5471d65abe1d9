"""`solve`: where to keep states, for one file of weights or one tree."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tree_placement._check import invalid
from tree_placement.cli.answer import Answer, as_json, as_lines
from tree_placement.cli.files import read_pairs, read_tree, read_weights
from tree_placement.cli.parser import Commands, OneLineParser
from tree_placement.cost import PrefillCost, as_sparse, expected_recompute
from tree_placement.fitting import fit_prefill_cost
from tree_placement.path import balanced, place, place_priced
from tree_placement.tree.prefix_tree import PrefixTree, State, tree_recompute

DESCRIPTION = """\
Print the depths at which states cost the least expected recompute, and that cost: the sum over
overlaps of weight times the prefill time from the deepest state at or above the overlap.

weights (--weights FILE), by the file's ending:
  .json  [w1, w2, ...]: the weight of overlap depths 1, 2, ... tokens; or
         [[depth, weight], ...]: only the depths that have one, depths rising, in tokens
  .csv   rows "depth,weight", depths rising, in tokens; or one weight a row. The first row may
         hold the columns' names, without digits
  .npy   an array as numpy.save writes it, of shape (n,) or (n, 2), meant as in .json

trees (--tree FILE), JSON: {"parents": [-1, 0, ...], "lengths": [0, ...], "weights": [0, ...]}:
  for each node its parent (-1 for the root, node 0; parents before children), the tokens of the
  edge into it (the root's 0), and the weight of the overlaps that end where it does
"""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What the user asked for; depths in tokens."""

    weights: Path | None
    tree: Path | None
    budget: int | None
    price: float | None
    grid: int
    cost_linear: float | None
    cost_quadratic: float | None
    cost_measured: Path | None
    fixed: Sequence[State]
    forbidden: Sequence[State]
    minimum_depth: int
    json: bool


def add_parser(commands: Commands) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "solve",
        help="where to keep states for one file of weights, or one tree",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--weights", type=Path, metavar="FILE", help="one path's overlap weights")
    source.add_argument("--tree", type=Path, metavar="FILE", help="a prefix tree")
    amount = parser.add_mutually_exclusive_group(required=True)
    amount.add_argument("--budget", type=_whole, metavar="M", help="new states at most, >= 0")
    amount.add_argument(
        "--price",
        type=_number,
        metavar="P",
        help="instead of a budget: what each new state must save, in units of the cost, >= 0",
    )
    add(
        "--grid",
        type=_whole,
        default=1,
        metavar="G",
        help="new states stand at multiples of this many tokens (default: %(default)s)",
    )
    add("--json", action="store_true", help="print one JSON object instead of lines")
    _add_places(parser)
    _add_cost(parser)


def run(given: argparse.Namespace) -> None:
    """Solve what `given` asks for and print it.

    Raises
    ------
    ValueError
        Where a file or an argument is bad.
    """
    values = vars(given)
    problem = Problem(**{name: values[name] for name in Problem.__dataclass_fields__})
    answer = _solve_path(problem) if problem.tree is None else _solve_tree(problem)
    print(as_json(answer) if problem.json else as_lines(answer))


def _add_places(parser: OneLineParser) -> None:
    add = parser.add_argument
    add(
        "--fixed",
        type=_place,
        nargs="+",
        default=[],
        metavar="PLACE",
        help="states that exist, which cost nothing: depths in tokens, on a tree NODE:DEPTH with "
        "the depth within the edge into the node",
    )
    add(
        "--forbidden",
        type=_place,
        nargs="+",
        default=[],
        metavar="PLACE",
        help="where no new state may stand; written like --fixed",
    )
    add(
        "--minimum-depth",
        type=_whole,
        default=0,
        metavar="D",
        help="the shallowest new state, in tokens (default: %(default)s)",
    )


def _add_cost(parser: OneLineParser) -> None:
    cost = parser.add_argument_group("cost: prefill time F(t) = A t + B t^2 / 2 of t tokens")
    cost.add_argument(
        "--cost-linear",
        type=_number,
        metavar="A",
        help="time of a token wherever it stands (default: 1, which counts tokens)",
    )
    cost.add_argument(
        "--cost-quadratic",
        type=_number,
        metavar="B",
        help="time that attention adds to a token for each token above it (default: 0)",
    )
    cost.add_argument(
        "--cost-measured",
        type=Path,
        metavar="FILE",
        help="fit both to measured pairs of tokens and seconds, in a format of --weights",
    )


def _solve_path(problem: Problem) -> Answer:
    assert problem.weights is not None
    cost, unit = _cost(problem)
    fixed, forbidden = _depths("--fixed", problem.fixed), _depths("--forbidden", problem.forbidden)
    weights = read_weights(problem.weights)
    if problem.budget is not None:
        solver = partial(place, weights, problem.budget)
    else:
        assert problem.price is not None
        solver = partial(place_priced, weights, problem.price)
    found = solver(
        grid=problem.grid,
        cost=cost,
        fixed=fixed,
        forbidden=forbidden,
        minimum_depth=problem.minimum_depth,
    )
    sparse, _ = as_sparse(weights)
    even = None
    if sparse.depths.size and not (fixed or forbidden or problem.minimum_depth > problem.grid):
        spaced = balanced(int(sparse.depths[-1]), found.depths.size, grid=problem.grid)
        even = expected_recompute(weights, spaced, cost=cost)
    return Answer(
        states=None,
        depths=tuple(found.depths.tolist()),
        cost=found.cost,
        cost_without=expected_recompute(weights, fixed, cost=cost),
        cost_evenly_spaced=even,
        weight=float(sparse.weights.sum()),
        unit=unit,
    )


def _solve_tree(problem: Problem) -> Answer:
    from tree_placement.tree.exact import place_tree
    from tree_placement.tree.priced import place_tree_priced

    assert problem.tree is not None
    cost, unit = _cost(problem)
    fixed = _on_tree("--fixed", problem.fixed)
    forbidden = _on_tree("--forbidden", problem.forbidden)
    tree = read_tree(problem.tree)
    if problem.budget is not None:
        solver = partial(place_tree, tree, problem.budget)
    else:
        assert problem.price is not None
        solver = partial(place_tree_priced, tree, problem.price)
    found = solver(
        grid=problem.grid,
        cost=cost,
        fixed=fixed,
        forbidden=forbidden,
        minimum_depth=problem.minimum_depth,
    )
    return Answer(
        states=found.states,
        depths=tuple(_depth_from_root(tree, state) for state in found.states),
        cost=found.cost,
        cost_without=tree_recompute(tree, fixed, cost=cost),
        cost_evenly_spaced=None,
        weight=float(tree.weights.sum()),
        unit=unit,
    )


def _cost(problem: Problem) -> tuple[PrefillCost, str]:
    """Return F and its unit."""
    linear, quadratic = problem.cost_linear, problem.cost_quadratic
    if problem.cost_measured is None:
        unit = "tokens" if linear is None and quadratic is None else "units of F"
        return PrefillCost(
            1.0 if linear is None else linear, 0.0 if quadratic is None else quadratic
        ), unit
    if linear is not None or quadratic is not None:
        got = "with --cost-linear or --cost-quadratic"
        raise invalid("--cost-measured", got, "one or the other", "leave one out")
    return fit_prefill_cost(read_pairs(problem.cost_measured)), "seconds"


def _depths(what: str, places: Sequence[State]) -> list[int]:
    for node, depth in places:
        if node >= 0:
            raise invalid(what, f"{node}:{depth}", "depths on a path", "leave out the node")
    return [depth for _, depth in places]


def _on_tree(what: str, places: Sequence[State]) -> list[State]:
    for node, depth in places:
        if node < 0:
            raise invalid(what, depth, "NODE:DEPTH on a tree", "name the node")
    return list(places)


def _depth_from_root(tree: PrefixTree, state: State) -> int:
    node, within = state
    return int(tree.depths[node] - tree.lengths[node]) + within


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}; need a whole number; change it") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}; need a number; change it") from None


def _place(text: str) -> State:
    """Return (node, depth), with the node -1 where none is named."""
    node, colon, depth = text.rpartition(":")
    numbers = [node, depth] if colon else [depth]
    if not all(number.isascii() and number.isdigit() for number in numbers):
        need = "DEPTH or NODE:DEPTH in whole numbers >= 0"
        raise argparse.ArgumentTypeError(f"got {text!r}; need {need}; change it")
    return int(node) if colon else -1, int(depth)
