"""Where to keep recurrent states along cached paths: numbers in, depths out."""

from tree_placement._histogram import OverlapHistogram
from tree_placement.cost import PrefillCost, SparseWeights, expected_recompute
from tree_placement.overlap import OverlapModel, OverlapStatistics
from tree_placement.path import (
    Placement,
    balanced,
    balanced_mean,
    balanced_worst,
    place,
    place_priced,
)

__all__ = [
    "OverlapHistogram",
    "OverlapModel",
    "OverlapStatistics",
    "Placement",
    "PrefillCost",
    "SparseWeights",
    "balanced",
    "balanced_mean",
    "balanced_worst",
    "expected_recompute",
    "place",
    "place_priced",
]
