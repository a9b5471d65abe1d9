"""Which states to keep, and where: one object that a live cache and a replay both run."""

from tree_placement.policy.sparse_policy import (
    Extent,
    PlannedState,
    PolicySettings,
    SparsePolicy,
    Visit,
)

__all__ = ["Extent", "PlannedState", "PolicySettings", "SparsePolicy", "Visit"]
