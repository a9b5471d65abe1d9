"""Which states to keep, and where: one object that a live cache and a replay both run."""

from tree_placement.policy.branches import PathPart
from tree_placement.policy.forecast import TreeForecast
from tree_placement.policy.hazard import Origin
from tree_placement.policy.losses import Loss, LossReason, MissedState, RefusedState
from tree_placement.policy.sparse_policy import SparsePolicy
from tree_placement.policy.visits import (
    Extent,
    PlannedState,
    PolicySettings,
    Visit,
    next_to_admit,
)

__all__ = [
    "Extent",
    "Loss",
    "LossReason",
    "MissedState",
    "Origin",
    "PathPart",
    "PlannedState",
    "PolicySettings",
    "RefusedState",
    "SparsePolicy",
    "TreeForecast",
    "Visit",
    "next_to_admit",
]
