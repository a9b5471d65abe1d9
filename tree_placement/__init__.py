"""Where to keep recurrent states along cached paths: numbers in, depths out."""

from tree_placement.cost import PrefillCost, SparseWeights, expected_recompute
from tree_placement.fitting import fit_prefill_cost
from tree_placement.overlap import OverlapHistogram, OverlapModel, OverlapStatistics
from tree_placement.path import (
    Placement,
    balanced,
    balanced_mean,
    balanced_worst,
    block,
    logarithmic,
    place,
    place_priced,
    square_root,
)
from tree_placement.tree import (
    PrefixTree,
    PricedTree,
    TreePlacement,
    place_tree,
    place_tree_priced,
    tree_recompute,
)

__all__ = [
    "OverlapHistogram",
    "OverlapModel",
    "OverlapStatistics",
    "Placement",
    "PrefillCost",
    "PrefixTree",
    "PricedTree",
    "SparseWeights",
    "TreePlacement",
    "balanced",
    "balanced_mean",
    "balanced_worst",
    "block",
    "expected_recompute",
    "fit_prefill_cost",
    "logarithmic",
    "place",
    "place_priced",
    "place_tree",
    "place_tree_priced",
    "square_root",
    "tree_recompute",
]
