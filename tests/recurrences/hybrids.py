"""Small hybrid models of transformers with random weights that remember, and what they answer."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, DynamicCache, PreTrainedModel

VOCABULARY = 128
_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
_TYPES = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
_GATED_DELTA = {
    "num_hidden_layers": 4,
    "layer_types": _TYPES,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 32,
}
_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
_MAMBA2 = {
    "mamba_d_ssm": 64,
    "mamba_expand": 1,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_n_groups": 2,
    "mamba_d_state": 16,
    "mamba_chunk_size": 32,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3_5_text": _GATED_DELTA,
    "qwen3_5_moe_text": _GATED_DELTA | _EXPERTS,
    "qwen3_next": _GATED_DELTA | _EXPERTS,
    "olmo_hybrid": _GATED_DELTA,
    "kimi_linear": {
        "num_hidden_layers": 4,
        "layer_types": _TYPES,
        "mlp_layer_types": ["dense", "sparse", "dense", "sparse"],
        "num_key_value_heads": 4,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "linear_head_dim": 16,
        "linear_num_heads": 4,
    },
    "falcon_h1": {"num_hidden_layers": 3, **_MAMBA2},
    "bamba": {"num_hidden_layers": 3, "attn_layer_indices": [1], "mamba_d_conv": 4, **_MAMBA2},
    "granitemoehybrid": {
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 32,
        "position_embedding_type": "rope",
        **_MAMBA2,
    },
    "nemotron_h": {
        "layers_block_type": ["linear_attention", "moe", "full_attention", "linear_attention"],
        "num_hidden_layers": 4,
        "head_dim": 16,
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "ssm_state_size": 16,
        "chunk_size": 32,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 32,
    },
}
"""Options of a small model of each family, by its name in transformers."""


def small_model(family: str, seed: int = 0) -> PreTrainedModel:
    """Return a float32 model of a few layers whose states last for hundreds of tokens."""
    config = CONFIG_MAPPING[family](**_COMMON | FAMILIES[family])
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.dim() > 1 and "A_log" not in name:
            scale = (0.25 if name == "lm_head.weight" else 1.0) * weight[0].numel() ** -0.5
            weight.data.normal_(0, scale, generator=generator)
        elif name.endswith("A_log"):
            weight.data.uniform_(-6.0, -4.0, generator=generator)
        elif name.endswith("dt_bias"):
            weight.data.fill_(0.5)
    return model


class Answer(NamedTuple):
    """Greedy tokens, and the log-probabilities ``[N, vocabulary]`` that each was chosen from."""

    tokens: list[int]
    logprobs: torch.Tensor


def answer(
    model: PreTrainedModel,
    prompt: torch.Tensor,
    cache: DynamicCache | None = None,
    new_tokens: int = 6,
) -> Answer:
    """Return what `generate` says after a prompt ``[1, T]``, cold or from a cache."""
    output = model.generate(
        input_ids=prompt,
        past_key_values=cache,
        max_new_tokens=new_tokens,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    logprobs = torch.cat(output.logits).float().log_softmax(dim=-1)
    return Answer(output.sequences[0, prompt.shape[1] :].tolist(), logprobs)


def difference(got: Answer, expected: Answer) -> float:
    """Return the largest difference of log-probabilities, up to where the tokens part."""
    pairs = enumerate(zip(got.tokens, expected.tokens, strict=True), start=1)
    alike = next((steps for steps, (a, b) in pairs if a != b), len(got.tokens))
    return float((got.logprobs[:alike] - expected.logprobs[:alike]).abs().max())


@contextmanager
def torch_path(model: PreTrainedModel) -> Iterator[None]:
    """Let transformers take its own torch functions, whichever kernels are installed."""
    module = sys.modules[type(model).__module__]
    with pytest.MonkeyPatch.context() as patch:
        for name, function in list(vars(module).items()):
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                patch.setattr(module, name, inspect.unwrap(function))
        yield
