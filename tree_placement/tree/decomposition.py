"""Stars and combs solved branch by branch, with a bound on the gap to the optimum."""

import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tree_placement._check import check_count, invalid
from tree_placement.cost import PrefillCost
from tree_placement.path.placement import Placement
from tree_placement.tree.branches import BranchProblems
from tree_placement.tree.exact import place_tree
from tree_placement.tree.prefix_tree import PrefixTree, State, TreePlacement, tree_recompute


@dataclass(frozen=True, eq=False)
class Decomposition:
    """A placement found branch by branch, and how far from the optimum it can be.

    It is for the bound and the certificate, not for speed: on wide stars `split_budget` can take
    longer than the exact `place_tree`.

    Parameters
    ----------
    placement
        The new states of all branches, and their true cost on the tree.
    counts
        New states on each branch, in the order of `decompose`.
    lower_bound
        Sum of the branches' costs as if a state stood at every junction. No placement under the
        same budgets costs less.
    is_certified
        Whether every branch has a state at its junction, or no weight above its first state:
        then the two agree, and the placement is optimal under the budgets given.
    """

    placement: TreePlacement
    counts: tuple[int, ...]
    lower_bound: float
    is_certified: bool

    @property
    def gap(self) -> float:
        """Cost above the lower bound: the placement is at most this far from the optimum."""
        return max(self.placement.cost - self.lower_bound, 0.0)


def place_apart(
    tree: PrefixTree,
    budgets: Sequence[int],
    *,
    grid: int = 1,
    cost: PrefillCost | None = None,
    fixed: Iterable[State] = (),
    forbidden: Iterable[State] = (),
    minimum_depth: int = 0,
) -> Decomposition:
    """Solve every branch of a star or comb for itself, each with a budget of its own.

    Parameters
    ----------
    tree
        A chain, star or comb, see `decompose`.
    budgets
        New states at most on each branch, in the order of `decompose`: one each, >= 0.
    grid, cost, fixed, forbidden, minimum_depth
        As for `place_tree`.

    Raises
    ------
    ValueError
        As for `place_tree` and `decompose`, or if there is not one budget a branch.

    Notes
    -----
    Every branch is solved by `place` as if a state stood at its junction. **Theorem.** The sum of
    these costs is a lower bound on the cost of every placement under the same budgets; it is
    reached, so the placement is optimal, where each branch has a state at its junction or no
    weight above its first state. Proof: a free state at the junction, for one branch alone, raises
    no cost, and leaves a problem of that branch alone. Where there is one in truth, or where no
    weight would use it, the costs of that problem are the true ones. Otherwise the weight above
    the branch's first state falls to the spine, and the sum understates it.

    Time is that of `place` on each branch.

    Examples
    --------
    One state on the trunk and one on each branch. Together, 36 would do: the branches' states at
    their first nodes spare the junction.

    >>> tree = PrefixTree(
    ...     [-1, 0, 1, 2, 3, 2, 5], [0, 4, 6, 1, 9, 1, 9], [0, 9, 0, 3, 2, 3, 2]
    ... )
    >>> apart = place_apart(tree, [1, 1, 1])
    >>> apart.placement.cost, apart.lower_bound, apart.is_certified
    (42.0, 6.0, False)
    """
    problems = BranchProblems(tree, grid, cost, fixed, forbidden, minimum_depth)
    if len(budgets) != len(problems.branches):
        need = f"{len(problems.branches)}, one a branch"
        raise invalid("budgets", f"{len(budgets)} of them", need, "see decompose(tree)")
    return _put_together(
        problems, [problems.solve(branch, budget) for branch, budget in enumerate(budgets)]
    )


def split_budget(
    tree: PrefixTree,
    budget: int,
    *,
    grid: int = 1,
    cost: PrefillCost | None = None,
    fixed: Iterable[State] = (),
    forbidden: Iterable[State] = (),
    minimum_depth: int = 0,
) -> Decomposition:
    """Split one budget between the branches of a star or comb, and solve each for itself.

    Parameters
    ----------
    tree
        A chain, star or comb, see `decompose`.
    budget
        Number of new states at most on the whole tree, >= 0.
    grid, cost, fixed, forbidden, minimum_depth
        As for `place_tree`.

    Raises
    ------
    ValueError
        As for `place_tree` and `decompose`.

    Notes
    -----
    The optimal cost of one path is convex in its number of states, so what a further state saves
    there falls, and to give each next state where it saves most splits the budget exactly (Fox,
    "Discrete optimization via marginal analysis", Management Science 13, 1966). As in
    `place_apart` that minimises the lower bound, which is the true cost where the branches are
    independent. Time is that of `place` on a branch for each state given, and for each branch.

    Examples
    --------
    >>> tree = PrefixTree([-1, 0, 1, 2, 1, 4], [0, 4, 2, 3, 5, 1], [0, 1, 0, 2, 0, 5])
    >>> split = split_budget(tree, 2, fixed=[(1, 4)])
    >>> split.counts, split.placement, split.is_certified
    ((0, 1, 1), TreePlacement(states=((3, 3), (5, 1)), cost=0.0), True)
    """
    budget = check_count("budget", budget, 0, "pass the number of new states allowed")
    problems = BranchProblems(tree, grid, cost, fixed, forbidden, minimum_depth)
    solved = [problems.solve(branch, 0) for branch in range(len(problems.branches))]
    gains: list[tuple[float, int, Placement]] = []

    def offer(branch: int) -> None:
        following = problems.solve(branch, solved[branch].depths.size + 1)
        if following.depths.size > solved[branch].depths.size:
            heapq.heappush(gains, (following.cost - solved[branch].cost, branch, following))

    for branch in range(len(solved)):
        offer(branch)
    for _ in range(budget):
        if not gains:
            break
        _, branch, solved[branch] = heapq.heappop(gains)
        offer(branch)
    return _put_together(problems, solved)


def decomposition_gap(
    tree: PrefixTree,
    budget: int,
    *,
    grid: int = 1,
    cost: PrefillCost | None = None,
    fixed: Iterable[State] = (),
    forbidden: Iterable[State] = (),
    minimum_depth: int = 0,
) -> float:
    """Return what `split_budget` costs above the optimum, `place_tree`.

    Arguments and errors as for `split_budget`; time and memory are those of `place_tree`.

    Examples
    --------
    >>> tree = PrefixTree([-1, 0, 1, 1, 1], [0, 4, 2, 3, 8], [0, 1, 9, 9, 5])
    >>> split_budget(tree, 2).placement.cost, place_tree(tree, 2).cost
    (58.0, 45.0)
    >>> decomposition_gap(tree, 2)
    13.0
    """
    fixed, forbidden = tuple(fixed), tuple(forbidden)
    split = split_budget(
        tree,
        budget,
        grid=grid,
        cost=cost,
        fixed=fixed,
        forbidden=forbidden,
        minimum_depth=minimum_depth,
    )
    optimum = place_tree(
        tree,
        budget,
        grid=grid,
        cost=cost,
        fixed=fixed,
        forbidden=forbidden,
        minimum_depth=minimum_depth,
    )
    return max(split.placement.cost - optimum.cost, 0.0)


def _put_together(problems: BranchProblems, solved: Sequence[Placement]) -> Decomposition:
    """Return the tree's placement and bound from those of its branches."""
    found = [problems.states(branch, each.depths) for branch, each in enumerate(solved)]
    states = tuple(sorted(itertools.chain.from_iterable(found)))
    recompute = tree_recompute(problems.tree, problems.fixed + states, cost=problems.cost)
    everywhere = frozenset(states)
    return Decomposition(
        placement=TreePlacement(states, recompute),
        counts=tuple(each.depths.size for each in solved),
        lower_bound=sum(each.cost for each in solved),
        is_certified=all(
            problems.is_alone(branch, everywhere, each.depths) for branch, each in enumerate(solved)
        ),
    )
