"""How far the demo is: bars on a terminal, plain lines on standard error elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

PROMPTS_PER_LINE = 5


class Display(Protocol):
    """What the demo tells while it runs; `server` is the name of the one that runs now."""

    def reads(self) -> None:
        """Tell that the model and the document are read."""

    def starts(self, server: str) -> None:
        """Tell that a server starts."""

    def is_ready(self, server: str, prompts: int) -> None:
        """Tell that a server answers, and how many prompts it will be asked."""

    def answered(self, server: str) -> None:
        """Tell that a server has answered one more prompt."""


@contextmanager
def display(console: Console) -> Iterator[Display]:
    """Yield bars where `console` is a terminal, else lines; the bars stay when the block ends."""
    if not console.is_interactive:
        yield Lines()
        return
    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield Bars(progress)


class Bars:
    """One bar a stage, on a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._stage: TaskID | None = None

    def reads(self) -> None:
        self._next("model and document", None)

    def starts(self, server: str) -> None:
        self._next(f"{server}: server starts", None)

    def is_ready(self, server: str, prompts: int) -> None:
        self._next(f"{server}: prompts", prompts)

    def answered(self, server: str) -> None:
        assert self._stage is not None
        self._progress.advance(self._stage)

    def _next(self, name: str, steps: int | None) -> None:
        if self._stage is not None and not self._progress.tasks[-1].finished:
            self._progress.update(self._stage, total=1, completed=1)
        self._stage = self._progress.add_task(name, total=steps)


class Lines:
    """One line a stage, and one every `PROMPTS_PER_LINE` prompts, on standard error."""

    def __init__(self) -> None:
        self._answered = self._prompts = 0

    def reads(self) -> None:
        self._print("reading the model and the document")

    def starts(self, server: str) -> None:
        self._print(f"{server}: server starts")

    def is_ready(self, server: str, prompts: int) -> None:
        self._answered, self._prompts = 0, prompts
        self._print(f"{server}: server is ready")

    def answered(self, server: str) -> None:
        self._answered += 1
        if self._answered % PROMPTS_PER_LINE == 0 or self._answered == self._prompts:
            self._print(f"{server}: {self._answered} of {self._prompts} prompts answered")

    def _print(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)
