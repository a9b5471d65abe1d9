"""What the plugin did, counted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counters:
    """Running totals since the start; tokens where the name says so, else occurrences.

    A planned state is captured, or skipped: for want of a slot, or as not worth the state that it
    would displace. A captured one is published to the tree, is superseded (a state stood there
    already), is revoked for a running request that needs the slot, or is discarded with its own.
    A published one is trimmed where its path has more states than its budget.
    """

    prompts: int = 0
    prompt_tokens: int = 0
    overlap_tokens: int = 0
    resumed_tokens: int = 0
    planned: int = 0
    captured: int = 0
    skipped_no_slot: int = 0
    skipped_not_worth: int = 0
    published: int = 0
    superseded: int = 0
    trimmed: int = 0
    revoked: int = 0
    discarded: int = 0
