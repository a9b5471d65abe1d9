"""What a client asks to have explained: a prompt, in one of three forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

_PROMPTS = ("text", "input_ids", "messages")
_NAMESPACE = ("extra_key", "cache_salt")
_CHAT = ("tools", "chat_template_kwargs")


class QuestionError(ValueError):
    """A question names no prompt, or not one; the message says what to send."""


@dataclass(frozen=True)
class Question:
    """A prompt to explain: one of `text`, `input_ids` and `messages`, and its namespace.

    `chat` holds `tools` and `chat_template_kwargs`, where the messages' template wants them.
    """

    text: str | None = None
    input_ids: tuple[int, ...] | None = None
    messages: list[dict[str, Any]] | None = None
    extra_key: str | None = None
    cache_salt: str | None = None
    chat: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, body: bytes) -> Self:
        """Read a JSON object of the fields, `chat`'s among them.

        Raises
        ------
        QuestionError
            Where it is not such an object, or holds no prompt or two.
        """
        try:
            given = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise QuestionError(f"body: got no JSON ({error}); need an object; send one") from None
        if not isinstance(given, dict) or sum(name in given for name in _PROMPTS) != 1:
            raise QuestionError(
                f"body: got {_names(given)}; need exactly one of {', '.join(_PROMPTS)}; send that"
            )
        for name, value in given.items():
            _check(name, value)
        ids = given.get("input_ids")
        chat = {name: given.pop(name) for name in _CHAT if name in given}
        return cls(**{**given, "input_ids": ids if ids is None else tuple(ids), "chat": chat})


def _names(given: object) -> str:
    return f"an object of {sorted(given)}" if isinstance(given, dict) else type(given).__name__


def _check(name: str, value: object) -> None:
    """Raise QuestionError where a field does not exist, or is not of its type."""
    if name not in (*_PROMPTS, *_NAMESPACE, *_CHAT):
        known = ", ".join((*_PROMPTS, *_NAMESPACE, *_CHAT))
        raise QuestionError(f"{name}: got a field that does not exist; need one of {known}")
    if name in ("text", *_NAMESPACE):
        if not isinstance(value, str) or not value:
            raise QuestionError(f"{name}: got {value!r}; need text that is not empty")
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise QuestionError(f"{name}: got half a letter (a surrogate); need whole ones")
    elif name == "chat_template_kwargs":
        if not isinstance(value, dict):
            raise QuestionError(f"{name}: got {value!r}; need an object")
    elif not isinstance(value, list) or not value:
        raise QuestionError(f"{name}: got {value!r}; need a list that is not empty")
    elif name == "input_ids" and not all(type(each) is int and 0 <= each < 2**31 for each in value):
        raise QuestionError(f"{name}: got something else; need whole numbers from 0 to 2**31 - 1")
