"""Why a prompt would resume where it would: the record, and its wording."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Divergence:
    """The first token of a prompt that no cached prompt has in its place.

    `depth` is how many tokens are the same before it. `token` is the prompt's, None where the
    prompt ends there; `cached` are those that the nearest cached prompts have, none where these end
    there.
    """

    depth: int
    token: int | None
    cached: tuple[int, ...]


@dataclass(frozen=True)
class Missed:
    """A depth where a state was planned and does not live.

    `reason` is a `LossReason`'s value, None where the prompt that planned it is on its way;
    `value` and `price` as in `Loss`, in tokens for the next prompt; `age` in prompts.
    """

    depth: int
    reason: str | None
    value: float
    price: float
    age: int


@dataclass(frozen=True)
class Explanation:
    """What the cache has for a prompt, in tokens.

    `overlap` is how deep it holds the prompt's KV, short of the last token, which is always
    computed; `state` the depth of the deepest state down to there, 0 without one; `gap` what lies
    between and is computed again. `missed` are planned states in the gap, the deepest first.
    `slots` is how many there are, `live` how many of them hold states of the tree.
    """

    length: int
    overlap: int
    state: int
    gap: int
    grid: int
    divergence: Divergence
    missed: tuple[Missed, ...]
    slots: int
    live: int

    @property
    def why(self) -> str:
        """Why no deeper state is there, in one sentence."""
        if self.overlap == 0:
            return "no cached prompt begins with these tokens"
        if self.gap < self.grid:
            return (
                f"nothing is missing: states are {self.grid} tokens apart at least, and the next "
                f"one would be at {self.state + self.grid}"
            )
        if self.missed:
            return _reason(self.missed[0])
        return f"no state was ever planned between {self.state} and {self.overlap}"

    def lines(self) -> Iterator[str]:
        """Yield the explanation, line by line."""
        yield f"prompt: {self.length:,} tokens"
        yield f"KV: {self.overlap:,} tokens are cached"
        yield f"state: the deepest is at {self.state:,}, of {self.live} in {self.slots} slots"
        yield f"gap: {self.gap:,} tokens are computed again"
        yield _divergence(self.divergence)
        yield f"why: {self.why}"
        yield from (f"  {_reason(missed)}" for missed in self.missed[1:])


def _divergence(divergence: Divergence) -> str:
    head = f"first difference: token {divergence.depth:,}"
    if divergence.token is None:
        return f"{head}, where the prompt ends"
    if not divergence.cached:
        return f"{head} is {divergence.token}; the nearest cached prompt ends there"
    cached = " or ".join(map(str, divergence.cached))
    return f"{head} is {divergence.token}; in the nearest cached prompts it is {cached}"


def _reason(missed: Missed) -> str:
    head = f"a state at {missed.depth:,}"
    ago = f"{missed.age} prompt{'s' * (missed.age != 1)} ago"
    value, price = f"{missed.value:.3g} tokens a prompt", f"{missed.price:.3g}"
    match missed.reason:
        case "evicted":
            return f"{head} was evicted {ago}, the least valuable, at a price of {value}"
        case "trimmed":
            return f"{head} was dropped {ago} at {value}: its path had more states than its budget"
        case "no slot":
            return f"{head} was planned {ago} and got no slot: all were in use by running requests"
        case "not worth a slot":
            return f"{head} was planned {ago} for {value}, and a slot cost {price}"
        case "revoked":
            return f"{head} was planned {ago}, and a running request took its slot"
        case _:
            return f"{head} was planned {ago} and is not published yet, or was never computed"
