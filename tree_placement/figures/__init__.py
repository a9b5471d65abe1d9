"""The pictures of the theory; importing this package imports matplotlib."""

from tree_placement.figures import budget, convergence, placement, tracking, trees
from tree_placement.figures.style import Picture, render

PICTURES = (
    Picture("placement", placement.draw),
    Picture("budget", budget.draw),
    Picture("trees", trees.draw),
    Picture("convergence", convergence.draw),
    Picture("tracking", tracking.draw),
)

__all__ = ["PICTURES", "Picture", "render"]
