"""Branching prefixes: trees, exact and priced placement on them, and what each state is worth."""

from tree_placement.tree.branches import Branch, decompose
from tree_placement.tree.decomposition import (
    Decomposition,
    decomposition_gap,
    place_apart,
    split_budget,
)
from tree_placement.tree.duality import PriceBound, duality_gap, price_bound
from tree_placement.tree.exact import place_tree, tree_cost_curve
from tree_placement.tree.graph import LabelledTree, from_networkx, to_networkx
from tree_placement.tree.incremental import PricedTree
from tree_placement.tree.marginal import MarginalValues
from tree_placement.tree.optimality import Optimality, measure_optimality
from tree_placement.tree.prefix_tree import (
    ObservedTree,
    PrefixTree,
    TreePlacement,
    tree_recompute,
)
from tree_placement.tree.priced import place_tree_priced
from tree_placement.tree.shape import TreeShape, classify

__all__ = [
    "Branch",
    "Decomposition",
    "LabelledTree",
    "MarginalValues",
    "ObservedTree",
    "Optimality",
    "PrefixTree",
    "PriceBound",
    "PricedTree",
    "TreePlacement",
    "TreeShape",
    "classify",
    "decompose",
    "decomposition_gap",
    "duality_gap",
    "from_networkx",
    "measure_optimality",
    "place_apart",
    "place_tree",
    "place_tree_priced",
    "price_bound",
    "split_budget",
    "to_networkx",
    "tree_cost_curve",
    "tree_recompute",
]
