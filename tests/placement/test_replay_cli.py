"""`python -m tree_placement replay`: figures, certificate, input, and one line on what is bad."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from replay_checker import checked_hits
from test_replay import GRID, random_trace

from tree_placement.cli.main import main
from tree_placement.replay import Trace, read_trace, trace_of_prompts
from tree_placement.replay.foresight import upper_bound
from tree_placement.replay.simulator import Budget

TRACE = random_trace(9, requests=80)
SIZES = ["--block", str(TRACE.block), "--grid", str(GRID)]


def as_runs(ids: tuple[int, ...]) -> list[object]:
    """Ids, with what rises by one as inclusive runs."""
    runs: list[list[int]] = []
    for block in ids:
        if runs and block == runs[-1][1] + 1:
            runs[-1][1] = block
        else:
            runs.append([block, block])
    return [first if first == last else [first, last] for first, last in runs]


def written(path: Path, trace: Trace) -> Path:
    lines = [
        json.dumps({"input_length": each.length, "h": as_runs(each.blocks)})
        for each in trace.requests
    ]
    text = "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def replayed(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict]:
    assert main(["replay", *map(str, arguments), "--json"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    return [json.loads(line) for line in output.out.splitlines()]


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_block_ids_are_read_as_written(tmp_path, name: str) -> None:
    assert read_trace(written(tmp_path / name, TRACE), TRACE.block) == TRACE


def test_mooncake_s_own_lines(tmp_path) -> None:
    path = tmp_path / "mooncake.jsonl"
    lines = [
        {"timestamp": 0, "input_length": 1100, "output_length": 9, "hash_ids": [0, 1, 2]},
        {"timestamp": 2500, "input_length": 1024, "output_length": 9, "hash_ids": [0, 1]},
        {"timestamp": 2500, "input_length": 700, "output_length": 9, "hash_ids": [0]},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    requests = read_trace(path, 512).requests
    assert [request.blocks for request in requests] == [(0, 1), (0, 1), (0,)]
    assert [request.time for request in requests] == [0.0, 2.5, 2.5]


def test_figures_and_certificate_agree(tmp_path, capsys) -> None:
    file, certificate = written(tmp_path / "t.jsonl", TRACE), tmp_path / "c.jsonl"
    arguments = ["--trace", file, *SIZES, "--slots", 6, "--policy", "gap_eb"]
    (report,) = replayed(capsys, *arguments, "--certificate", certificate)
    lines = certificate.read_text().splitlines()
    hits = checked_hits(TRACE, GRID, 6, lines)
    dense = upper_bound(TRACE, Budget(grid=GRID))
    assert report["hit_tokens"] == sum(hits) > 0
    assert report["share_of_tokens"] == sum(hits) / TRACE.tokens
    assert report["share_of_dense_oracle"] == sum(hits) / dense
    assert report["states_written"] == sum(len(json.loads(line)["written"]) for line in lines)
    for parts in (report["by_shape"], report["by_depth"]):
        assert sum(part["hit_tokens"] for part in parts.values()) == sum(hits)
    assert sum(part["requests"] for part in report["by_shape"].values()) == 80


def test_a_row_for_each_policy_and_number_of_slots(tmp_path, capsys) -> None:
    file = written(tmp_path / "t.jsonl", TRACE)
    policies = ["stock", "sparse", "dense", "offline_plan", "upper_bound"]
    arguments = ["--trace", file, *SIZES, "--slots", 4, 8, "--policy", *policies]
    reports = replayed(capsys, *arguments)
    found = {(each["policy"], each["slots"]): each["share_of_dense_oracle"] for each in reports}
    assert len(found) == len(reports) == 9
    assert found["dense", None] == 1.0
    for slots in (4, 8):
        assert found["offline_plan", slots] <= found["upper_bound", slots] <= 1.0
    assert main(["replay", *map(str, arguments)]) == 0
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 10
    assert table[0].split()[:2] == ["policy", "slots"]


def test_the_first_requests_only(tmp_path, capsys) -> None:
    file = written(tmp_path / "t.jsonl", TRACE)
    (report,) = replayed(capsys, "--trace", file, *SIZES, "--limit", 7)
    assert report["requests"] == 7


def test_documents_are_asked_in_turns(tmp_path, capsys) -> None:
    file, certificate = tmp_path / "documents.jsonl", tmp_path / "c.jsonl"
    documents = [("first " * 40, ["a?", "b?", "c?"]), ("second " * 40, ["a?"])]
    file.write_text(
        "\n".join(json.dumps({"input": text, "instructions": asked}) for text, asked in documents)
    )
    arguments = ["--documents", file, *SIZES, "--slots", 64, "--certificate", certificate]
    (report,) = replayed(capsys, *arguments, "--policy", "tail_192")
    order = [(0, "a?"), (1, "a?"), (0, "b?"), (0, "c?")]
    prompts = [f"{documents[document][0]}\n\n{question}".encode() for document, question in order]
    trace = trace_of_prompts(prompts, TRACE.block)
    assert report["tokens"] == trace.tokens
    assert any(checked_hits(trace, GRID, 64, certificate.read_text().splitlines()))


def test_a_tokenizer_of_hugging_face(tmp_path, capsys) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = {"first": 0, "a": 1, "?": 2}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    file = tmp_path / "documents.jsonl"
    file.write_text(json.dumps({"input": "first " * 40, "instructions": ["a?", "a a?"]}))
    (report,) = replayed(capsys, "--documents", file, "--tokenizer", tmp_path, "--block", 4)
    assert report["tokens"] == 2 * 40 + 2 + 3


GOOD = '{"input_length": 8, "h": [0, 1]}'


@pytest.mark.parametrize(
    ("content", "extra", "error"),
    [
        ("", [], "trace: got no request; need at least one"),
        ("{", [], "line 1: got {; need a request of block ids or of Mooncake's"),
        ('{"input_length": 8}', [], "line 1"),
        ('{"input_length": 8.0, "h": [0, 1]}', [], "line 1"),
        ('{"input_length": 8, "h": [[0, 1, 2]]}', [], "line 1"),
        ('{"input_length": 8, "h": [[3, 2], 0, 1]}', [], "line 1"),
        ("[" * 100_000, [], "line 1"),
        ('{"input_length": 8, "h": [0]}', [], "line 1: got 1 block ids of 4 tokens; need 2"),
        (
            '{"input_length": 64, "h": [[1, 99999999999]]}',
            [],
            "line 1: got 99999999999 block ids of 4 tokens; need 16 for 64 tokens; name the",
        ),
        (
            f'{{"input_length": 4000000000000, "h": [[1, {10**12}]]}}',
            [],
            "line 1: got 1000000000000 block ids; need at most 16777216; drop the line",
        ),
        (f'{{"input_length": 4, "h": [{2**63}]}}', [], "block id: got one beyond 64 bits; need"),
        (f'{{"input_length": 4, "h": [[0, {2**64}]]}}', [], f"line 1: got {2**64 + 1} block ids"),
        (f'{{"input_length": {10**30}, "h": []}}', [], f"input_length: got {10**30}; need at most"),
        ('{"input_length": 0, "h": []}', [], "line 1: input_length: got 0; need a whole number"),
        (f'{GOOD}\n{{"input_length": 8, "h": [1, 0]}}', [], "different ids before it"),
        ('{"input_length": 8, "h": [0, -1]}', [], "block id: got -1"),
        (GOOD, ["--slots", -1], "slots: got -1; need a whole number >= 0"),
        (GOOD, ["--grid", 0], "grid: got 0"),
        (GOOD, ["--block", 0], "block: got 0"),
        (GOOD, ["--limit", 0], "--limit: got 0"),
        (GOOD, ["--kv-tokens", 7], "KV: got a prompt of 8 tokens; need at most 7"),
        (GOOD, ["--policy", "best"], "policy: got best; need one of none, dense"),
        (GOOD, ["--policy", "block_N"], "policy: got block_N; need one of none, dense"),
        (GOOD, ["--policy", "gap_x"], "sparse, offline_plan, upper_bound; correct the name"),
        (GOOD, ["--chunk", 0], "--chunk: got 0; need a whole number >= 1"),
        (GOOD, ["--grid", 10**20], f"grid: got {10**20}; need at most"),
        (GOOD, ["--slots", 1, 2, "--certificate", "c"], "--certificate: got 2 runs"),
        (
            GOOD,
            ["--policy", "upper_bound", "--certificate", "c"],
            "--certificate: got upper_bound; need a policy, which serves each request; leave it",
        ),
        (GOOD, ["--certificate", "/dev/null/c"], "--certificate: got /dev/null"),
        (GOOD, ["--certificate", "/dev/null"], "--certificate: got /dev/null; need a file to"),
        (GOOD, ["--certificate", "/proc/c"], "--certificate: got /proc; need a folder to write to"),
        (GOOD, ["--certificate", "."], "--certificate: got .; need a file to write; name another"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, content: str, extra: list, error: str) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(content)
    assert main(["replay", "--trace", str(file), "--block", "4", *map(str, extra)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert error in output.err
    assert output.err.count("\n") == 1


@pytest.fixture
def no_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read or served before all that is asked for is known to be good."""

    def served(*_: object) -> None:
        raise AssertionError("the trace was read")

    monkeypatch.setattr("tree_placement.cli.replay._trace", served)


def test_the_guard_on_replays_is_one(tmp_path, no_replay) -> None:
    with pytest.raises(AssertionError, match="the trace was read"):
        main(["replay", "--trace", str(tmp_path)])


@pytest.mark.parametrize(
    "extra",
    [
        ["--policy", "stock", "best"],
        ["--policy", "dense", "--slots", 4, -1],
        ["--slots", 4, -1],
        ["--chunk", 0],
        ["--limit", 0],
        ["--kv-tokens", 0],
    ],
)
def test_what_would_end_a_later_replay_is_refused_first(
    tmp_path, capsys, no_replay, extra: list
) -> None:
    assert main(["replay", "--trace", str(tmp_path / "t.jsonl"), *map(str, extra)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("source", ["--trace", "--documents"])
@pytest.mark.parametrize("way", ["itself", "symlink", "hard link", "by another path"])
def test_a_certificate_does_not_replace_what_is_read(
    tmp_path, capsys, no_replay, source: str, way: str
) -> None:
    file, certificate = tmp_path / "t.jsonl", tmp_path / "c.jsonl"
    file.write_text(GOOD)
    if way == "symlink":
        certificate.symlink_to(file)
    elif way == "hard link":
        os.link(file, certificate)
    else:
        certificate = file if way == "itself" else tmp_path / "." / ".." / tmp_path.name / file.name
    assert main(["replay", source, str(file), "--certificate", str(certificate)]) == 2
    error = f"--certificate: got {certificate}, which is read; need another file; name another"
    assert error in capsys.readouterr().err
    assert file.read_text() == GOOD


def test_a_certificate_makes_no_folders(tmp_path, capsys, no_replay) -> None:
    certificate = tmp_path / "new" / "c.jsonl"
    assert main(["replay", "--trace", "t.jsonl", "--certificate", str(certificate)]) == 2
    error = f"--certificate: got {certificate}; need a file in a folder that is there; make"
    assert error in capsys.readouterr().err
    assert not certificate.parent.exists()


@pytest.mark.parametrize("content", ["{}", '{"input": "a", "instructions": [1]}', "[]", "x"])
def test_other_documents_are_refused(tmp_path, capsys, content: str) -> None:
    file = tmp_path / "d.jsonl"
    file.write_text(content)
    assert main(["replay", "--documents", str(file)]) == 2
    assert "line 1: got something else" in capsys.readouterr().err
    assert main(["replay", "--documents", str(file), "--tokenizer", "none"]) == 2
    assert "--tokenizer: got none; need bytes, or a folder" in capsys.readouterr().err


def test_an_interrupt_leaves_the_old_certificate(tmp_path) -> None:
    pipe, certificate = tmp_path / "t.jsonl", tmp_path / "c.jsonl"
    os.mkfifo(pipe)
    certificate.write_text("old")
    arguments = ["--trace", pipe, *SIZES, "--certificate", certificate]
    command = [sys.executable, "-m", "tree_placement", "replay", *map(str, arguments)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = pipe.open("w")
        os.kill(process.pid, signal.SIGINT)
        rest = process.stderr.read()
        lines.close()
    assert process.returncode == 130
    assert rest.splitlines() == ["interrupted: no file is left half-written"]
    assert certificate.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.jsonl", "t.jsonl"]
