"""Every example runs as its docstring says, and takes the document from the cache."""

import os
import random
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_sparse.demo.server import Server

EXAMPLES = Path(__file__).parents[2] / "examples"
QUESTIONS = 3
LENGTH = 3_000
FEWEST_CACHED = LENGTH // 2


@pytest.fixture
def document(tmp_path: Path) -> Path:
    """Random letters, as many bytes as tokens."""
    file = tmp_path / "document.txt"
    file.write_text("".join(random.Random(7).choices("abcdefgh ", k=LENGTH)))
    return file


def run_example(name: str, *arguments: str, first_on_path: Path | None = None) -> str:
    """Run an example that prints short answers; return what it prints."""
    command = [sys.executable, str(EXAMPLES / name), *arguments, "--tokens", "4"]
    environment = os.environ | ({"PYTHONPATH": str(first_on_path)} if first_on_path else {})
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def cached_per_question(name: str, *arguments: str) -> list[int]:
    """Run an example; return the tokens from cache that it prints for each question."""
    printed = run_example(name, *arguments)
    return [int(tokens) for tokens in re.findall(r"^ *(\d+) tokens from cache", printed, re.M)]


@pytest.mark.server
def test_frontend_program_reads_the_document_once(sparse_server: Server, document: Path) -> None:
    sparse_server.flush_cache()
    cached = cached_per_question(
        "frontend_program.py", "--url", sparse_server.url, "--document", str(document)
    )
    assert len(cached) == QUESTIONS
    assert min(cached) >= FEWEST_CACHED


@pytest.mark.server
def test_openai_client_resumes_inside_the_document(sparse_server: Server, document: Path) -> None:
    sparse_server.flush_cache()
    cached = cached_per_question(
        "openai_client.py", "--url", sparse_server.url, "--document", str(document)
    )
    assert len(cached) == QUESTIONS
    assert cached[0] == 0
    assert min(cached[1:]) >= FEWEST_CACHED


@pytest.mark.server
def test_offline_engine_resumes_inside_the_document(model_folder: Path, document: Path) -> None:
    cached = cached_per_question(
        "offline_engine.py", "--model-path", str(model_folder), "--document", str(document)
    )
    assert len(cached) == QUESTIONS
    assert cached[0] == 0
    assert min(cached[1:]) >= FEWEST_CACHED


@pytest.mark.parametrize("hidden", [False, True], ids=["kernels as installed", "kernels hidden"])
def test_transformers_prefix_answers_as_cold(document: Path, tmp_path: Path, hidden: bool) -> None:
    if hidden:
        (tmp_path / "fla.py").write_text("raise ImportError")
    printed = run_example(
        "transformers_prefix.py",
        *("--document", str(document)),
        first_on_path=tmp_path if hidden else None,
    )
    answers = re.findall(r"^ *(\d+) tokens from cache  gap +(\d+)  same as cold", printed, re.M)
    assert len(answers) == QUESTIONS
    assert all(int(cached) > 0 and int(gap) <= LENGTH // 4 for cached, gap in answers)


@pytest.mark.parametrize(
    ("content", "states", "message"),
    [
        ("ab", "4", "nowhere to keep a state: give"),
        ("", "4", "nowhere to keep a state"),
        ("ab" * 100, "0", "nowhere to keep a state"),
        ("ab" * 100, "-1", "nowhere to keep a state"),
        (None, "4", r"--document: can.t open .*No such file"),
    ],
)
def test_transformers_prefix_tells_what_it_needs(
    content: str | None,
    states: str,
    message: str,
    model_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "document.txt"
    if content is not None:
        file.write_text(content)
    arguments = ["--model-path", str(model_folder), "--document", str(file), "--states", states]
    monkeypatch.setattr(sys, "argv", ["transformers_prefix.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / "transformers_prefix.py"), run_name="__main__")
    assert ended.value.code == 2
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize("name", sorted(file.name for file in EXAMPLES.glob("*.py")))
def test_an_example_is_short_and_helps(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) < 60
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert ended.value.code == 0
    assert "--document" in capsys.readouterr().out
