"""Bars on a terminal, plain lines on standard error elsewhere, never both."""

import io

import pytest
from rich.console import Console

from sglang_sparse.demo.progress import Display, display

PROMPTS = 12


def go_through(shown: Display) -> None:
    shown.reads()
    for server in ("stock", "sparse"):
        shown.starts(server)
        shown.is_ready(server, PROMPTS)
        for _ in range(PROMPTS):
            shown.answered(server)


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output = io.StringIO()
    with display(Console(file=output, force_terminal=False)) as shown:
        go_through(shown)
    assert output.getvalue() == ""
    assert capsys.readouterr().err.splitlines() == [
        "reading the model and the document",
        *(
            f"{server}: {news}"
            for server in ("stock", "sparse")
            for news in (
                "server starts",
                "server is ready",
                "5 of 12 prompts answered",
                "10 of 12 prompts answered",
                "12 of 12 prompts answered",
            )
        ),
    ]


def test_bars_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output = io.StringIO()
    with display(Console(file=output, force_terminal=True, force_interactive=True)) as shown:
        go_through(shown)
    last = output.getvalue().rpartition("model and document")[2]
    assert "\x1b[" in output.getvalue()
    for server in ("stock", "sparse"):
        assert f"{server}: prompts" in last
    assert last.count(f"{PROMPTS}/{PROMPTS}") == 2
    assert capsys.readouterr().err == ""
