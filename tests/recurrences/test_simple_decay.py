"""Simple decays against FLA's references and whole layers of Mamba2 and MiniMax."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import (
    SLOW,
    TOLERANCE,
    capture_all,
    cumulative,
    make_pass,
    poisoned,
    relative_error,
    same_bits,
)
from outside import assert_agrees, fla_reference, transformers_model

from state_kernels import SimpleDecay, causal_convolution, simple_decay, ssd
from state_kernels.recurrence import Sizes
from state_kernels.recurrences.simple_decay import SimpleDecayInputs


@pytest.mark.parametrize("name", ["naive_recurrent_simple_gla", "naive_chunk_simple_gla"])
def test_agrees_with_fla(name: str) -> None:
    reference = fla_reference("simple_gla", name)
    given = make_pass(SimpleDecay(), (192,), decay=SLOW, sizes=Sizes(4, 4, 32, 48))
    inputs = given.inputs
    assert isinstance(inputs, SimpleDecayInputs)
    output, state = reference(
        *(x[None] for x in (inputs.q, inputs.k, inputs.v, inputs.g)),
        initial_state=given.initial_state.mT,
        output_final_state=True,
    )
    decays_of_the_next_head = replace(given, inputs=replace(inputs, g=inputs.g.roll(1, dims=1)))
    assert_agrees(given, decays_of_the_next_head, output, state)


def test_retention_agrees_with_fla() -> None:
    reference = fla_reference("retention", "naive_retention")
    inputs = make_pass(SimpleDecay(), (200,), sizes=Sizes(4, 4, 32, 32)).inputs
    assert isinstance(inputs, SimpleDecayInputs)
    q, k, v = inputs.q, inputs.k, inputs.v
    expected = reference(*(x.transpose(0, 1)[None] for x in (q, k, v)))[0].transpose(0, 1)
    decay = torch.log1p(-(2.0 ** (-5 - torch.arange(4))))

    def error(g: torch.Tensor) -> float:
        return relative_error(
            simple_decay(q, k, v, g, cu_seqlens=cumulative((200,))).output, expected
        )

    assert error(decay) <= TOLERANCE
    assert error(decay.flip(0)) > 100 * TOLERANCE


def test_one_decay_a_head_has_the_heads_shape() -> None:
    inputs = make_pass(SimpleDecay(), (20,), sizes=Sizes(2, 4, 16, 16)).inputs
    assert isinstance(inputs, SimpleDecayInputs)
    for g in (torch.zeros(3), torch.zeros(1)):
        with pytest.raises(
            ValueError, match=r"g: got shape .*; need \(4,\); .* each value head, or"
        ):
            simple_decay(inputs.q, inputs.k, inputs.v, g, cu_seqlens=cumulative((20,)))
    with pytest.raises(TypeError, match="g: got float"):
        simple_decay(inputs.q, inputs.k, inputs.v, -0.1, cu_seqlens=cumulative((20,)))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["A", "D"])
def test_ssd_refuses_before_it_writes(name: str) -> None:
    x, pool = torch.randn(20, 4, 16), poisoned(2, 4, 16, 8)
    per_head = {"A": -torch.ones(4), "D": torch.ones(4)}

    def capture(**per_head: torch.Tensor) -> None:
        B = C = torch.randn(20, 2, 8)
        ssd(
            x,
            torch.rand(20, 4),
            B=B,
            C=C,
            **per_head,
            cu_seqlens=cumulative((20,)),
            captures=capture_all(0, range(5, 6), range(1)),
            pool=pool,
        )

    with pytest.raises(ValueError, match=rf"{name}: got shape \(3,\); .* give it for each head$"):
        capture(**per_head | {name: torch.ones(3)})
    with pytest.raises(ValueError, match=f"{name}: got torch.int64"):
        capture(**per_head | {name: torch.ones(4, dtype=torch.int64)})
    with pytest.raises(ValueError, match=f"{name}: got a tensor on meta; need one on cpu"):
        capture(**per_head | {name: torch.ones(4, device="meta")})
    assert same_bits(pool, poisoned(2, 4, 16, 8))
    capture(**per_head)
    assert not pool[0].isnan().any()


def test_a_layer_of_mamba2(monkeypatch: pytest.MonkeyPatch) -> None:
    mamba = transformers_model(monkeypatch, "mamba2")
    from transformers import DynamicCache, Mamba2Config

    config = Mamba2Config(
        hidden_size=64,
        num_hidden_layers=1,
        num_heads=4,
        head_dim=32,
        state_size=16,
        n_groups=2,
        chunk_size=64,
    )
    torch.manual_seed(0)
    mixer = mamba.Mamba2Mixer(config, 0).requires_grad_(False).eval()
    x = torch.randn(150, 64)
    cache = DynamicCache(config=config)
    expected = mixer(x[None], cache_params=cache)[0]
    theirs = cache.layers[0]

    sizes = [128, 128 + 2 * 2 * 16, 4]
    gate, unconvolved, dt = torch.split(mixer.in_proj(x), sizes, dim=1)
    convolved = causal_convolution(
        unconvolved,
        mixer.conv1d.weight.squeeze(1),
        mixer.conv1d.bias,
        cu_seqlens=cumulative((150,)),
        activation="silu",
    )
    values, B, C = torch.split(convolved.output, [128, 32, 32], dim=1)
    dt = torch.nn.functional.softplus(dt + mixer.dt_bias)

    def errors(A: torch.Tensor) -> tuple[float, float]:
        result = ssd(
            values.view(150, 4, 32),
            dt,
            A,
            B.view(150, 2, 16),
            C.view(150, 2, 16),
            mixer.D,
            cu_seqlens=cumulative((150,)),
        )
        output = mixer.out_proj(mixer.norm(result.output.flatten(1), gate))
        state = theirs.recurrent_states[0]
        return relative_error(output, expected), relative_error(result.final_state, state)

    A = -mixer.A_log.exp()
    assert max(errors(A)) <= TOLERANCE
    assert min(errors(A.flip(0))) > 100 * TOLERANCE
    assert torch.equal(theirs.conv_states[0][0, :, -3:], convolved.final_window[0])


def test_a_lightning_attention_layer_of_minimax(monkeypatch: pytest.MonkeyPatch) -> None:
    minimax = transformers_model(monkeypatch, "minimax")
    from transformers import MiniMaxConfig

    config = MiniMaxConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        head_dim=16,
        block_size=32,
        layer_types=["linear_attention", "linear_attention"],
    )
    torch.manual_seed(0)
    layer = minimax.MiniMaxLightningAttention(config, 0).requires_grad_(False)
    x = torch.randn(150, 64)
    expected, state = layer(x[None], None, None)

    q, k, v = layer.act_fn(layer.qkv_proj(x)).view(150, 4, 48).split(16, dim=2)
    gate = torch.sigmoid(layer.output_gate(x))

    def errors(g: torch.Tensor) -> tuple[float, float]:
        result = simple_decay(q, k, v, g, cu_seqlens=cumulative((150,)), scale=1.0)
        output = layer.out_proj(gate * layer.norm(result.output.flatten(1)))
        ours = result.final_state.transpose(2, 3)
        return relative_error(output, expected[0]), relative_error(ours, state)

    decay = -layer.slope_rate.flatten()
    assert max(errors(decay)) <= TOLERANCE
    assert min(errors(decay.flip(0))) > 100 * TOLERANCE
