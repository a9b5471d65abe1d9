"""The tiny model is deterministic, its tokenizer is exact, and its recurrent states matter."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from sglang_sparse.demo import tiny_model
from sglang_sparse.demo.comparison import step_difference
from sglang_sparse.demo.tiny_model import build_tiny_model
from support.truth import TransformersTruth

LENGTH = 3_000
CHANGED = 100
FORK = 2_880
MATTERS = 0.05
FORGOTTEN = 1e-3
ROUNDING = 2e-5


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("models") / "default")


@pytest.fixture(scope="module")
def truth(model_folder: Path) -> Iterator[TransformersTruth]:
    with TransformersTruth(model_folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def tokenizer(model_folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(model_folder)


def words(seed: int, length: int) -> list[int]:
    """Text of `length` bytes out of a few hundred random words."""
    draw = random.Random(seed)
    lexicon = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 9))) for _ in range(300)]
    text = ""
    while len(text) < length:
        text += draw.choice(lexicon) + draw.choice([" ", " ", " ", ", ", ".\n"])
    return list(text[:length].encode())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(st.characters(codec="utf-8")).filter(lambda text: "<|" not in text))
def test_tokens_are_the_bytes_of_any_text(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    assert tokenizer.encode(text) == list(text.encode())
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_every_ascii_token_sequence_comes_back(tokenizer: PreTrainedTokenizerBase) -> None:
    draw = random.Random(0)
    tokens = [*range(128), *draw.choices(range(128), k=5_000)]
    assert tokenizer.encode(tokenizer.decode(tokens)) == tokens


def test_special_tokens_and_chat(tokenizer: PreTrainedTokenizerBase) -> None:
    special = [tiny_model.BEGIN_ID, tiny_model.END_ID, tiny_model.PAD_ID]
    assert len(tokenizer) == tiny_model.VOCABULARY_SIZE
    assert [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id] == special
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, tokenize=False
    )
    begin, end = special[:2]
    assert tokenizer.encode(chat) == [begin, *b"user\nhi", end, *b"\n", begin, *b"assistant\n"]


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path, model_folder: Path) -> None:
    again = build_tiny_model(tmp_path / "again")
    other = build_tiny_model(tmp_path / "other", seed=1)
    for file in sorted(model_folder.iterdir()):
        assert (again / file.name).read_bytes() == file.read_bytes(), file.name
    weights = "model.safetensors"
    assert (other / weights).read_bytes() != (model_folder / weights).read_bytes()


def test_a_complete_folder_is_kept_and_another_specification_replaces_it(tmp_path: Path) -> None:
    folder = build_tiny_model(tmp_path / "model", layers=4)
    weights = folder / "model.safetensors"
    first = weights.stat()
    build_tiny_model(folder, layers=4)
    assert weights.stat().st_ino == first.st_ino
    build_tiny_model(folder, layers=8)
    assert weights.stat().st_size > first.st_size
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"^folder: got "):
        build_tiny_model(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (partial(build_tiny_model, layers=6), r"^layers: got 6; need "),
        (partial(build_tiny_model, hidden_size=100), r"^hidden_size: got 100; need "),
        (partial(build_tiny_model, log_decays=(0.0, 1.0)), r"^log_decays: got "),
    ],
)
def test_bad_arguments(tmp_path: Path, build: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(tmp_path / "model")


def test_greedy_output_is_varied_readable_and_decided(truth: TransformersTruth) -> None:
    for seed in (1, 2):
        steps = truth.greedy(words(seed, 600), 40)
        margins = [step.top[0][1] - step.top[1][1] for step in steps]
        print(f"{bytes(step.token for step in steps)!r}, median margin {median(margins):.3f}")
        assert len({step.token for step in steps}) >= 10
        assert all(step.token < 128 for step in steps)
        assert median(margins) > 0.1
        assert min(margins) > 1e-4


def test_decoding_on_the_cache_agrees_with_a_prefill(truth: TransformersTruth) -> None:
    prompt = words(3, 700)
    steps = truth.greedy(prompt, 4)
    recomputed = truth.next_log_probabilities([*prompt, *(step.token for step in steps[:3])])
    assert step_difference(steps[3].top, recomputed.top) < ROUNDING
    assert step_difference(steps[2].top, recomputed.top) > MATTERS


def test_a_dropped_state_moves_the_log_probabilities(truth: TransformersTruth) -> None:
    for seed in (4, 5):
        prompt = words(seed, LENGTH)
        expected = truth.next_log_probabilities(prompt)
        [right] = truth.with_wrong_state(prompt, FORK, prompt[:FORK], 1)
        [dropped] = truth.with_wrong_state(prompt, FORK, [], 1)
        moved = step_difference(expected.top, dropped.top)
        print(f"no state at {FORK} of {LENGTH}: moved by {moved:.3f}")
        assert step_difference(expected.top, right.top) < ROUNDING
        assert moved > MATTERS


def test_the_start_of_a_long_prompt_is_remembered_by_the_states_alone(tmp_path: Path) -> None:
    """Only the recurrent states know of the other start: attention KV stays the prompt's own.

    With four layers no attention comes before a state, so that these states hold what their own
    decays and writes have kept over 2,780 tokens. Decays as in a fresh initialisation are the
    control: there the states of both prompts are the same.
    """
    slow = build_tiny_model(tmp_path / "slow", layers=4)
    fast = build_tiny_model(tmp_path / "fast", layers=4, log_decays=(0.1, 16.0))
    with TransformersTruth(slow) as remembers, TransformersTruth(fast) as forgets:
        for seed in (6, 7):
            prompt = words(seed, LENGTH)
            other_start = [*bytes(words(seed + 100, CHANGED)).upper(), *prompt[CHANGED:FORK]]
            moved, control = (
                step_difference(
                    truth.next_log_probabilities(prompt).top,
                    truth.with_wrong_state(prompt, FORK, other_start, 1)[0].top,
                )
                for truth in (remembers, forgets)
            )
            print(f"another first {CHANGED} of {LENGTH}: moved by {moved:.3f}, {control:.1e}")
            assert moved > MATTERS
            assert control < FORGOTTEN
