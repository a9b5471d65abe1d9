"""However a command or its parent ends, nothing that the command started is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sglang_sparse.demo import guard
from support.processes import running, wait_until

SECONDS = 30.0

# One child in the session and one in its own, none minds SIGTERM; a semaphore in shared memory,
# and a file there that is not the guard's to remove.
COMMAND = """
import mmap, multiprocessing, os, signal, subprocess, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
semaphore = multiprocessing.get_context("spawn").Semaphore()
model = Path(sys.argv[2])
model.write_bytes(b"weights")
mapped = mmap.mmap(os.open(model, os.O_RDONLY), 0, prot=mmap.PROT_READ)
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
children = [subprocess.Popen(sleep), subprocess.Popen(sleep, start_new_session=True)]
told = [os.environ["TMPDIR"], "/dev/shm/sem." + semaphore._semlock.name.removeprefix("/")]
told += [str(os.getpid()), *(str(child.pid) for child in children)]
new = Path(sys.argv[1] + "-new")
new.write_text("\\n".join(told))
new.rename(sys.argv[1])
"""
WAITS = COMMAND + "time.sleep(600)\n"
ENDS_BADLY = COMMAND + "os._exit(7)\n"
PARENT = "import subprocess, sys; subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE).wait()"


class Started(NamedTuple):
    """What a command told: its temporary folder, its semaphore, and its processes."""

    folder: Path
    semaphore: Path
    processes: set[int]

    def is_gone(self) -> bool:
        numbers = {process.number for process in running()}
        return not (self.processes & numbers or self.folder.exists() or self.semaphore.exists())


@pytest.fixture
def model() -> Iterator[Path]:
    """A file in shared memory that the command maps and someone else owns."""
    file = Path(f"/dev/shm/model-{os.getpid()}")
    yield file
    file.unlink(missing_ok=True)


@pytest.fixture
def told(tmp_path: Path) -> Path:
    return tmp_path / "told"


def guarded(program: str, told: Path, model: Path) -> list[str]:
    command = [sys.executable, "-c", program, str(told), str(model)]
    return [sys.executable, "-I", guard.__file__, *command]


def started(told: Path) -> Started:
    wait_until(told.exists, SECONDS)
    folder, semaphore, *processes = told.read_text().split()
    return Started(Path(folder), Path(semaphore), {int(number) for number in processes})


@pytest.mark.parametrize(
    "end",
    [lambda guard: guard.stdin.close(), lambda guard: guard.send_signal(signal.SIGTERM)],
    ids=["standard input closes", "the guard is asked to end"],
)
def test_nothing_is_left_when_the_guard_ends(
    end: Callable[[subprocess.Popen[bytes]], None], told: Path, model: Path
) -> None:
    process = subprocess.Popen(guarded(WAITS, told, model), stdin=subprocess.PIPE)
    command = started(told)
    assert len(command.processes) == 3
    assert command.folder.exists()
    assert command.semaphore.exists()
    assert not command.is_gone()
    end(process)
    process.wait(SECONDS)
    assert command.is_gone()
    assert model.read_bytes() == b"weights"


def test_nothing_is_left_when_the_parent_is_killed(told: Path, model: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *guarded(WAITS, told, model)])
    command = started(told)
    parent.kill()
    parent.wait()
    wait_until(command.is_gone, SECONDS)


def test_a_command_that_ends_by_itself_leaves_no_process_and_tells_its_status(
    told: Path, model: Path
) -> None:
    process = subprocess.Popen(guarded(ENDS_BADLY, told, model), stdin=subprocess.PIPE)
    assert process.wait(SECONDS) == 7
    left = started(told)
    assert left.processes.isdisjoint(each.number for each in running())
    assert not left.folder.exists()
    left.semaphore.unlink(missing_ok=True)


def test_a_command_killed_by_a_signal_tells_which() -> None:
    program = "import os; os.kill(os.getpid(), 9)"
    command = [sys.executable, "-I", guard.__file__, sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.wait(SECONDS) == 128 + signal.SIGKILL
