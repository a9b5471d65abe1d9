"""A bar on the terminal that tells how far a long command is."""

from __future__ import annotations

import sys
from types import TracebackType

WIDTH = 32


class Progress:
    """Draws a bar on standard error, if that is a terminal, and takes it away at the end.

    Parameters
    ----------
    name
        What is going on.
    total
        Steps in all, >= 1.
    """

    def __init__(self, name: str, total: int) -> None:
        self._name = name
        self._total = total
        self._steps = 0
        self._drawn = -1
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def step(self) -> None:
        """Note that one more step is done; draws only where the bar gets longer."""
        self._steps += 1
        filled = WIDTH * self._steps // self._total
        if self._is_shown and filled != self._drawn:
            self._drawn = filled
            bar = "=" * filled + "." * (WIDTH - filled)
            line = f"\r{self._name:24} [{bar}] {self._steps:,}/{self._total:,}"
            print(line, end="", file=sys.stderr, flush=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_shown and self._drawn >= 0:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
