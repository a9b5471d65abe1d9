"""Runs a command until standard input closes, then ends it with all that it started.

    python guard.py COMMAND [ARGUMENT...]

Whoever starts the guard holds the other end of its standard input, which closes however that
process ends, killed included. A death signal (`PR_SET_PDEATHSIG`) would reach the command alone,
and each of the command's own processes only once that has asked for one.

The guard adopts every process that loses its parent, so nothing that the command started outlives
the guard. SGLang answers SIGTERM within 5 to 8 seconds, has nothing to save, and keeps files in
/dev/shm and in the temporary folder all the same: the guard kills, and removes these files.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

PR_SET_CHILD_SUBREAPER = 36
SHARED_MEMORY = Path("/dev/shm")
# Files by others lie there too, a model that the command maps among them.
SHARED_MEMORY_NAMES = ("sem.mp-", "sglang_loads_")


def main(command: Sequence[str]) -> int:
    """Run `command` and return its exit status, 0 where standard input closed first.

    The command has no standard input, and a temporary folder of its own.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _exit)
    with tempfile.TemporaryDirectory(prefix="sparse-", ignore_cleanup_errors=True) as folder:
        try:
            return _run(command, {**os.environ, "TMPDIR": folder})
        finally:
            _end_descendants()


def _exit(number: int, frame: FrameType | None) -> None:
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
    ended = os.pidfd_open(child.pid)
    readable, _, _ = select.select([sys.stdin, ended], [], [])
    if ended not in readable:
        return 0
    status = child.wait()
    return status if status >= 0 else 128 - status


def _end_descendants() -> None:
    """Kill every descendant, wait until it is gone, and unlink the shared memory it has mapped."""
    mapped: set[tuple[int, int]] = set()
    while descendants := list(_descendants(os.getpid())):
        for process in descendants:
            mapped |= _mapped_files(process)
        for process in descendants:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        # Parents come first, so that each process is the guard's own child by its turn.
        for process in descendants:
            with suppress(ChildProcessError):
                os.waitpid(process, 0)
    for file in SHARED_MEMORY.iterdir():
        if file.name.startswith(SHARED_MEMORY_NAMES):
            with suppress(FileNotFoundError):
                status = file.stat()
                if (status.st_dev, status.st_ino) in mapped:
                    file.unlink()


def _descendants(ancestor: int) -> Iterator[int]:
    """Yield a process's children, then theirs, and so on."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(folder.name))
    generation = children.get(ancestor, [])
    while generation:
        yield from generation
        generation = [child for parent in generation for child in children.get(parent, [])]


def _mapped_files(process: int) -> set[tuple[int, int]]:
    """Return device and inode of each file that a process has mapped.

    The path in `maps` would not do: glibc makes a semaphore under another name and renames it.
    """
    try:
        lines = Path(f"/proc/{process}/maps").read_text().splitlines()
    except OSError:
        return set()
    files = {tuple(line.split(maxsplit=5)[3:5]) for line in lines}
    return {
        (os.makedev(*(int(part, 16) for part in device.split(":"))), int(inode))
        for device, inode in files
        if inode != "0"
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
