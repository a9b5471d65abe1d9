"""The demo as a user runs it: in a process of its own, with real servers."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_sparse.demo.tiny_model import build_tiny_model, default_model_folder

DEMO = [sys.executable, "-m", "sglang_sparse.demo"]
TOKENS, QUESTIONS = 1500, 3
START_SECONDS = 240.0
WHOLE_SECONDS = 1100.0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, *arguments], capture_output=True, text=True, timeout=WHOLE_SECONDS
    )


@pytest.mark.server
@pytest.mark.timeout(WHOLE_SECONDS + 60)
def test_the_demo_compares_both_servers(tmp_path: Path) -> None:
    document, figures = tmp_path / "document.txt", tmp_path / "figures.json"
    document.write_text(" ".join(str(number * number) for number in range(1000)))
    flags = [f"--document={document}", f"--json={figures}"]
    flags += [f"--tokens={TOKENS}", f"--questions={QUESTIONS}", "--new-tokens=4"]
    done = run(*flags)
    assert done.returncode == 0, done.stderr
    written = json.loads(figures.read_text())
    prompts = written["prompts"]
    assert len(prompts) == QUESTIONS + 5
    assert f"outputs identical: {len(prompts)}/{len(prompts)}" in done.stdout
    assert all(prompt["stock"]["output"] == prompt["sparse"]["output"] for prompt in prompts)
    assert all(len(prompt["sparse"]["output"]) == 4 for prompt in prompts)
    assert written["largest_difference"] <= 1e-5
    assert written["totals"]["sparse"]["cached"] > written["totals"]["stock"]["cached"]
    assert all(prompt["sparse"]["cached"] <= prompt["seen"] for prompt in prompts)
    assert max(prompt["sparse"]["states"] for prompt in prompts) <= written["settings"]["slots"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["document.txt", "figures.json"]


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for the names of the sockets that SGLang makes in it."""
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        yield Path(folder)


@pytest.fixture
def interrupted(
    short_folder: Path, tmp_path: Path
) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A demo that got Ctrl-C while its server started, and the ids of the server's processes."""
    build_tiny_model(default_model_folder())
    # torch makes its cache's folder when it is imported.
    environment = {"TMPDIR": str(short_folder), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    process = subprocess.Popen(
        [*DEMO, f"--json={short_folder / 'figures.json'}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        server = _first_child(process.pid)
        _wait_for_members(server, 2)
        process.send_signal(signal.SIGINT)
        yield process, [process.pid, server]
    finally:
        process.terminate()
        process.communicate(timeout=START_SECONDS)


@pytest.mark.server
def test_ctrl_c_leaves_nothing_behind(
    interrupted: tuple[subprocess.Popen[str], list[int]], short_folder: Path
) -> None:
    process, groups = interrupted
    _, errors = process.communicate(timeout=START_SECONDS)
    assert process.returncode == 130
    assert errors == "interrupted: no server is left running, no file was written\n"
    assert [member for group in groups for member in _members(group)] == []
    assert list(short_folder.iterdir()) == []


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run(f"--port={port}")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: --port: got {port} (Address already in use); "
        "need a free port; choose another one\n"
    )


def test_a_document_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = run(f"--document={tmp_path / 'missing'}")
    assert done.returncode == 2
    assert done.stderr.startswith("error: --document: got ")
    assert done.stderr.count("\n") == 1


def _first_child(parent: int) -> int:
    """Wait until a process has a child that leads a process group, and return that one."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        for process, fields in _processes():
            if int(fields[1]) == parent and int(fields[2]) == process:
                return process
        time.sleep(0.1)
    raise TimeoutError(f"process {parent} started no server within {START_SECONDS:.0f} s")


def _wait_for_members(group: int, count: int) -> None:
    """Wait until a server has started some of its own processes."""
    end = time.monotonic() + START_SECONDS
    while len(_members(group)) < count:
        if time.monotonic() > end:
            raise TimeoutError(f"server {group} started no process within {START_SECONDS:.0f} s")
        time.sleep(0.1)


def _members(group: int) -> list[int]:
    """Return the processes of a group that still run."""
    return [
        process
        for process, fields in _processes()
        if int(fields[2]) == group and fields[0] not in ("Z", "X")
    ]


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Yield each process with the fields of its `stat` from the state on."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            yield int(folder.name), stat.rpartition(")")[2].split()
