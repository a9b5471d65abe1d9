"""The demo's prompts, and that its comparison catches an answer that differs."""

import json
from pathlib import Path

import pytest

from sglang_sparse.demo.arguments import parse
from sglang_sparse.demo.comparison import Answer, Comparison, gap, largest_difference, totals
from sglang_sparse.demo.document import (
    QUESTIONS,
    Group,
    InputError,
    Prompt,
    build_prompts,
    context_length,
    read_document,
    require_room,
)
from sglang_sparse.demo.report import write_json
from sglang_sparse.demo.server import Completion, Likely


def encode(text: str) -> list[int]:
    return list(text.encode())


def completion(logprobs: list[list[tuple[int, float]]], *, cached: int = 0) -> Completion:
    """A completion that took the first listed token at each step."""
    top = tuple(tuple(Likely(*each) for each in step) for step in logprobs)
    tokens = tuple(step[0].token for step in top)
    return Completion(tokens, top, 100, cached, first_token=1.0, total=2.0)


STEPS = [[(1, -0.5), (2, -1.0)], [(7, -0.1), (8, -3.0)]]


def compare(first: Completion, second: Completion) -> Comparison:
    prompt = Prompt(Group.END, "question", tuple(range(100)), 80)
    return Comparison(prompt, Answer(first, None), Answer(second, 4))


def test_equal_answers_are_identical() -> None:
    comparison = compare(completion(STEPS), completion(STEPS))
    assert comparison.difference == 0.0
    assert comparison.is_identical


def test_a_small_difference_of_log_probability_is_reported_and_allowed() -> None:
    moved = [[(1, -0.5), (2, -1.0)], [(7, -0.1), (8, -3.0 + 4e-6)]]
    comparison = compare(completion(STEPS), completion(moved))
    assert comparison.difference == pytest.approx(4e-6)
    assert comparison.is_identical


@pytest.mark.parametrize(
    "other",
    [
        [[(1, -0.5), (2, -1.0)], [(8, -0.1), (7, -3.0)]],
        [[(1, -0.5), (2, -1.0)], [(7, -0.1), (8, -3.0001)]],
        [[(1, -0.5), (3, -0.9)], [(7, -0.1), (8, -3.0)]],
        [[(1, -0.5), (2, -1.0)]],
    ],
    ids=["another token", "a log-probability", "another candidate", "a shorter answer"],
)
def test_a_different_answer_is_caught(other: list[list[tuple[int, float]]]) -> None:
    assert not compare(completion(STEPS), completion(other)).is_identical
    assert not compare(completion(other), completion(STEPS)).is_identical


def test_candidates_that_swap_places_at_the_end_of_the_list_count_by_their_distance() -> None:
    first = completion([[(1, -0.5), (2, -1.0)]])
    second = completion([[(1, -0.5), (3, -1.0 + 2e-6)]])
    assert largest_difference(first, second) == pytest.approx(2e-6)


def test_after_the_tokens_part_nothing_more_is_compared() -> None:
    first = completion([[(1, -0.5), (2, -1.0)], [(7, -0.1), (8, -3.0)]])
    second = completion([[(2, -0.5), (1, -1.0)], [(9, -0.7), (5, -2.0)]])
    assert largest_difference(first, second) == pytest.approx(0.5)


def test_answers_without_log_probabilities_are_not_taken_for_equal() -> None:
    assert not compare(completion([]), completion([])).is_identical


def test_the_gap_is_what_was_seen_and_not_taken_from_the_cache() -> None:
    prompt = Prompt(Group.END, "question", tuple(range(100)), 80)
    answers = [Answer(completion(STEPS, cached=cached), None) for cached in (0, 64, 80)]
    assert [gap(prompt, answer) for answer in answers] == [80, 16, 0]
    assert totals([prompt] * 3, answers)[:3] == (144, 96, 3.0)


def test_prompts_share_what_they_say_they_share() -> None:
    text = "".join(chr(97 + (number * number) % 26) for number in range(2000))
    prompts = build_prompts(text, 1000, len(QUESTIONS), encode)
    assert [prompt.group for prompt in prompts] == (
        [Group.FIRST] + 19 * [Group.END] + 4 * [Group.EARLIER] + [Group.REPEAT]
    )
    for position, prompt in enumerate(prompts):
        earlier = [sent.tokens for sent in prompts[:position]]
        is_shared = (
            any(prompt.tokens[:length] == tokens[:length] for tokens in earlier)
            for length in range(1, len(prompt.tokens))
        )
        assert prompt.seen == sum(is_shared)
    seen = [prompt.seen for prompt in prompts if prompt.group is Group.EARLIER]
    for depth, overlap in zip((250, 333, 500, 750), seen, strict=True):
        assert depth <= overlap < depth + 16


def test_the_default_document_is_long_and_the_same_each_time() -> None:
    assert len(read_document(None)) > 100_000
    assert read_document(None) == read_document(None)


def test_bad_documents_are_refused(tmp_path: Path) -> None:
    empty, binary = tmp_path / "empty", tmp_path / "binary"
    empty.write_text(" \n")
    binary.write_bytes(b"\xff\xfe\x00")
    for file, reason in (
        (tmp_path / "missing", "No such file"),
        (tmp_path, "directory"),
        (empty, "empty"),
        (binary, "UTF-8"),
    ):
        with pytest.raises(InputError, match=reason):
            read_document(file)
    with pytest.raises(InputError, match="got 5 tokens; need at least 256"):
        build_prompts("hello", 1000, 1, encode)


def test_a_prompt_longer_than_the_context_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"text_config": {"max_position_embeddings": 500}}')
    prompts = build_prompts("x" * 1000, 400, 1, encode)
    longest = max(len(prompt.tokens) for prompt in prompts)
    limit = context_length(tmp_path)
    require_room(prompts, limit - longest, limit)
    with pytest.raises(InputError, match="need at most 500"):
        require_room(prompts, limit - longest + 1, limit)
    with pytest.raises(InputError, match="--model-path"):
        context_length(tmp_path / "missing")


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["--tokens", "10"], "--tokens"),
        (["--questions", "21"], "--questions"),
        (["--new-tokens", "0"], "--new-tokens"),
        (["--slots", "1"], "--slots"),
        (["--port", "0"], "--port"),
        (["--json", "/no/such/folder/file.json"], "--json"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: list[str], flag: str) -> None:
    with pytest.raises(InputError, match=f"^{flag}: got"):
        parse(arguments)


def test_a_file_that_is_written_appears_complete(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    file.write_text("old")
    write_json(file, [compare(completion(STEPS), completion(STEPS, cached=64))], {"slots": 8})
    written = json.loads(file.read_text())
    assert written["identical"] == 1
    assert written["prompts"][0]["sparse"]["cached"] == 64
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]
