"""Statistics of overlap: where prompts leave earlier ones, and how sure that is."""

from tree_placement.overlap.histogram import OverlapHistogram
from tree_placement.overlap.model import OverlapModel
from tree_placement.overlap.statistics import OverlapStatistics

__all__ = ["OverlapHistogram", "OverlapModel", "OverlapStatistics"]
