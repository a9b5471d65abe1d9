"""The demo's command line, read into one record and checked."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sglang_sparse.demo.document import FEWEST_TOKENS, QUESTIONS, InputError, context_length
from sglang_sparse.demo.server import ServerError, require_free_port

EPILOG = (
    "exit status: 0 all outputs are identical, 1 one differs, 2 bad input, 3 a server failed, "
    "130 interrupted"
)


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What the user asked for; lengths in tokens."""

    model_path: Path | None
    document: Path | None
    tokens: int
    questions: int
    new_tokens: int
    slots: int
    port: int | None
    json: Path | None


def parse(arguments: Sequence[str] | None) -> Arguments:
    """Read the command line; exits with status 2 where argparse refuses it.

    Raises
    ------
    InputError
        On a number out of range, a port that is taken, or a folder that is not there or holds no
        model.
    """
    given = Arguments(**vars(_parser().parse_args(arguments)))
    _check_range("--tokens", given.tokens, FEWEST_TOKENS, 1 << 20)
    _check_range("--questions", given.questions, 1, len(QUESTIONS))
    _check_range("--new-tokens", given.new_tokens, 1, 4096)
    _check_range("--slots", given.slots, 8, 1 << 20)
    if given.model_path is not None:
        context_length(given.model_path)
    if given.port is not None:
        _check_range("--port", given.port, 1, 65535)
        try:
            require_free_port(given.port)
        except ServerError as error:
            raise InputError(str(error)) from None
    if given.json is not None and (given.json.is_dir() or not given.json.parent.is_dir()):
        raise InputError(
            f"--json: got {given.json}; need a file in a folder that exists; correct the path"
        )
    return given


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sglang_sparse.demo",
        description="Ask many questions about one document, first of stock SGLang, then of SGLang "
        "with sparse states, and compare what was cached, how fast it was, and every output.",
        epilog=EPILOG,
    )
    add = parser.add_argument
    add(
        "--model-path",
        type=Path,
        metavar="FOLDER",
        help="your own model (default: a tiny random one, made once and kept in the cache folder)",
    )
    add(
        "--document",
        type=Path,
        metavar="FILE",
        help="UTF-8 text (default: the help topics that come with Python)",
    )
    add(
        "--tokens",
        type=int,
        default=6000,
        help="how much of the document to use, in tokens (default: %(default)s)",
    )
    add(
        "--questions",
        type=int,
        default=len(QUESTIONS),
        help="questions at the document's end; four at earlier depths and a repeat are added "
        "(default: %(default)s)",
    )
    add(
        "--new-tokens",
        type=int,
        default=8,
        help="length of each answer, in tokens (default: %(default)s)",
    )
    add(
        "--slots",
        type=int,
        default=32,
        help="room for recurrent states, in states: SGLang's --max-mamba-cache-size "
        "(default: %(default)s)",
    )
    add(
        "--port",
        type=int,
        help="port of both servers, one after the other (default: one that is free)",
    )
    add("--json", type=Path, metavar="FILE", help="also write all figures there (default: no file)")
    return parser


def _check_range(flag: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InputError(
            f"{flag}: got {value}; need a whole number from {low} to {high}; change it"
        )
