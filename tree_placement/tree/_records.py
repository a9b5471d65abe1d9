"""Arrays of `PricedTree`: what its compiled parts read and write."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tree_placement.path._dp import FloatArray
from tree_placement.tree._sites import Sites

Records = NDArray[np.void]

NODE = np.dtype(
    [
        ("parent", np.int32),
        ("top", np.int32),
        ("first", np.int64),
        ("entries", np.int32),
        ("room", np.int32),
        ("depth", np.int64),
        ("standing_depth", np.int64),
        ("candidate_depth", np.int64),
        ("weight", np.float64),
        ("prefill", np.float64),
        ("standing", np.float64),
        ("candidate", np.float64),
        ("slope", np.float64),
        ("slope_rest", np.float64),
        ("limit", np.float64),
        ("constant", np.float64),
        ("states", np.float64),
    ],
    align=True,
)
"""A node: its deepest site, its entries' place, its edge, and what is decided there."""

ENTRY = np.dtype(
    [
        ("key", np.float64),
        ("site", np.int32),
        ("parts", np.int32),
        ("cost", np.float64),
        ("cost_rest", np.float64),
        ("count", np.float64),
        ("slope", np.float64),
        ("slope_rest", np.float64),
    ],
    align=True,
)
"""An entry ``(site, A, B)``, the sum of `parts` children's."""

TOTAL, TOTAL_REST, COUNT, PRICE, OLD_SLOPE, NEW_SLOPE = range(6)
"""Places in `Mended.numbers`."""

USED, NODE_AT, OLD_AT, OLD_SIZE, NEW_SIZE = range(5)
"""Places in `Mended.marks`: entries used, and the change that is on its way up."""


class Mended(NamedTuple):
    """A priced tree in arrays.

    `shapes` has four rows: the old and the new shape of the node that changed, from row
    ``marks[OLD_AT]`` on, and in the other two those of its parent while it is mended.
    """

    nodes: Records
    entries: Records
    shapes: Records
    sites: Sites
    numbers: FloatArray
    marks: NDArray[np.int64]
