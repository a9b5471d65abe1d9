"""What `benchmarks/serve_compare.py` sends, predicts and prints; no server is started."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("httpx")
pytest.importorskip("rich")

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import serve_compare
from serve_prediction import BLOCK, PrefillTime, Setting, fitted, held, oracle_tokens, predicted
from serve_prompts import book_prompts, document_prompts, trace_prompts
from serve_report import Comparison, print_report
from serve_servers import VARIANTS, Measured, Timed, typical
from sparse_passes import PassReplay

from sglang_sparse.demo.server import Completion, Likely
from tree_placement.cost import PrefillCost
from tree_placement.policy import PolicySettings, SparsePolicy
from tree_placement.replay.simulator import Simulator

SETTING = Setting(slots=7, kv_tokens=100_000, chunk=8_192)
TRUE = PrefillTime(PrefillCost(2e-4, 3e-8), overhead=0.02)


def prompts() -> list[list[int]]:
    """Two documents in turns, left at their end and halfway."""
    documents = [[10 * (number + 1) + index % 7 for index in range(900)] for number in range(2)]
    return [
        documents[turn % 2][: 900 if turn % 3 else 450] + [200 + turn] * 40 for turn in range(12)
    ]


def answer(prompt: list[int], cached: int, token: int = 5) -> Completion:
    seconds = TRUE.seconds(cached, len(prompt)) + (0.003 if cached else 0.0)
    steps = ((Likely(token, -0.5), Likely(9, -2.0)),) * 2
    return Completion((token, token), steps, len(prompt), cached, seconds, seconds + 0.01)


def comparison(hits: dict[str, list[int]], token: int = 5) -> Comparison:
    """What servers would report that resumed from these depths; the last answers with `token`."""
    measured = [Measured(each) for each in VARIANTS if each.name in hits]
    for number, prompt in enumerate(prompts()):
        for own in measured:
            last = own is measured[-1] and number == 11
            cached = hits[own.variant.name][number]
            own.answers.append(answer(prompt, cached, token if last else 5))
        for own in measured[1:]:
            own.compare(measured[0])
    return Comparison(
        lengths=[len(prompt) for prompt in prompts()],
        measured=measured,
        predicted=[predicted(prompts(), each.variant.policy, (), SETTING) for each in measured],
        prefill=fitted((tokens, TRUE.seconds(0, tokens)) for tokens in (100, 400, 900, 1600)),
    )


def predicted_hits(policy: str) -> list[int]:
    return list(predicted(prompts(), policy, (), SETTING).hits)


def test_prompts_of_a_trace_overlap_as_its_ids_do(tmp_path: Path) -> None:
    lines = [
        {"input_length": 70, "h": [[0, 3]]},
        {"input_length": 50, "h": [0, 1, 7]},
        {"input_length": 70, "h": [[0, 3]]},
    ]
    file = tmp_path / "t.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    one, other, again = trace_prompts(file, 16, None)
    assert [len(one), len(other), len(again)] == [70, 50, 70]
    assert one[:32] == other[:32]
    assert one[32:48] != other[32:48]
    assert one[:64] == again[:64]
    assert one[64:] != again[64:]
    assert len(list(trace_prompts(file, 16, 2))) == 2


def test_prompts_of_documents_and_of_a_book(tmp_path: Path) -> None:
    file = tmp_path / "d.jsonl"
    file.write_text(json.dumps({"input": "text", "instructions": ["a?", "b?"]}))
    assert list(document_prompts(file, str.encode, None)) == [b"text\n\na?", b"text\n\nb?"]
    book = tmp_path / "book.txt"
    book.write_text("0123456789")
    asked = [{"book": "other.txt", "question": "x?"}, {"book": "book.txt", "question": "y?"}]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, asked)))
    own, others = map(bytes, book_prompts(book, 8, 2, str.encode))
    assert own == b"01234567\n\nQuestion: y?\nAnswer:"
    assert others == b"01234567\n\nQuestion: x?\nAnswer:"
    with pytest.raises(ValueError, match="--book: got 10 tokens; need 11"):
        list(book_prompts(book, 11, 1, str.encode))
    with pytest.raises(ValueError, match="--questions: got 3; need at most 2"):
        list(book_prompts(book, 8, 3, str.encode))


def test_the_flags_of_the_sparse_server_are_the_replay_s() -> None:
    settings = PolicySettings(grid=64, states_per_path=2, tail=320)
    rule = PassReplay(SparsePolicy(settings), SETTING.slots, SETTING.chunk)
    flags = ["--sparse-states-per-path", "2", "--sparse-tail", "320", "--log-level", "info"]
    own = predicted(prompts(), "sparse", flags, SETTING)
    simulator = Simulator(BLOCK, SETTING.budget, rule)
    assert list(own.hits) == [simulator.serve(each).hit for each in held(prompts())]
    assert list(own.hits) != predicted_hits("sparse"), "the flags matter"
    lengths = [len(prompt) for prompt in prompts()]
    assert sum(own.hits) <= oracle_tokens(prompts()) < sum(lengths)


def test_the_fitted_time_is_the_one_that_made_the_pairs() -> None:
    prefill = fitted((tokens, TRUE.seconds(0, tokens)) for tokens in (500, 1_000, 4_000, 9_000))
    assert prefill.seconds(3_000, 8_000) == pytest.approx(TRUE.seconds(3_000, 8_000))
    assert prefill.seconds(3_000, 8_000) != pytest.approx(TRUE.seconds(0, 5_000), rel=0.05)
    answers = [answer(prompt, hit) for prompt, hit in zip(prompts(), [0, *[448] * 11], strict=True)]
    assert prefill.restoring(answers) == pytest.approx(0.003)
    assert prefill.restoring(answers[:1]) is None


def test_of_repeats_the_median_time_of_each_request_counts() -> None:
    runs = []
    for slower in (1.0, 3.0, 2.0):
        answers = [answer([7] * length, 0) for length in (100, 900)]
        slow = [each._replace(first_token=slower * each.first_token) for each in answers]
        runs.append(Measured(VARIANTS[0], slow, differing=int(slower == 3.0), worst=slower))
    found = typical(runs)
    assert found.first_tokens == [2 * TRUE.seconds(0, length) for length in (100, 900)]
    assert (found.differing, found.worst) == (1, 3.0), "one that differs is not outvoted"
    assert typical(runs[:1]) == runs[0]


def test_the_report_says_how_far_the_replay_is(capsys: pytest.CaptureFixture[str]) -> None:
    hits = {"stock": predicted_hits("stock"), "sparse": predicted_hits("sparse")}
    print_report(comparison(hits), oracle_tokens(prompts()))
    output = capsys.readouterr().out
    assert output.count("within 0.01; every hit is the same") == 2
    ratio = next(line for line in output.splitlines() if line.startswith("sparse over stock"))
    did, would = (float(part.split()[-1]) for part in ratio.split(", predicted"))
    assert did == pytest.approx(would, abs=0.02)
    assert abs(did - 1.0) > 0.1
    hits["sparse"] = [0] * 12
    print_report(comparison(hits), oracle_tokens(prompts()))
    output = capsys.readouterr().out
    assert "NOT within 0.01" in output
    assert "hits differ, the first is request" in output


def test_an_output_that_differs_or_less_from_cache_fails() -> None:
    hits = {name: predicted_hits("stock") for name in ("stock", "sparse")}
    assert serve_compare._is_good(comparison(hits))
    assert not serve_compare._is_good(comparison(hits, token=6))
    assert not serve_compare._is_good(comparison({**hits, "sparse": [0] * 12}))


def test_the_figure_and_its_table(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from serve_figures import write_figure

    hits = {name: predicted_hits("stock") for name in ("stock", "stock_python", "sparse")}
    whole = [Timed(tokens, TRUE.seconds(0, tokens)) for tokens in (100, 400, 1600)]
    write_figure(tmp_path / "new", comparison(hits), whole)
    assert (tmp_path / "new" / "prefill_time.pdf").read_bytes().startswith(b"%PDF-")
    rows = list(csv.DictReader((tmp_path / "new" / "prefill_time.csv").read_text().splitlines()))
    assert len(rows) == 3 + 3 * 12
    row = rows[3 + 5]
    assert (row["server"], row["request"]) == ("stock", "5")
    assert int(row["cached"]) == hits["stock"][5]
    truth = answer(prompts()[5], hits["stock"][5]).first_token
    assert float(row["seconds"]) == pytest.approx(truth, abs=1e-6)
