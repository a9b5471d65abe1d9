"""A server that is started again knows where prompts part, and does so before the first has."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from sglang_sparse.demo.server import Server
from support.prompts import words

pytestmark = pytest.mark.server

FLAGS = ["--max-mamba-cache-size", "40", "--max-total-tokens", "60000"]
FLAGS += ["--radix-cache-backend", "sparse", "--sparse-states-per-path", "4"]
SHARED, LENGTH = 1100, 2500


def resumed_where_the_first_prompt_parts(server: Server, document: int) -> int:
    """Return the depth from which a document's second prompt resumes, having shared `SHARED`."""
    text = words(LENGTH, seed=900 + document)
    server.complete(text, 1)
    return server.complete(text[:SHARED] + words(200, seed=document), 1).cached_tokens


def end(server: Server) -> None:
    """End a server as an operator does."""
    (process,) = psutil.Process(server._guard.pid).children()
    os.kill(process.pid, signal.SIGTERM)
    server._guard.wait(120)


def started(model: Path, folder: Path, file: Path) -> Server:
    return Server(model, [*FLAGS, "--sparse-statistics", str(file)], log=folder / "log")


def test_the_second_start_is_warm(model_folder: Path, tmp_path: Path) -> None:
    """The control is the first start, with the same documents and no file yet."""
    file = tmp_path / "statistics"
    with started(model_folder, tmp_path, file) as server:
        server.wait_until_ready()
        assert "statistics cold" in server.log.read_text(errors="replace")
        assert resumed_where_the_first_prompt_parts(server, 0) < SHARED - 300
        for document in range(1, 12):
            resumed_where_the_first_prompt_parts(server, document)
        end(server)
    assert file.exists()
    with started(model_folder, tmp_path, file) as server:
        server.wait_until_ready()
        assert f"statistics warm from {file}" in server.log.read_text(errors="replace")
        assert resumed_where_the_first_prompt_parts(server, 0) == SHARED // 64 * 64


def test_a_torn_file_costs_one_line(model_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "statistics"
    file.write_bytes(b"TPSP\2\0\0\0 torn")
    with started(model_folder, tmp_path, file) as server:
        server.wait_until_ready()
        log = server.log.read_text(errors="replace")
        assert log.count(f"--sparse-statistics: got {file} (") == 1
        assert "statistics cold" in log
        assert server.complete(words(200, seed=1), 1).tokens
