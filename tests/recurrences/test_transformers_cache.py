"""A model resumed from a captured state answers as transformers does without one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import TOLERANCE, relative_error, same_bits
from hybrids import FAMILIES, Answer, answer, difference, small_model, torch_path
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    PreTrainedModel,
)

from state_kernels.transformers_cache import CapturedStates, capture_states, use_state_kernels

CAUGHT = 100 * TOLERANCE
"""What a wrong state moves log-probabilities by, at least."""
DEPTHS = (1, 2, 3, 63, 64, 65, 200, 511, 512, 700)
QUESTION = 40


@pytest.fixture(scope="module")
def model(model_folder: Path) -> PreTrainedModel:
    """The demo's Qwen3.5 in float32; its states last for thousands of tokens."""
    return AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)


def tokens(length: int, seed: int) -> torch.Tensor:
    """Return random printable bytes ``[1, length]``, which every model here has in its words."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(32, 127, (1, length), generator=generator)


def read(
    model: PreTrainedModel, document: torch.Tensor, depths: Iterable[int], *cuts: int
) -> CapturedStates:
    """Capture while the model reads a document in one call, or in calls that end at `cuts`."""
    cache = DynamicCache(config=model.config)
    with capture_states(model, depths) as captured:
        for start, end in pairwise((0, *cuts, document.shape[1])):
            model(input_ids=document[:, start:end], past_key_values=cache, logits_to_keep=1)
    return captured


def recurrent_layers(cache: DynamicCache) -> list[Any]:
    return [
        layer for layer in cache.layers if getattr(layer, "recurrent_states", {}).get(0) is not None
    ]


@pytest.fixture(scope="module")
def document() -> torch.Tensor:
    return tokens(700, seed=1)


@pytest.fixture(scope="module")
def prompt(document: torch.Tensor) -> torch.Tensor:
    return torch.cat([document, tokens(QUESTION, seed=2)], dim=1)


@pytest.fixture(scope="module")
def captured(model: PreTrainedModel, document: torch.Tensor) -> CapturedStates:
    """One prefill of the document."""
    return read(model, document, DEPTHS)


@pytest.fixture(scope="module")
def cold(model: PreTrainedModel, prompt: torch.Tensor) -> Answer:
    """What transformers answers by itself, with its own torch functions."""
    with torch_path(model):
        return answer(model, prompt)


@pytest.mark.parametrize("depth", DEPTHS)
def test_plain_generate_resumes(
    model: PreTrainedModel,
    captured: CapturedStates,
    prompt: torch.Tensor,
    cold: Answer,
    depth: int,
) -> None:
    with torch_path(model):
        resumed = answer(model, prompt, captured.cache_at(depth))
    assert resumed.tokens == cold.tokens
    assert difference(resumed, cold) <= TOLERANCE


@pytest.mark.parametrize("depth", [2, 200, 512])
def test_generate_by_these_recurrences_resumes(
    model: PreTrainedModel,
    captured: CapturedStates,
    prompt: torch.Tensor,
    cold: Answer,
    depth: int,
) -> None:
    with use_state_kernels(model):
        resumed = answer(model, prompt, captured.cache_at(depth))
    assert resumed.tokens == cold.tokens
    assert difference(resumed, cold) <= TOLERANCE


def wrong_caches(
    captured: CapturedStates, other: CapturedStates, depth: int, neighbour: int
) -> dict[str, DynamicCache]:
    """Return caches at a depth with one part wrong, by what is wrong; KV is always right."""
    at_neighbour = captured.cache_at(neighbour)
    replacements = {
        "states of another prefix": ("recurrent_states", other.cache_at(depth)),
        "states of a neighbour depth": ("recurrent_states", at_neighbour),
        "windows of a neighbour depth": ("conv_states", at_neighbour),
    }
    caches = {name: captured.cache_at(depth) for name in ("states of zeros", *replacements)}
    for layer in recurrent_layers(caches["states of zeros"]):
        layer.recurrent_states[0].zero_()
    for name, (part, source) in replacements.items():
        pairs = zip(recurrent_layers(caches[name]), recurrent_layers(source), strict=True)
        for layer, wrong in pairs:
            getattr(layer, part)[0].copy_(getattr(wrong, part)[0])
    return caches


def test_a_wrong_cache_is_caught(
    model: PreTrainedModel, captured: CapturedStates, prompt: torch.Tensor, cold: Answer
) -> None:
    other = read(model, tokens(512, seed=3), [512])
    for wrong, cache in wrong_caches(captured, other, 512, 511).items():
        with torch_path(model):
            moved = difference(answer(model, prompt, cache), cold)
        print(f"{wrong}: log-probabilities move by {moved:.1e}")
        assert moved > CAUGHT


@pytest.mark.parametrize("family", FAMILIES)
def test_other_families_resume(family: str) -> None:
    model = small_model(family)
    prompt, other = tokens(150, seed=4), tokens(150, seed=5)
    captured = read(model, prompt[:, :140], [1, 65, 100, 101, 140])
    with torch_path(model):
        expected = answer(model, prompt)
        for depth in captured.depths:
            resumed = answer(model, prompt, captured.cache_at(depth))
            assert resumed.tokens == expected.tokens
            assert difference(resumed, expected) <= TOLERANCE
    for wrong, cache in wrong_caches(captured, read(model, other, [100]), 100, 101).items():
        with torch_path(model):
            moved = difference(answer(model, prompt, cache), expected)
        print(f"{wrong}: log-probabilities move by {moved:.1e}")
        assert moved > CAUGHT
    with use_state_kernels(model):
        assert difference(answer(model, prompt, captured.cache_at(65)), expected) <= TOLERANCE


def test_calls_accumulate_depth(
    model: PreTrainedModel, captured: CapturedStates, document: torch.Tensor
) -> None:
    in_parts = read(model, document, DEPTHS, 1, 2, 63, 130, 131, 512)
    assert in_parts.depths == captured.depths == DEPTHS
    for depth, above in pairwise(DEPTHS):
        layers = [recurrent_layers(x) for x in (in_parts.cache_at(depth), captured.cache_at(depth))]
        for got, expected in zip(*layers, strict=True):
            assert relative_error(got.conv_states[0], expected.conv_states[0]) <= TOLERANCE
            assert (
                relative_error(got.recurrent_states[0], expected.recurrent_states[0]) <= TOLERANCE
            )
        for got, wrong in zip(layers[0], recurrent_layers(captured.cache_at(above)), strict=True):
            assert relative_error(got.recurrent_states[0], wrong.recurrent_states[0]) > CAUGHT


def test_generated_tokens_are_captured_too(model: PreTrainedModel, prompt: torch.Tensor) -> None:
    length = prompt.shape[1]
    with capture_states(model, [length - 1, length, length + 3]) as captured:
        generated = answer(model, prompt)
    text = torch.cat([prompt, torch.tensor([generated.tokens])], dim=1)
    with torch_path(model):
        expected = answer(model, text)
        for depth in captured.depths:
            assert difference(answer(model, text, captured.cache_at(depth)), expected) <= TOLERANCE
    assert captured.depths == (length - 1, length, length + 3)


def test_a_resumed_cache_is_captured_further(
    model: PreTrainedModel, captured: CapturedStates, prompt: torch.Tensor, cold: Answer
) -> None:
    cache = captured.cache_at(200)
    with capture_states(model, [333, 720]) as further:
        model(input_ids=prompt[:, 200:730], past_key_values=cache)
    with torch_path(model):
        for depth in further.depths:
            assert difference(answer(model, prompt, further.cache_at(depth)), cold) <= TOLERANCE
    assert further.depths == (333, 720)


def test_caches_do_not_disturb_each_other(
    model: PreTrainedModel, captured: CapturedStates, prompt: torch.Tensor
) -> None:
    first, second, untouched = (captured.cache_at(512) for _ in range(3))
    with torch_path(model):
        answers = [answer(model, prompt, cache) for cache in (first, second)]
    assert answers[0].tokens == answers[1].tokens
    assert same_bits(answers[0].logprobs, answers[1].logprobs)
    again = captured.cache_at(512)
    for layer, kept in zip(again.layers, untouched.layers, strict=True):
        for name in ("keys", "values"):
            if hasattr(kept, name):
                assert same_bits(getattr(layer, name), getattr(kept, name))
    triples = zip(*(recurrent_layers(x) for x in (again, untouched, first)), strict=True)
    for layer, kept, used in triples:
        assert same_bits(layer.recurrent_states[0], kept.recurrent_states[0])
        assert same_bits(layer.conv_states[0], kept.conv_states[0])
        assert not same_bits(layer.recurrent_states[0], used.recurrent_states[0])


def test_attention_is_kept_once(captured: CapturedStates) -> None:
    shallow, deep = captured.cache_at(64), captured.cache_at(DEPTHS[-1])
    attention = 0
    for one, other in zip(shallow.layers, deep.layers, strict=True):
        if hasattr(one, "keys"):
            assert one.keys.shape[-2] == 64
            assert one.keys.data_ptr() == other.keys.data_ptr()
            attention += other.keys.nbytes + other.values.nbytes
    depth = sum(
        layer.recurrent_states[0].nbytes + layer.conv_states[0].nbytes
        for layer in recurrent_layers(deep)
    )
    assert captured.nbytes == attention + len(DEPTHS) * depth


def test_nothing_stays_behind(model: PreTrainedModel, prompt: torch.Tensor) -> None:
    module = sys.modules[type(model).__module__]
    before, decoder = dict(vars(module)), model.get_decoder()
    mixers = [layer.linear_attn for layer in decoder.layers if hasattr(layer, "linear_attn")]
    with capture_states(model, [5]):
        assert all("forward" in vars(mixer) for mixer in mixers)
        assert vars(module) == before
    with pytest.raises(ZeroDivisionError), capture_states(model, [5]):
        1 / 0  # noqa: B018
    assert not any("forward" in vars(mixer) for mixer in mixers)
    assert not decoder._forward_pre_hooks
    assert not decoder._forward_hooks
    assert vars(module) == before


@pytest.mark.skipif(
    find_spec("fla") is None or torch.cuda.is_available(),
    reason="needs flash-linear-attention, and no GPU that it runs on",
)
def test_installed_kernels_are_not_called(model_folder: Path) -> None:
    script = Path(__file__).with_name("installed_kernels.py")
    run = subprocess.run(
        [sys.executable, str(script), str(model_folder)], capture_output=True, text=True
    )
    print(run.stdout)
    assert run.returncode == 0, run.stderr
