"""What captured states cannot follow is refused with one line, before it does harm."""

from __future__ import annotations

import pytest
import torch
from hybrids import small_model
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    DynamicCache,
    PreTrainedModel,
    StaticCache,
)

from state_kernels.transformers_cache import capture_states, use_state_kernels

PROMPT = torch.arange(1, 21)[None]


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return small_model("qwen3_5_text")


def empty(model: PreTrainedModel) -> DynamicCache:
    return DynamicCache(config=model.config)


def test_more_than_one_sequence(model: PreTrainedModel) -> None:
    with capture_states(model, [5]), pytest.raises(ValueError, match="batch: got 2 rows"):
        model(input_ids=PROMPT.expand(2, -1), past_key_values=empty(model))
    with capture_states(model, [5]), pytest.raises(ValueError, match="packed sequences; need 1"):
        model(
            input_ids=PROMPT, past_key_values=empty(model), cu_seq_lens_q=torch.tensor([0, 9, 20])
        )


def test_padding(model: PreTrainedModel) -> None:
    mask = torch.ones_like(PROMPT)
    with capture_states(model, [5]) as captured:
        model(input_ids=PROMPT, attention_mask=mask, past_key_values=empty(model))
    assert captured.depths == (5,)
    mask[0, :3] = 0
    with capture_states(model, [5]), pytest.raises(ValueError, match="attention_mask: got padding"):
        model(input_ids=PROMPT, attention_mask=mask, past_key_values=empty(model))


def test_caches_that_cannot_be_cut(model: PreTrainedModel) -> None:
    offloading = empty(model)
    offloading.offloading = True  # the constructor wants a GPU
    static = StaticCache(config=model.config, max_cache_len=64)
    for cache in (None, static, offloading, DynamicCache()):
        with capture_states(model, [5]), pytest.raises(ValueError, match="past_key_values: got"):
            model(input_ids=PROMPT, past_key_values=cache)


def test_another_sequence_in_the_same_context(model: PreTrainedModel) -> None:
    cache = empty(model)
    with capture_states(model, [5]) as captured:
        model(input_ids=PROMPT, past_key_values=cache)
        with pytest.raises(ValueError, match="got a cache of 0 tokens; need the one of 20 tokens"):
            model(input_ids=PROMPT, past_key_values=empty(model))
        with pytest.raises(ValueError, match="open a context for each sequence"):
            model(input_ids=PROMPT, past_key_values=captured.cache_at(5))
        model(input_ids=PROMPT, past_key_values=cache)


def test_depths(model: PreTrainedModel) -> None:
    for depths in ([], [0, 3], [64.7], [None], torch.tensor([5.0]), torch.tensor(5), 5):
        with pytest.raises(ValueError, match="depths: got"), capture_states(model, depths):
            pass
    with capture_states(model, torch.tensor([25, 5, 5])) as captured:
        with pytest.raises(ValueError, match=r"depth: got 5; need one of \(\)"):
            captured.cache_at(5)
        model(input_ids=PROMPT, past_key_values=empty(model))
    with pytest.raises(ValueError, match=r"depth: got 25; need one of \(5,\)"):
        captured.cache_at(25)
    with (
        capture_states(model, [5, 25]),
        pytest.raises(ValueError, match="depths: got 5; need more"),
    ):
        model(input_ids=PROMPT, past_key_values=captured.cache_at(5))


def test_prompts_that_the_cache_holds_already(model: PreTrainedModel) -> None:
    with capture_states(model, [12, 20]) as captured:
        model(input_ids=PROMPT, past_key_values=empty(model))
    options = {"max_new_tokens": 2, "do_sample": False}
    for context in (use_state_kernels(model), capture_states(model, [25])):
        with context:
            for length in (1, 10, 20):
                with pytest.raises(ValueError, match="got no tokens after the 20 that the cache"):
                    model.generate(
                        PROMPT[:, :length], past_key_values=captured.cache_at(20), **options
                    )
            longer = model.generate(PROMPT, past_key_values=captured.cache_at(12), **options)
    with use_state_kernels(model):
        assert torch.equal(longer, model.generate(PROMPT, **options))


def test_a_call_that_failed(model: PreTrainedModel) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with capture_states(model, [5, 20]) as captured:
        model(input_ids=PROMPT, past_key_values=empty(model))
    cache = empty(model)
    with capture_states(model, [5, 20]) as again:
        for layer in model.get_decoder().layers:
            cache = empty(model)
            with layer.register_forward_hook(fail), pytest.raises(ZeroDivisionError):
                model(input_ids=PROMPT[:, :7], past_key_values=cache)
            with pytest.raises(ValueError, match="got the cache of a call that failed"):
                model(input_ids=PROMPT, past_key_values=cache)
            assert again.depths == ()
        model(input_ids=PROMPT, past_key_values=empty(model))
    assert again.depths == (5, 20)
    for got, expected in zip(again._layers, captured._layers, strict=True):
        assert torch.equal(got.states, expected.states)
        assert torch.equal(got.windows, expected.windows)


def test_contexts_inside_each_other(model: PreTrainedModel) -> None:
    mixer = model.get_decoder().layers[1].linear_attn
    with use_state_kernels(model):
        ours = mixer.forward
        with (
            pytest.raises(ValueError, match="layer 0: got a forward that was replaced"),
            capture_states(model, [5]),
        ):
            pass
        assert mixer.forward == ours
    assert "forward" not in vars(mixer)


def test_training(model: PreTrainedModel) -> None:
    model.train()
    try:
        with pytest.raises(ValueError, match="model: got training mode"), use_state_kernels(model):
            pass
    finally:
        model.eval()


@pytest.mark.parametrize("family", ["llama", "mamba2", "lfm2", "falcon_mamba", "gemma3_text"])
def test_models_without_known_recurrent_layers(family: str) -> None:
    sizes = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_heads": 4, "head_dim": 32} if family == "mamba2" else {}
    other = AutoModelForCausalLM.from_config(CONFIG_MAPPING[family](**sizes)).eval()
    with pytest.raises(ValueError, match=r"model: got .*; need full attention"):
        use_state_kernels(other).__enter__()
