"""`python -m sglang_sparse.explain`: ask a running server why a prompt resumes where it does."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sglang_sparse.explanation import Divergence, Explanation, Missed

EXPLAINED, BAD_INPUT, NO_ANSWER = 0, 2, 3


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
    import httpx

    try:
        content = given.prompt.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"error: --prompt: got {given.prompt} ({error}); need a UTF-8 file", file=sys.stderr)
        return BAD_INPUT
    body = content if given.prompt.suffix == ".json" else json.dumps({"text": content})
    headers = {"Authorization": f"Bearer {given.admin_key}"} if given.admin_key else {}
    try:
        answer = httpx.post(
            f"{given.url.rstrip('/')}/sparse/explain", content=body, headers=headers, timeout=60
        )
    except httpx.HTTPError as error:
        print(f"error: --url: got {given.url} ({error}); need a running server", file=sys.stderr)
        return NO_ANSWER
    if answer.status_code != httpx.codes.OK:
        print(f"error: the server answered {answer.status_code}: {answer.text}", file=sys.stderr)
        return BAD_INPUT if answer.status_code == httpx.codes.BAD_REQUEST else NO_ANSWER
    told = answer.json()
    print(json.dumps(told) if given.json else "\n".join(_lines(told)))
    return EXPLAINED


def _lines(told: Mapping[str, Any]) -> list[str]:
    """Return the explanation, with the text of the tokens that differ below their line."""
    lines = list(read(told).lines())
    texts = [repr(text) for text in told["divergence"]["texts"] if text is not None]
    if texts:
        lines.insert(5, f"  as text: {texts[0]}, not {' or '.join(texts[1:]) or 'the end'}")
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sglang_sparse.explain", description=__doc__)
    parser.add_argument(
        "--url",
        default="http://127.0.0.1:30000",
        help="the server's address (default: %(default)s)",
    )
    parser.add_argument(
        "--prompt",
        type=Path,
        required=True,
        metavar="FILE",
        help="the prompt's text; or, in a .json file, an object of text, input_ids or messages, "
        "and of extra_key, cache_salt, tools and chat_template_kwargs if need be",
    )
    parser.add_argument("--admin-key", help="the server's --admin-api-key, where it has one")
    parser.add_argument("--json", action="store_true", help="print the server's answer as it is")
    return parser


if __name__ == "__main__":
    sys.exit(main())
