"""KDA against FLA's references and a whole layer of transformers' Kimi-Linear."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import SLOW, TOLERANCE, cumulative, make_pass, relative_error
from outside import assert_agrees, fla_reference, transformers_model

from state_kernels import KDA, causal_convolution, kda
from state_kernels.recurrence import Sizes
from state_kernels.recurrences.kda import KDAInputs


@pytest.mark.parametrize("name", ["naive_recurrent_kda", "naive_chunk_kda"])
def test_agrees_with_fla(name: str) -> None:
    reference = fla_reference("kda", name)
    given = make_pass(KDA(), (192,), decay=SLOW, sizes=Sizes(2, 4, 32, 48))
    inputs = given.inputs
    assert isinstance(inputs, KDAInputs)
    output, state = reference(
        *(x[None] for x in (inputs.q, inputs.k, inputs.v, inputs.g, inputs.beta)),
        initial_state=given.initial_state.mT,
        output_final_state=True,
    )
    decays_of_the_next_key = replace(given, inputs=replace(inputs, g=inputs.g.roll(1, dims=2)))
    assert_agrees(given, decays_of_the_next_key, output, state)


def test_a_layer_of_kimi_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    kimi = transformers_model(monkeypatch, "kimi_linear")
    from transformers import DynamicCache, KimiLinearConfig

    config = KimiLinearConfig(
        hidden_size=64,
        num_hidden_layers=1,
        linear_num_heads=2,
        linear_head_dim=32,
        layer_types=["linear_attention"],
        mlp_layer_types=["dense"],
    )
    torch.manual_seed(0)
    layer = kimi.KimiLinearDeltaAttention(config, 0).requires_grad_(False)
    layer.forget_gate.A_log.uniform_(-6, -3)
    layer.forget_gate.dt_bias.uniform_(-1, 1)
    x = torch.randn(150, 64)
    cache = DynamicCache(config=config)
    expected = layer(x[None], cache_params=cache)[0]
    theirs = cache.layers[0]

    unconvolved = torch.cat([layer.q_proj(x), layer.k_proj(x), layer.v_proj(x)], dim=1)
    convolved = causal_convolution(
        unconvolved,
        layer.conv1d.weight.squeeze(1),
        cu_seqlens=cumulative((150,)),
        activation="silu",
    )
    q, k, v = convolved.output.view(150, 3, 2, 32).unbind(dim=1)
    g, beta = layer.forget_gate(x[None])[0], torch.sigmoid(layer.b_proj(x))
    gate = layer.g_b_proj(layer.g_a_proj(x)).view(150, 2, 32)

    def errors(g: torch.Tensor) -> tuple[float, float]:
        result = kda(q, k, v, g, beta, cu_seqlens=cumulative((150,)), qk_l2norm=True)
        output = layer.o_proj(layer.o_norm(result.output, gate).flatten(1))
        state = theirs.recurrent_states[0].transpose(2, 3)
        return relative_error(output, expected), relative_error(result.final_state, state)

    assert max(errors(g)) <= TOLERANCE
    assert min(errors(g.roll(1, dims=2))) > 100 * TOLERANCE
    assert torch.equal(theirs.conv_states[0][0, :, -3:], convolved.final_window[0])


def test_bad_shapes_are_refused() -> None:
    given = make_pass(KDA(), (10,))
    inputs = given.inputs
    assert isinstance(inputs, KDAInputs)
    for name, bad in (("g", inputs.g[..., 0]), ("g", inputs.g[:, :2]), ("beta", inputs.g)):
        with pytest.raises(ValueError, match=f"{name}: got shape"):
            replace(given, inputs=replace(inputs, **{name: bad})).run()
