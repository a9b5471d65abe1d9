"""`python -m sglang_sparse.demo`: one document, many questions, stock SGLang beside sparse."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import httpx
from rich.console import Console

from sglang_sparse.demo.arguments import Arguments, parse
from sglang_sparse.demo.comparison import Answer, Comparison, ask, warm_up
from sglang_sparse.demo.document import (
    InputError,
    Prompt,
    build_prompts,
    context_length,
    read_document,
    require_room,
)
from sglang_sparse.demo.interrupts import Interrupted, Interrupts
from sglang_sparse.demo.progress import Display, display
from sglang_sparse.demo.report import print_report, write_json
from sglang_sparse.demo.server import Server, ServerError
from sglang_sparse.options import BACKEND

IDENTICAL, DIFFERENT, BAD_INPUT, SERVER_FAILED = 0, 1, 2, 3
ROOM_FOR_KV = 2
FEWEST_KV_TOKENS = 16_384


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit status."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        with Interrupts() as interrupts:
            return _run(parse(arguments), interrupts)
    except Interrupted as interrupted:
        errors.print("interrupted: no server is left running, no file was written")
        return interrupted.status
    except InputError as error:
        errors.print(f"error: {error}", markup=False)
        return BAD_INPUT
    except ServerError as error:
        errors.print(f"error: {error}", markup=False)
        return SERVER_FAILED


def _run(given: Arguments, interrupts: Interrupts) -> int:
    console = Console()
    text = read_document(given.document)
    with _log_folder() as logs, display(console) as shown:
        shown.reads()
        model = _model(given.model_path)
        prompts = build_prompts(text, given.tokens, given.questions, _encoder(model))
        require_room(prompts, given.new_tokens, context_length(model))
        flags = _flags(prompts, given)
        visit = _Visit(model, prompts, given, logs, interrupts, shown)
        stock = visit.answers("stock", flags)
        sparse = visit.answers(BACKEND, [*flags, "--radix-cache-backend", BACKEND])
    comparisons = [Comparison(*each) for each in zip(prompts, stock, sparse, strict=True)]
    print_report(console, comparisons)
    if given.json is not None:
        write_json(given.json, comparisons, asdict(given))
    return IDENTICAL if all(each.is_identical for each in comparisons) else DIFFERENT


class _Visit:
    """Starts a server, asks it every prompt, and ends it, and shows how far it is."""

    def __init__(
        self,
        model: Path,
        prompts: Sequence[Prompt],
        given: Arguments,
        logs: Path,
        interrupts: Interrupts,
        shown: Display,
    ) -> None:
        self._model = model
        self._prompts = prompts
        self._given = given
        self._logs = logs
        self._interrupts = interrupts
        self._shown = shown

    def answers(self, name: str, flags: Sequence[str]) -> list[Answer]:
        """Return one server's answers, in the prompts' order.

        Raises
        ------
        ServerError
            Where it does not start, does not answer, or ends.
        """
        log = self._logs / f"{name}.log"
        self._shown.starts(name)
        with self._interrupts.held():
            server = Server(self._model, flags, log=log, port=self._given.port)
            try:
                with self._interrupts.released():
                    server.wait_until_ready()
                    warm_up(server, self._given.new_tokens)
                    self._shown.is_ready(name, len(self._prompts))
                    return ask(
                        server,
                        self._prompts,
                        self._given.new_tokens,
                        on_answer=lambda: self._shown.answered(name),
                    )
            except httpx.HTTPError as error:
                raise ServerError(
                    f"server {name}: {error}; need an answer; see {log}:\n{server.log_end()}"
                ) from None
            finally:
                server.stop()


@contextmanager
def _log_folder() -> Iterator[Path]:
    """Yield a folder for the servers' output; it stays where one fails."""
    folder = Path(tempfile.mkdtemp(prefix="sparse-demo-"))
    is_kept = False
    try:
        yield folder
    except ServerError:
        is_kept = True
        raise
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)


def _model(folder: Path | None) -> Path:
    if folder is not None:
        return folder
    # torch takes seconds to import, which --help and a wrong flag need not wait for.
    from sglang_sparse.demo.tiny_model import build_tiny_model, default_model_folder

    return build_tiny_model(default_model_folder())


def _encoder(model: Path) -> Callable[[str], Sequence[int]]:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"--model-path: got {model} ({reason}); need a folder with the model's tokenizer; "
            "add its files"
        ) from None
    # The document is longer than the prompts, and their length is checked with a message of ours.
    tokenizer.model_max_length = sys.maxsize
    return lambda text: [int(token) for token in tokenizer.encode(text, add_special_tokens=False)]


def _flags(prompts: Sequence[Prompt], given: Arguments) -> list[str]:
    """Return the flags of both servers: room for all KV, so that only states are scarce."""
    new = sum(len(prompt.tokens) - prompt.seen + given.new_tokens for prompt in prompts)
    tokens = max(ROOM_FOR_KV * new, FEWEST_KV_TOKENS)
    return ["--max-mamba-cache-size", str(given.slots), "--max-total-tokens", str(tokens)]


if __name__ == "__main__":
    sys.exit(main())
