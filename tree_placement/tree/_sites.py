"""Sites of a tree, which may serve what lies below them, and the search along a way to the root.

Node v has two: site ``2 v``, a state that stands in the edge into v (depth 0 for the root), and
site ``2 v + 1``, the candidate for a new one. Each knows the next site above it; a state that
stands hides all that is above it, so it is its own. A site's ``jump`` leads to one further above,
chosen by its level as in Myers, "An applicative random-access stack" (IPL 17, 1983), which makes
a search along the way O(log) and lets sites be added at the end.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tree_placement.path._dp import FloatArray, compiled

IndexArray = NDArray[np.int32]


class Sites(NamedTuple):
    """Two sites for each node.

    Parameters
    ----------
    prefill
        F at the site.
    above, jump
        The next site above, and one further above; the site itself where there is none.
    level
        Number of sites above.
    ground
        The site that is its own `above` at the end of the way.
    """

    prefill: FloatArray
    above: IndexArray
    jump: IndexArray
    level: IndexArray
    ground: IndexArray


def empty_sites(nodes: int) -> Sites:
    """Return room for the sites of `nodes` nodes."""
    links = [np.zeros(2 * nodes, dtype=np.int32) for _ in range(4)]
    return Sites(np.zeros(2 * nodes), *links)


def grown(sites: Sites) -> Sites:
    """Return the sites with room for twice as many nodes."""
    links = sites.above, sites.jump, sites.level, sites.ground
    prefill = np.concatenate((sites.prefill, np.zeros_like(sites.prefill)))
    return Sites(prefill, *(np.concatenate((link, np.zeros_like(link))) for link in links))


@compiled
def lay(sites: Sites, node: int, top: int, standing: float, candidate: float) -> int:
    """Lay the sites of `node` below site `top`; return the deepest at or above the node's end.

    `standing` and `candidate` are F at them, negative where there is none. O(1) time.
    """
    if standing >= 0.0:
        site = 2 * node
        sites.prefill[site] = standing
        sites.above[site] = sites.jump[site] = sites.ground[site] = site
        sites.level[site] = 0
        top = site
    if candidate >= 0.0:
        site = 2 * node + 1
        jump = sites.jump[top]
        further = sites.jump[jump]
        level = sites.level
        is_even = level[top] - level[jump] == level[jump] - level[further]
        sites.prefill[site] = candidate
        sites.above[site] = top
        sites.jump[site] = further if is_even else top
        level[site] = level[top] + 1
        sites.ground[site] = sites.ground[top]
        top = site
    return top


@compiled
def is_kept(prefill: float, value: float, count: float, slope: float) -> bool:
    """Return whether ``(value - slope * prefill, count) <= (0, 0)``: a state would not pay.

    The first number is what the best choice without a state costs beyond the one with it, served
    from `prefill`; the second is by how many states it has more, which decides ties.
    """
    excess = value - slope * prefill
    return excess < 0.0 or (excess == 0.0 and count <= 0.0)


@compiled
def shallowest_kept(sites: Sites, site: int, value: float, count: float, slope: float) -> int:
    """Return the shallowest site, from one where `is_kept` holds upwards, where it still does.

    O(log level) time.
    """
    while True:
        jump, above = sites.jump[site], sites.above[site]
        if jump != site and is_kept(sites.prefill[jump], value, count, slope):
            site = jump
        elif above != site and is_kept(sites.prefill[above], value, count, slope):
            site = above
        else:
            return site
