"""The demo is interrupted or killed while it runs: no server, file or folder of it is left."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from sglang_sparse.demo.tiny_model import build_tiny_model, default_model_folder
from support.processes import members, sessions_below, shared_memory, wait_until

DEMO = [sys.executable, "-m", "sglang_sparse.demo"]
START_SECONDS = 240.0
END_SECONDS = 10.0
READS, STARTS, IS_READY = "reading", "stock: server starts", "stock: server is ready"
SERVER_PROCESSES = 4


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for the names of the sockets that SGLang makes in it."""
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        yield Path(folder)


@pytest.fixture
def demo(short_folder: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo that runs, with `short_folder` for its temporary files."""
    build_tiny_model(default_model_folder())
    # torch makes its cache's folder when it is imported.
    environment = {"TMPDIR": str(short_folder), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen(
        [*DEMO, f"--json={short_folder / 'figures.json'}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def wait_for(demo: subprocess.Popen[str], stage: str) -> set[int]:
    """Wait until the demo tells of a stage, and return the sessions of its servers then."""
    while not _line(demo.stderr).startswith(stage):
        pass
    if stage == READS:
        return set()
    wait_until(lambda: sessions_below(demo.pid), START_SECONDS)
    servers = sessions_below(demo.pid)
    wait_until(lambda: len(members(servers)) >= SERVER_PROCESSES, START_SECONDS)
    return servers


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    line = stream.readline()
    assert line, "the demo ended"
    return line


@pytest.mark.server
@pytest.mark.parametrize("stage", [READS, STARTS, IS_READY])
def test_ctrl_c_leaves_nothing_behind(
    demo: subprocess.Popen[str], stage: str, short_folder: Path
) -> None:
    servers = wait_for(demo, stage)
    mapped = shared_memory(members(servers))
    assert stage != IS_READY or mapped
    start = time.monotonic()
    demo.send_signal(signal.SIGINT)
    _, errors = demo.communicate(timeout=START_SECONDS)
    print(f"{stage}: ended in {time.monotonic() - start:.2f} s, shared memory {mapped}")
    assert time.monotonic() - start < END_SECONDS
    assert demo.returncode == 130
    assert errors == "interrupted: no server is left running, no file was written\n"
    assert members({demo.pid, *servers}) == set()
    assert [file for file in mapped if file.exists()] == []
    assert list(short_folder.iterdir()) == []


@pytest.mark.server
def test_a_killed_demo_leaves_no_server_behind(
    demo: subprocess.Popen[str], short_folder: Path
) -> None:
    """It is killed when SGLang's own processes exist, but have not asked for a death signal yet."""
    servers = wait_for(demo, STARTS)
    demo.kill()
    wait_until(lambda: not members({demo.pid, *servers}), END_SECONDS)
    # Its servers' output is what a killed demo cannot remove.
    assert [file.name for file in short_folder.glob("*/*")] == ["stock.log"]
