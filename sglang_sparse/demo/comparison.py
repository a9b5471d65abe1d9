"""The same prompts to two servers, and whether the answers agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import NamedTuple

from sglang_sparse.demo.document import Group, Prompt
from sglang_sparse.demo.server import Completion, Server

TOP = 5
TOLERANCE = 1e-5
_WARM_UP_TOKENS = 640

Candidate = tuple[int, float]
"""A token and its log-probability."""


class Answer(NamedTuple):
    """A completion, and how many states the server kept after it; None where it does not tell."""

    completion: Completion
    states: int | None


class Comparison(NamedTuple):
    """One prompt and the two servers' answers to it."""

    prompt: Prompt
    stock: Answer
    sparse: Answer

    @property
    def difference(self) -> float:
        """Largest difference of a listed log-probability, up to where the tokens part."""
        return largest_difference(self.stock.completion, self.sparse.completion)

    @property
    def is_identical(self) -> bool:
        """Whether the token ids are equal and the log-probabilities within `TOLERANCE`."""
        same = self.stock.completion.tokens == self.sparse.completion.tokens
        return same and self.difference <= TOLERANCE


class Totals(NamedTuple):
    """One server's figures over some prompts: tokens, and seconds to the first token."""

    cached: int
    gap: int
    first_token: float
    median_first_token: float


def warm_up(server: Server, new_tokens: int) -> None:
    """Let a server compile and allocate what it needs, then empty its cache.

    The prompts live in a namespace of their own, so that their overlaps teach the planner nothing
    about the real ones.
    """
    for tail in (1, 2):
        prompt = [*([3, 4] * (_WARM_UP_TOKENS // 2)), *([tail] * 64)]
        server.complete(prompt, new_tokens, top=TOP, extra_key="warm-up")
    server.flush_cache()


def ask(
    server: Server, prompts: Iterable[Prompt], new_tokens: int, on_answer: Callable[[], None]
) -> list[Answer]:
    """Send the prompts one after the other; call `on_answer` after each."""
    answers = []
    for prompt in prompts:
        completion = server.complete(prompt.tokens, new_tokens, top=TOP)
        own = server.state().get("sparse")
        answers.append(Answer(completion, own["states"] if own else None))
        on_answer()
    return answers


def gap(prompt: Prompt, answer: Answer) -> int:
    """Return how many tokens were computed although an earlier prompt had them in this place."""
    return max(prompt.seen - answer.completion.cached_tokens, 0)


def totals(prompts: Sequence[Prompt], answers: Sequence[Answer]) -> Totals:
    """Sum one server's figures over some prompts, at least one."""
    times = [answer.completion.first_token for answer in answers]
    return Totals(
        cached=sum(answer.completion.cached_tokens for answer in answers),
        gap=sum(gap(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)),
        first_token=sum(times),
        median_first_token=median(times),
    )


def by_group(comparisons: Sequence[Comparison]) -> dict[Group, list[Comparison]]:
    """Return the comparisons of each group that has any."""
    groups = {
        group: [each for each in comparisons if each.prompt.group is group] for group in Group
    }
    return {group: members for group, members in groups.items() if members}


def largest_difference(first: Completion, second: Completion) -> float:
    """Return the largest `step_difference` of two completions, while their tokens agree.

    Infinite where one lists nothing or a different number of steps.
    """
    if len(first.top) != len(second.top) or not first.top:
        return float("inf")
    agreed = next(
        (
            step
            for step, (one, other) in enumerate(zip(first.tokens, second.tokens, strict=False))
            if one != other
        ),
        len(first.top),
    )
    steps = list(zip(first.top, second.top, strict=True))[: agreed + 1]
    return max(step_difference(one, other) for one, other in steps)


def step_difference(one: Sequence[Candidate], other: Sequence[Candidate]) -> float:
    """Return by how much the log-probabilities of two predictions differ, at least.

    Parameters
    ----------
    one, other
        The likeliest tokens of each, with their log-probabilities; at least one. A token that
        only one side lists differs by at least its distance from the other's lowest.
    """
    return max(_excess(one, other), _excess(other, one))


def _excess(listed: Sequence[Candidate], reference: Sequence[Candidate]) -> float:
    known = dict(reference)
    lowest = min(known.values())
    return max(
        abs(logprob - known[token]) if token in known else max(logprob - lowest, 0.0)
        for token, logprob in listed
    )
