"""Ctrl-C and `kill`, turned into one orderly exit."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """A signal asked the process to end.

    Parameters
    ----------
    number
        The signal's.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.status = 128 + number


class Interrupts:
    """A context manager that raises `Interrupted` at the first signal, and at no later one.

    A second Ctrl-C therefore cannot stop the clean-up that the first one began.
    """

    def __init__(self) -> None:
        self._is_held = False
        self._pending: int | None = None
        self._is_raised = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._previous = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold a signal back to the end of the block, which must not be left halfway."""
        with self._hold(True):
            yield
        self._raise_pending()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Let signals through in a part of a held block that can be left at any point."""
        with self._hold(False):
            self._raise_pending()
            yield

    @contextmanager
    def _hold(self, is_held: bool) -> Iterator[None]:
        before, self._is_held = self._is_held, is_held
        try:
            yield
        finally:
            self._is_held = before

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._pending is None:
            self._pending = number
        if not self._is_held:
            self._raise_pending()

    def _raise_pending(self) -> None:
        if self._pending is not None and not self._is_raised:
            self._is_raised = True
            raise Interrupted(self._pending)
