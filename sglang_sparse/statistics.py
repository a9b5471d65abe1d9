"""The policy's statistics in a file: a restarted server begins with what the last one learned.

The file is read once, at start, and written on the way: bytes are taken on the scheduler's thread,
and go to the disk on another one, so that no request waits for it.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from tree_placement.policy import SparsePolicy

logger = logging.getLogger(__name__)

FLAG = "--sparse-statistics"

IDLE_SECONDS = 5.0
"""Between two writes while nothing runs."""

BUSY_SECONDS = 60.0
"""Between two writes while requests run."""


def unmet_statistics(path: str) -> str | None:
    """Return one line that says why statistics cannot be kept at `path`, None where they can."""
    file = Path(path)
    if file.exists() and not file.is_file():
        return f"{FLAG}: got {path}, which is no file; need the path of a file; change it"
    try:
        with tempfile.TemporaryFile(dir=file.parent):
            return None
    except OSError as error:
        return (
            f"{FLAG}: got {path} ({error.strerror}: {file.parent}); need a folder that can be "
            "written; make it, or name another one"
        )


class StatisticsFile:
    """Where a policy's statistics are kept.

    Parameters
    ----------
    path
        The file; it is replaced as a whole, so that whoever reads it finds the old or the new one.
    policy
        Whose statistics they are. Only the thread that uses it calls this object.
    """

    def __init__(self, path: Path, policy: SparsePolicy) -> None:
        self.path = path
        self._policy = policy
        self._refused = False
        self._saved_prompts = 0
        self._saved_at = time.monotonic()
        self._writer = threading.Thread()

    def read(self) -> bool:
        """Let the policy take over the file's statistics; tell whether there were any.

        A file that cannot be read, or is not of this policy's settings, is logged in one line. It
        stays until the first write, and then beside that, as FILE.refused.
        """
        try:
            self._policy.restore(self.path.read_bytes())
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            self._refused = True
            logger.warning(
                "%s: got %s (%s); need what this server wrote; begins cold, keeps it as %s",
                *(FLAG, self.path, error, self._aside),
            )
            return False
        return True

    def save_if_due(self, prompts: int, *, idle: bool) -> None:
        """Write, on a thread of its own, if prompts came since the last time and it is long ago.

        `prompts` is how many there were; `idle` tells that nothing runs now.
        """
        waited = time.monotonic() - self._saved_at
        if waited < (IDLE_SECONDS if idle else BUSY_SECONDS) or prompts == self._saved_prompts:
            return
        if not self._writer.is_alive():
            self._begin_writing(prompts)

    def save(self, prompts: int) -> None:
        """Write, and return once that is done."""
        with suppress(RuntimeError):
            self._writer.join()
        if prompts != self._saved_prompts:
            self._begin_writing(prompts)
            self._writer.join()

    @property
    def _aside(self) -> Path:
        return self.path.with_name(f"{self.path.name}.refused")

    def _begin_writing(self, prompts: int) -> None:
        self._saved_prompts, self._saved_at = prompts, time.monotonic()
        self._writer = threading.Thread(target=self._write, args=(self._policy.statistics(),))
        self._writer.start()

    def _write(self, data: bytes) -> None:
        try:
            if self._refused:
                self._refused = False
                os.replace(self.path, self._aside)
            _replace(self.path, data)
        except OSError as error:
            logger.warning(
                "%s: got %s (%s); need a file that can be written; serves on without",
                *(FLAG, self.path, error),
            )


def _replace(path: Path, data: bytes) -> None:
    """Write a file such that after any interruption its old or its new content is there."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
