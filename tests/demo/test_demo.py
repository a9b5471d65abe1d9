"""The demo as a user runs it: in a process of its own, with real servers."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = [sys.executable, "-m", "sglang_sparse.demo"]
TOKENS, QUESTIONS = 1500, 3
WHOLE_SECONDS = 1100.0
PROGRESS = ["reading the model and the document"] + [
    f"{server}: {news}"
    for server in ("stock", "sparse")
    for news in (
        "server starts",
        "server is ready",
        "5 of 8 prompts answered",
        "8 of 8 prompts answered",
    )
]


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
    assert done.stderr.splitlines() == PROGRESS
    assert "\x1b" not in done.stdout
    written = json.loads(figures.read_text())
    prompts = written["prompts"]
    assert len(prompts) == QUESTIONS + 5
    assert f"outputs identical: {len(prompts)}/{len(prompts)}" in done.stdout
    assert all(prompt["stock"]["output"] == prompt["sparse"]["output"] for prompt in prompts)
    assert all(len(prompt["sparse"]["output"]) == 4 for prompt in prompts)
    assert written["largest_difference"] <= 1e-5
    assert written["totals"]["sparse"]["cached"] > written["totals"]["stock"]["cached"]
    for group in {prompt["group"] for prompt in prompts}:
        of_group = [prompt for prompt in prompts if prompt["group"] == group]
        gaps = [sum(each[name]["gap"] for each in of_group) for name in ("stock", "sparse")]
        assert gaps[1] <= gaps[0], f"{group}: more computed again than by stock"
    assert all(prompt["sparse"]["cached"] <= prompt["seen"] for prompt in prompts)
    assert max(prompt["sparse"]["states"] for prompt in prompts) <= written["settings"]["slots"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["document.txt", "figures.json"]


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


def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = run(f"--model-path={tmp_path / 'missing'}")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: --model-path: got {tmp_path / 'missing'} (config.json: No such file or "
        "directory); need the folder of a Hugging Face model; correct the path\n"
    )
