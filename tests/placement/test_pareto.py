"""`python -m tree_placement pareto`: its tables are the replay's, and its figures can be read."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.image import imread
from test_figures import of, overlapping_texts

from tree_placement.cli.main import main
from tree_placement.figures import overlaps, pareto, render
from tree_placement.figures.style import COLUMN, Picture, drawn
from tree_placement.replay import Trace, trace_of_prompts

BLOCK = 16
POLICIES = ("sparse", "stock", "offline_plan", "block_512")
SLOTS = (4, 32)
FILES = ["overlaps.csv", "overlaps.png", "pareto.csv", "pareto.png", "trees.csv", "trees.png"]


def documents_and_questions() -> Trace:
    """Six documents, asked at their end and at two earlier depths."""
    draw = random.Random(5)

    def words(count: int) -> list[int]:
        return [draw.randrange(1000) for _ in range(count)]

    texts = [words(draw.randrange(600, 1500)) for _ in range(6)]
    prompts = []
    for _ in range(48):
        text = draw.choice(texts)
        depth = draw.choice((len(text), len(text), len(text) // 2, len(text) // 3))
        prompts.append(text[:depth] + words(draw.randrange(30, 300)))
    return trace_of_prompts(prompts, BLOCK)


TRACE = documents_and_questions()


def written(folder: Path, name: str = "asked_blk16.jsonl") -> Path:
    path = folder / name
    lines = [{"input_length": each.length, "h": each.blocks} for each in TRACE.requests]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pareto")
    arguments = ["--trace", written(folder), "--slots", *SLOTS, "--policy", *POLICIES]
    arguments += ["--out", folder / "out", "--format", "png"]
    assert main(["pareto", *map(str, arguments)]) == 0
    return folder / "out"


def test_every_file_is_there_and_no_other(out: Path) -> None:
    assert sorted(path.name for path in out.iterdir()) == FILES


def test_the_table_is_the_replay_s(out: Path, tmp_path: Path, capsys) -> None:
    arguments = ["--trace", written(tmp_path), "--slots", *SLOTS, "--policy", *POLICIES]
    capsys.readouterr()
    assert main(["replay", *map(str, arguments), "--json"]) == 0
    reports = {
        (each["policy"], each["slots"]): each
        for each in map(json.loads, capsys.readouterr().out.splitlines())
    }
    table = rows(out / "pareto.csv")
    assert len(table) == len(reports) == len(POLICIES) * len(SLOTS)
    for row in table:
        report = reports[row["policy"], int(row["slots"])]
        assert row["trace"] == "asked"
        for column in ("share_of_tokens", "share_of_dense_oracle"):
            assert float(row[column]) == pytest.approx(report[column], abs=1e-6)
        assert int(row["states_written"]) == report["states_written"]


def test_states_are_as_many_as_their_places(out: Path) -> None:
    table = rows(out / "trees.csv")
    assert {row["shape"] for row in table} <= {"star", "comb", "general"}
    for shape in {row["shape"] for row in table}:
        nodes = [row for row in table if row["shape"] == shape]
        assert [int(row["node"]) for row in nodes] == list(range(len(nodes)))
        assert sum(float(row["weight"]) for row in nodes) == pytest.approx(1.0, abs=1e-4)
        states = [int(within) for row in nodes for within in row["states"].split()]
        assert 3 <= len(states) <= SLOTS[1]


@pytest.mark.parametrize("name", ["pareto", "overlaps", "trees"])
def test_each_figure_is_a_column_wide_and_not_blank(out: Path, name: str) -> None:
    pixels = imread(out / f"{name}.png")
    assert pixels.shape[1] == pytest.approx(300 * COLUMN, abs=1)
    ink = (pixels[:, :, :3] < 0.9).any(axis=2)
    assert 0.01 < ink.mean() < 0.5
    assert not any(edge.any() for edge in (ink[0], ink[-1], ink[:, 0], ink[:, -1]))


def panels(count: int) -> list[pareto.Panel]:
    names = ("sparse", "offline_plan", "stock", "marconi", "dp_2", "dp_8")
    return [
        pareto.Panel(
            f"trace {number}",
            tuple(
                pareto.Curve(name, (16, 64, 256), (0.1 * place, 0.1 * place + 0.2, 0.9))
                for place, name in enumerate(names)
            ),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_curves_are_the_shares_and_texts_do_not_overlap(count: int) -> None:
    figure = drawn(Picture("pareto", lambda: pareto.draw(panels(count))))
    assert overlapping_texts(figure) == []
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == [each.trace for each in panels(count)]
    lines = {line.get_label(): line.get_ydata() for line in shown[-1].get_lines()}
    assert list(lines["offline plan"]) == pytest.approx([0.1, 0.3, 0.9])
    assert list(lines["marconi"]) == pytest.approx([0.3, 0.5, 0.9])
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(legend) == ["marconi", "offline plan", "other rules", "sparse", "stock"]


def test_bars_are_the_shares_of_distances() -> None:
    near, far = np.array([0, 5, 16, 4000]), np.array([100, 4000, 4001, 70_000])
    figure = drawn(
        Picture("overlaps", lambda: overlaps.draw([overlaps.Distances("t", near, far)] * 2))
    )
    assert overlapping_texts(figure) == []
    for axes, distances in zip(figure.axes, (near, far, near, far), strict=True):
        shares, edges, _ = axes.patches[0].get_data()
        assert shares.sum() == pytest.approx(1.0)
        for low, high, share in zip([-np.inf, *edges[1:]], edges[1:], shares, strict=False):
            assert share == ((distances >= low) & (distances < high)).mean()
    assert figure.axes[0].patches[0].get_data().values[0] == 0.5
    labels = [label.get_text() for label in figure.axes[-1].get_xticklabels()]
    assert labels == ["16", "256", "4k", "64k"]


def test_the_same_bytes_each_time() -> None:
    figure = Picture("pareto", lambda: pareto.draw(panels(2)))
    assert render(figure, "pdf") == render(figure, "pdf")
    assert render(figure, "svg") != render(of(pareto.draw(panels(3))), "svg")


def failed(capsys, *arguments: object) -> str:
    assert main(["pareto", *map(str, arguments)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert output.err.count("\n") == 1
    return output.err


def test_bad_input_is_one_line(tmp_path: Path, capsys, monkeypatch) -> None:
    trace, out = ["--trace", written(tmp_path)], ["--out", tmp_path / "out"]
    assert "policy: got best" in failed(capsys, *trace, *out, "--policy", "best")
    assert "slots: got -1" in failed(capsys, *trace, *out, "--slots", -1)
    assert "--limit: got 0" in failed(capsys, *trace, *out, "--limit", 0)
    assert "--trees-after: got 0" in failed(capsys, *trace, *out, "--trees-after", 0)
    assert "--out: got /dev/null/x" in failed(capsys, *trace, "--out", "/dev/null/x")
    both = ["--trace", written(tmp_path), written(tmp_path, "asked.jsonl")]
    assert "--trace: got asked twice" in failed(capsys, *both, *out)
    other = written(tmp_path, "asked_blk32.jsonl")
    assert "block ids of 32 tokens" in failed(capsys, "--trace", other, *out)
    monkeypatch.chdir(tmp_path)
    assert "--trace: got none" in failed(capsys, *out)
    assert not (tmp_path / "out").exists()


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path, capsys, monkeypatch) -> None:
    import tree_placement

    for name in [name for name in sys.modules if name.startswith("tree_placement.figures")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(tree_placement, "figures")
    monkeypatch.setattr(sys, "meta_path", [NoMatplotlib(), *sys.meta_path])
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    error = failed(capsys, "--trace", written(tmp_path), "--out", tmp_path / "out")
    assert "pip install 'sglang-sparse[figures]'" in error


class NoMatplotlib:
    """Finds no module of that name."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named {name!r}", name="matplotlib")


def test_an_interrupt_leaves_the_old_files(tmp_path: Path) -> None:
    pipe, out = tmp_path / "t.jsonl", tmp_path / "out"
    os.mkfifo(pipe)
    out.mkdir()
    (out / "pareto.csv").write_text("old")
    command = [sys.executable, "-m", "tree_placement", "pareto", "--trace", pipe, "--out", out]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        lines = pipe.open("w")
        os.kill(process.pid, signal.SIGINT)
        assert process.stderr is not None
        rest = process.stderr.read()
        lines.close()
    assert process.returncode == 130
    assert rest.splitlines() == ["interrupted: no file is left half-written"]
    assert [path.name for path in out.iterdir()] == ["pareto.csv"]
    assert (out / "pareto.csv").read_text() == "old"
