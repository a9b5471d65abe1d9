"""Processes of a session, and the shared memory they have mapped, as /proc tells."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process that runs, its parent, and its session."""

    number: int
    parent: int
    session: int


def running() -> Iterator[Process]:
    """Yield the processes of this machine, but not those that have ended already."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                if stat[0] not in ("Z", "X"):
                    yield Process(int(folder.name), int(stat[1]), int(stat[3]))


def sessions_below(parent: int) -> set[int]:
    """Return the sessions that children of a process lead."""
    return {each.number for each in running() if (each.parent, each.session) == (parent, each[0])}


def members(sessions: set[int]) -> set[int]:
    """Return the processes of some sessions."""
    return {each.number for each in running() if each.session in sessions}


def shared_memory(processes: set[int]) -> set[Path]:
    """Return the files of /dev/shm that some processes have mapped, by whatever name."""
    inodes = set()
    for process in processes:
        with suppress(OSError):
            for line in Path(f"/proc/{process}/maps").read_text().splitlines():
                inodes.add(int(line.split()[4]))
    device = os.stat("/dev/shm").st_dev
    files = [(file, file.stat()) for file in Path("/dev/shm").iterdir()]
    return {file for file, stat in files if stat.st_dev == device and stat.st_ino in inodes}


def wait_until(condition: Callable[[], object], seconds: float) -> None:
    """Return once the condition holds; raise `TimeoutError` where it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:.0f} s")
        time.sleep(0.05)
