"""Why a state that was planned does not live: kept so that a miss can be explained."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class LossReason(Enum):
    """What became of a planned state. `TRIMMED`: its path had more states than its budget;
    `NO_SLOT`: every slot was in use; `NOT_WORTH`: the state that it would have displaced was
    expected to save more; `REVOKED`: a running request needed the slot before it was published."""

    EVICTED = "evicted"
    TRIMMED = "trimmed"
    NO_SLOT = "no slot"
    NOT_WORTH = "not worth a slot"
    REVOKED = "revoked"


class Loss(NamedTuple):
    """Why a state does not live, since when (in prompts), and what it was expected to save then.

    `value` is in tokens for the next prompt, `price` what a slot cost: the value of the least
    valuable live state, which of an evicted one is its own.

    Examples
    --------
    >>> loss = Loss(LossReason.NOT_WORTH, value=3.0, price=5.0, since=12.0)
    >>> f"{loss.reason.value}: {loss.value:g} of {loss.price:g} tokens"
    'not worth a slot: 3 of 5 tokens'
    """

    reason: LossReason
    value: float
    price: float
    since: float


class RefusedState(NamedTuple):
    """A planned state that got no slot: its depth, and the rest as in `Loss`."""

    depth: int
    reason: LossReason
    value: float = 0.0
    price: float = 0.0


class MissedState(NamedTuple):
    """A position where a state was planned and does not live. `loss` is None where the prompt that
    planned it is still on its way, and `age` in prompts since then."""

    depth: int
    loss: Loss | None
    age: int
