"""Between SGLang's tree and `tree_placement`: nodes in, plain numbers out, and back.

A state is named by the id of the node at whose end it stands; a split leaves that id with the
lower half, which keeps the state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from sglang.srt.mem_cache.unified_cache.components.base import ComponentType

from sglang_sparse.component import branch_of, depth_of
from tree_placement.policy import (
    Extent,
    LossReason,
    MissedState,
    Origin,
    PathPart,
    PlannedState,
    RefusedState,
    SparsePolicy,
    TreeForecast,
    Visit,
)
from tree_placement.policy.branches import path_to

logger = logging.getLogger(__name__)

_FAILED = "sglang-sparse: the policy failed in %s; the request goes on without it"

NO_STATE: int | None = None
NO_ORIGIN: Origin | None = None
NO_STATES: tuple[PlannedState, ...] = ()
NO_FORECAST: TreeForecast | None = None

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def _survives(
    without: Answer,
) -> Callable[[Callable[Arguments, Answer]], Callable[Arguments, Answer]]:
    """Log what a method of the planner raises, and answer `without` instead: an optional state is
    never worth a scheduler."""

    def wrap(method: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
        @wraps(method)
        def guarded(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
            try:
                return method(*args, **kwargs)
            except Exception:
                logger.exception(_FAILED, method.__name__)
                return without

        return guarded

    return wrap


class Planner:
    """Asks the policy on behalf of the cache.

    Parameters
    ----------
    policy
        Decides; it is told of every prompt and of every state that comes or goes.
    """

    def __init__(self, policy: SparsePolicy) -> None:
        self.policy = policy

    def visit(self, node: Any | None, namespace: str, overlap: int) -> Visit:
        """Describe a match of `overlap` tokens that ended at `node` (None: at the root)."""
        path = path_parts(node)
        last = branch_of(_branched(node)) if path else None
        return Visit(
            namespace,
            path=path,
            overlap=overlap,
            earlier_length=last.length if last is not None else 0,
            turn=last.turn if last is not None else 0,
        )

    @_survives(NO_ORIGIN)
    def observe(self, visit: Visit, length: int) -> Origin | None:
        """Count a prompt of `length` tokens, once, and return what a plan wants to know of it."""
        return self.policy.observe(visit, length)

    @_survives(NO_STATES)
    def plan(
        self, visit: Visit, origin: Origin, start: int, length: int, full: bool
    ) -> tuple[PlannedState, ...]:
        """Return the depths in (start, length] to keep states at, the end last.

        `full` tells that no slot is free.
        """
        return self.policy.plan(visit, origin, Extent(start, length, full))

    @_survives(None)
    def published(
        self, node: Any, planned: Iterable[PlannedState], refused: Iterable[RefusedState]
    ) -> None:
        """Let the policy watch the planned states on the path to `node`, captured or not.

        `refused` are those of them that got no slot.
        """
        path = path_parts(node)
        self.policy.publish(path, planned)
        for each in refused:
            self.policy.lose(path, each)

    @_survives(False)
    def is_worth_a_slot(self, planned: PlannedState, above: int, displaced: int) -> bool:
        """Tell whether a planned state should displace the live one `displaced`."""
        return self.policy.is_worth_a_slot(planned, above, displaced)

    @_survives(None)
    def state_added(self, node: Any, planned: PlannedState) -> None:
        """Take up the state that now stands at the end of `node`, at the depth of `planned`."""
        self.policy.add(node.id, path_parts(node), planned)

    @_survives(None)
    def state_gone(self, node: Any, reason: LossReason) -> None:
        """Let the state that stood at the end of `node` live no longer, if it was known."""
        if self.policy.is_live(node.id):
            self.policy.remove(node.id, reason)

    @_survives(0.0)
    def value(self, state: int) -> float:
        """Return the tokens that a state is expected to save the next prompt."""
        return self.policy.value(state)

    def missed(self, node: Any, overlap: int, start: int) -> list[MissedState]:
        """Return where on the path to `node`, deeper than `start` and down to `overlap`, a state
        was planned and does not live, the deepest first. Nothing is changed."""
        return self.policy.missed(path_to(path_parts(node), overlap), start)

    @_survives(None)
    def tokens_gone(self, leaf: Any) -> None:
        """Forget what is known of a leaf's tokens, which the tree drops."""
        path = path_parts(leaf)
        if path:
            begin = path[0].depth - len(leaf.key)
            self.policy.cut((path[0]._replace(depth=begin), *path[1:]))

    @_survives(NO_STATE)
    def surplus(self, state: int, may_go: Callable[[int], bool]) -> int | None:
        """Return a state to give up because a path through `state` has too many, None if none."""
        return self.policy.surplus(state, may_go)

    def unplanned(self, namespace: str, depth: int) -> PlannedState:
        """Return the record of a state at `depth` that the tree keeps though none was planned."""
        return self.policy.unplanned(namespace, depth)

    def is_live(self, state: int) -> bool:
        """Tell whether a state still exists."""
        return self.policy.is_live(state)

    def eviction_order(self) -> Iterator[int]:
        """Yield the states' node ids, the least valuable first."""
        try:
            yield from self.policy.eviction_order()
        except Exception:
            logger.exception(_FAILED, "eviction_order")

    @_survives(NO_FORECAST)
    def forecast(self) -> TreeForecast | None:
        """Return the tree of the states that are known, live or missed, with what is expected of
        the next prompt. Its ids are those of the nodes at whose ends the live ones stand."""
        return self.policy.forecast()

    def violations(self, root: Any) -> Iterator[str]:
        """Yield a sentence for each state that the tree has and the policy has not, or reverse."""
        in_tree = set()
        waiting = [root]
        while waiting:
            node = waiting.pop()
            waiting.extend(node.children.values())
            if has_state(node) and node is not root:
                in_tree.add(node.id)
        known = set(self.eviction_order())
        yield from (f"state {state}: in the tree, unknown" for state in sorted(in_tree - known))
        yield from (f"state {state}: known, not in the tree" for state in sorted(known - in_tree))

    def forget_states(self) -> None:
        """Forget every state, and nothing else: the tree was emptied."""
        self.policy.clear_states()


def path_to_root(node: Any) -> Iterator[Any]:
    """Yield the nodes from `node` up to the root's child."""
    while node is not None and node.parent is not None:
        yield node
        node = node.parent


def path_parts(node: Any | None) -> tuple[PathPart, ...]:
    """Return the branches of the path to a tree node, the narrowest first, each with the depth
    down to which the path takes it.

    A node without a branch is counted to the branch below it; where there is none below, the path
    ends above it. Linear in the branches.
    """
    last = _branched(node)
    parts = []
    if last is not None:
        branch, depth = branch_of(last), depth_of(last)
        while branch is not None:
            parts.append(PathPart(branch.id, depth))
            depth, branch = branch.begin, branch.parent
    return tuple(parts)


def _branched(node: Any | None) -> Any | None:
    """Return the nearest node at or above `node` that belongs to a branch, None if none does."""
    while node is not None and branch_of(node) is None:
        node = node.parent
    return node


def has_state(node: Any) -> bool:
    """Tell whether a state stands at the end of a tree node."""
    return node.component_data[ComponentType.MAMBA].value is not None
