"""The policies that a replay compares: the rules of the field, ours, and what no policy exceeds."""

from tree_placement.replay.policies.rules import RulePolicy, dense

__all__ = ["RulePolicy", "dense"]
