"""A long text, questions about it, and the prompts that both make: token ids, in sending order."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

FEWEST_TOKENS = 256
_CHARACTERS_PER_TOKEN = 64

QUESTIONS = (
    "What is this text about, in one sentence?",
    "Who is it written for?",
    "Which term is defined first, and how?",
    "List three rules that the text states.",
    "Which exception does the text mention to one of its rules?",
    "What happens when a rule is broken?",
    "Quote the shortest complete example.",
    "Which two notions are easily confused, and how do they differ?",
    "What does the author assume that the reader knows?",
    "Which part would you read first, and why?",
    "What is said about order, and does order matter?",
    "Which names appear more than twice?",
    "Rewrite the last paragraph in plain words.",
    "Which statement here would surprise a beginner?",
    "What is left unsaid that a reader would need?",
    "Which two sections depend on each other?",
    "Give a counterexample to the most general claim.",
    "What should be checked before following this text?",
    "How would you test that you have understood it?",
    "Which sentence carries the most information?",
)
EARLIER_DEPTHS = {
    Fraction(1, 4): "What has been said so far?",
    Fraction(1, 3): "What do you expect to come next?",
    Fraction(1, 2): "Summarise the first half.",
    Fraction(3, 4): "Which question does the text leave open up to here?",
}
"""Shares of the document after which it is cut off, and what is asked there."""


class InputError(ValueError):
    """The user gave what cannot work; the message is one line that says why, and what to do."""


class Group(StrEnum):
    """Prompts that meet the cache in the same way."""

    FIRST = "first"
    END = "at the end"
    EARLIER = "earlier"
    REPEAT = "repeat"


class Prompt(NamedTuple):
    """Token ids; `seen` of them, from the front, were sent before in one prompt.

    The last token never counts as seen: a server has to compute it to answer.
    """

    group: Group
    name: str
    tokens: tuple[int, ...]
    seen: int


def read_document(file: Path | None) -> str:
    """Return the text of a UTF-8 file, or of CPython's own help topics where None.

    Raises
    ------
    InputError
        Where the file cannot be read, or holds nothing but white space.
    """
    if file is None:
        from pydoc_data.topics import topics

        return "\n\n".join(topics[name] for name in sorted(topics))
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(
            f"--document: got {file} ({reason}); need a readable UTF-8 text file; correct the path"
        ) from None
    if not text.strip():
        raise InputError(f"--document: got {file}, which is empty; need a text; choose another")
    return text


def build_prompts(
    text: str, tokens: int, questions: int, encode: Callable[[str], Sequence[int]]
) -> tuple[Prompt, ...]:
    """Return the prompts: questions at the document's end, four at earlier depths, and a repeat.

    Parameters
    ----------
    text
        The document.
    tokens
        How many tokens of it to use at most.
    questions
        How many questions to ask at its end, 1 to `len(QUESTIONS)`.
    encode
        The model's tokenizer, which adds no special tokens.

    Raises
    ------
    InputError
        Where the document has fewer than `FEWEST_TOKENS` tokens.
    """
    document = tuple(encode(text[: tokens * _CHARACTERS_PER_TOKEN]))[:tokens]
    if len(document) < FEWEST_TOKENS:
        raise InputError(
            f"--document: got {len(document)} tokens; need at least {FEWEST_TOKENS}; "
            "choose a longer text"
        )

    def ask(question: str, depth: int) -> tuple[int, ...]:
        return document[:depth] + tuple(encode(f"\n\nQuestion: {question}\nAnswer:"))

    drafts = [
        (
            Group.END if number else Group.FIRST,
            f"question {number + 1}",
            ask(question, len(document)),
        )
        for number, question in enumerate(QUESTIONS[:questions])
    ]
    drafts += [
        (Group.EARLIER, f"at {share}", ask(question, int(share * len(document))))
        for share, question in EARLIER_DEPTHS.items()
    ]
    drafts.append((Group.REPEAT, "repeat of 1", drafts[0][2]))
    return tuple(
        Prompt(group, name, sent, _seen(sent, [earlier for _, _, earlier in drafts[:position]]))
        for position, (group, name, sent) in enumerate(drafts)
    )


def context_length(model: Path) -> int:
    """Return how many tokens a model's folder says that prompt and answer may have.

    Raises
    ------
    InputError
        Where the folder holds no readable configuration.
    """
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        return int(config.get("text_config", config)["max_position_embeddings"])
    except OSError as error:
        reason = f"config.json: {error.strerror}"
    except (ValueError, TypeError, AttributeError):
        reason = "config.json: not as expected"
    except KeyError as error:
        reason = f"config.json: no {error.args[0]}"
    raise InputError(
        f"--model-path: got {model} ({reason}); need the folder of a Hugging Face model; "
        "correct the path"
    )


def require_room(prompts: Sequence[Prompt], new_tokens: int, limit: int) -> None:
    """Raise `InputError` where a prompt and its answer exceed the model's context."""
    longest = max(len(prompt.tokens) for prompt in prompts)
    if longest + new_tokens > limit:
        raise InputError(
            f"--tokens: got a prompt of {longest} tokens and {new_tokens} new ones; need at most "
            f"{limit} in all, the model's context; lower --tokens or --new-tokens"
        )


def _seen(tokens: Sequence[int], earlier: Sequence[Sequence[int]]) -> int:
    deepest = max((_common_prefix(tokens, other) for other in earlier), default=0)
    return min(deepest, len(tokens) - 1)


def _common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = zip(first, second, strict=False)
    return next(
        (depth for depth, (one, other) in enumerate(pairs) if one != other),
        min(len(first), len(second)),
    )
