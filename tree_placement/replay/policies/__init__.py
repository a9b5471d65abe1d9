"""The policies that a replay compares: the rules of the field, ours, and what no policy exceeds."""

from tree_placement.replay.policies.catalogue import DENSE, NAMES, is_policy, policy_named

__all__ = ["DENSE", "NAMES", "is_policy", "policy_named"]
