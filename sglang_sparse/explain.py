"""`python -m sglang_sparse.explain`: ask a running server why a prompt resumes where it does."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sglang_sparse.asking import ANSWERED, BAD_INPUT, AskError, add_arguments, ask
from sglang_sparse.explanation import Divergence, Explanation, Missed


def read(answer: Mapping[str, Any]) -> Explanation:
    """Return the explanation that a server answered."""
    divergence = answer["divergence"]
    numbers = ("length", "overlap", "state", "gap", "grid", "slots", "live")
    return Explanation(
        **{name: answer[name] for name in numbers},
        divergence=Divergence(
            divergence["depth"], divergence["token"], tuple(divergence["cached"])
        ),
        missed=tuple(Missed(**missed) for missed in answer["missed"]),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, print the explanation, and return the exit status."""
    given = _parser().parse_args(arguments)
    try:
        content = given.prompt.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"error: --prompt: got {given.prompt} ({error}); need a UTF-8 file", file=sys.stderr)
        return BAD_INPUT
    body = content if given.prompt.suffix == ".json" else json.dumps({"text": content})
    try:
        told = ask(given, "/sparse/explain", body)
    except AskError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    print(json.dumps(told) if given.json else "\n".join(_lines(told)))
    return ANSWERED


def _lines(told: Mapping[str, Any]) -> list[str]:
    """Return the explanation, with the text of the tokens that differ below their line."""
    lines = list(read(told).lines())
    texts = [repr(text) for text in told["divergence"]["texts"] if text is not None]
    if texts:
        lines.insert(5, f"  as text: {texts[0]}, not {' or '.join(texts[1:]) or 'the end'}")
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sglang_sparse.explain", description=__doc__)
    add_arguments(parser)
    parser.add_argument(
        "--prompt",
        type=Path,
        required=True,
        metavar="FILE",
        help="the prompt's text; or, in a .json file, an object of text, input_ids or messages, "
        "and of extra_key, cache_salt, tools and chat_template_kwargs if need be",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
