"""One path: where a budget, or a price, puts states, and the spacings that need no weights."""

from tree_placement.path.placement import (
    Placement,
    balanced,
    balanced_mean,
    balanced_worst,
    place,
    place_priced,
)
from tree_placement.path.spacing import block, logarithmic, square_root

__all__ = [
    "Placement",
    "balanced",
    "balanced_mean",
    "balanced_worst",
    "block",
    "logarithmic",
    "place",
    "place_priced",
    "square_root",
]
