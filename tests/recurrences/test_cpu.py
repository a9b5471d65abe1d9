"""The operations with SGLang's signatures, against independent formulas."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from pathlib import Path

import pytest
import torch
from cases import (
    TOLERANCE,
    Pass,
    cumulative,
    make_pass,
    poisoned,
    relative_error,
    same_bits,
)
from torch.nn import functional

from state_kernels import GatedDeltaRule, cpu
from state_kernels.recurrences.gated_delta_rule import GatedDeltaInputs

SOURCES = {
    "causal_conv1d_fn": "kernels/ops/mamba/causal_conv1d_triton.py",
    "causal_conv1d_update": "kernels/ops/mamba/causal_conv1d_triton.py",
    "chunk_gated_delta_rule": "kernels/ops/attention/fla/chunk.py",
    "fused_gdn_gating": "kernels/ops/attention/linear/fused_gdn_gating.py",
    "fused_qkvzba_split_reshape_cat_contiguous": "kernels/ops/attention/triton_gdn_fused_proj.py",
    "fused_recurrent_gated_delta_rule_packed_decode": (
        "kernels/ops/attention/fla/fused_recurrent.py"
    ),
    "fused_sigmoid_mul": "kernels/ops/elementwise/elementwise.py",
    "rms_norm_gated": "kernels/ops/attention/fla/layernorm_gated.py",
    "run_sdpa_forward_extend": "srt/layers/attention/torch_native_backend.py",
    "track_mamba_states_all_layers": "kernels/ops/mamba/mamba_state_scatter_triton.py",
    "track_mamba_states_if_needed": "kernels/ops/mamba/mamba_state_scatter_triton.py",
}


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_signatures_are_the_hosts(name: str) -> None:
    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("sglang is not installed")
    tree = ast.parse((Path(spec.submodule_search_locations[0]) / SOURCES[name]).read_text())
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    host = next(n for n in functions if n.name.removeprefix("_") == name)
    ours = inspect.signature(getattr(cpu, name)).parameters
    expected = [a.arg for a in (*host.args.args, *host.args.kwonlyargs)]
    assert list(ours) == expected
    optional = [p for p in expected if ours[p].default is not inspect.Parameter.empty]
    defaults = [*host.args.defaults, *(d for d in host.args.kw_defaults if d is not None)]
    names = {"PAD_SLOT_ID": -1}
    values = [names[d.id] if isinstance(d, ast.Name) else ast.literal_eval(d) for d in defaults]
    assert [ours[p].default for p in optional] == values


def test_projections_are_split() -> None:
    qkvz, ba = torch.randn(5, 2 * 2 * 8 + 2 * 4 * 6), torch.randn(5, 8)
    qkv, z, b, a = cpu.fused_qkvzba_split_reshape_cat_contiguous(qkvz, ba, 2, 4, 8, 6)
    assert same_bits(qkv, qkvz[:, :56])
    assert same_bits(z.flatten(1), qkvz[:, 56:])
    assert same_bits(torch.cat([b, a], dim=1), ba)
    assert all(x.is_contiguous() for x in (qkv, z, b, a))
    with pytest.raises(ValueError, match="projections: got widths"):
        cpu.fused_qkvzba_split_reshape_cat_contiguous(qkvz, ba, 2, 4, 8, 7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gates(dtype: torch.dtype) -> None:
    a, b = (20 * torch.randn(50, 4)).to(dtype), torch.randn(50, 4).to(dtype)
    a_log, dt_bias = torch.randn(4), torch.randn(4)
    log_decay, beta = cpu.fused_gdn_gating(a_log, a, b, dt_bias)
    x = a.double() + dt_bias.double()
    expected = -a_log.double().exp() * functional.softplus(x, threshold=20)
    assert log_decay.shape == beta.shape == (1, 50, 4)
    assert log_decay.dtype == beta.dtype == torch.float32
    assert relative_error(log_decay[0], expected) <= TOLERANCE
    assert relative_error(beta[0], b.double().sigmoid().to(dtype)) <= TOLERANCE


@pytest.mark.parametrize("norm_before_gate", [True, False])
@pytest.mark.parametrize("activation", ["swish", "sigmoid"])
def test_gated_norms(norm_before_gate: bool, activation: str) -> None:
    x, weight = torch.randn(6, 16), torch.randn(16)
    z = torch.randn(3, 2, 32)[..., :16]
    gate = z.reshape(6, 16).double()
    gate = functional.silu(gate) if activation == "swish" else gate.sigmoid()
    value = x.double() if norm_before_gate else x.double() * gate
    for is_rms_norm in (True, False):
        norm = functional.rms_norm if is_rms_norm else functional.layer_norm
        expected = norm(value, (16,), weight.double(), eps=1e-6)
        got = cpu.rms_norm_gated(
            x=x,
            weight=weight,
            bias=None,
            z=z,
            norm_before_gate=norm_before_gate,
            is_rms_norm=is_rms_norm,
            activation=activation,
        )
        expected = expected * gate if norm_before_gate else expected
        assert relative_error(got, expected) <= TOLERANCE


def test_norm_in_groups_with_bias() -> None:
    x, weight, bias = torch.randn(2, 3, 16), torch.randn(16), torch.randn(16)
    got = cpu.rms_norm_gated(x=x, weight=weight, bias=bias, group_size=4, is_rms_norm=True)
    normal = functional.rms_norm(x.double().view(2, 3, 4, 4), (4,), eps=1e-6).flatten(-2)
    assert relative_error(got, normal * weight + bias) <= TOLERANCE
    with pytest.raises(ValueError, match="group_size: got 5"):
        cpu.rms_norm_gated(x=x, weight=weight, bias=bias, group_size=5)
    with pytest.raises(ValueError, match="activation: got 'relu'"):
        cpu.rms_norm_gated(x=x, weight=weight, bias=bias, activation="relu")


def test_sigmoid_gate() -> None:
    value, gate = torch.randn(5, 12), torch.randn(5, 3, 8)[..., :4]
    expected = value.double() * gate.reshape(5, 12).double().sigmoid()
    assert relative_error(cpu.fused_sigmoid_mul(value, gate), expected) <= TOLERANCE
    assert cpu.fused_sigmoid_mul(value, gate, inplace=True) is value
    assert relative_error(value, expected) <= TOLERANCE
    with pytest.raises(ValueError, match="quant: got True"):
        cpu.fused_sigmoid_mul(value, gate, quant=True)


def test_tracked_states_are_copied_in_every_layer() -> None:
    conv, states = torch.randn(3, 6, 4, 3), torch.randn(3, 6, 2, 5)
    conv_pool, states_pool = conv.clone(), states.clone()
    source, mask = torch.tensor([0, 1, -1, 2]), torch.tensor([True, False, True, True])
    target = torch.tensor([3, 4, 5, 3])
    cpu.track_mamba_states_all_layers(
        conv_pool, states_pool, source, mask, target, 3, check_freed_slots=True
    )
    for copy, original in ((conv_pool, conv), (states_pool, states)):
        assert same_bits(copy[:, 3], original[:, 0])
        assert same_bits(copy[:, [0, 1, 2, 4, 5]], original[:, [0, 1, 2, 4, 5]])
    windows, layer = conv[0].clone(), states[0].clone()
    cpu.track_mamba_states_if_needed(
        windows, layer, source, mask, target, 3, check_freed_slots=True
    )
    assert same_bits(windows, conv_pool[0])
    assert same_bits(layer, states_pool[0])
    with pytest.raises(ValueError, match="tracked rows: got"):
        cpu.track_mamba_states_if_needed(windows, layer, source, mask, target, 3)


def test_convolution_prefill_then_decode() -> None:
    x, weight, bias = torch.randn(12, 20).T, torch.randn(20, 4), torch.randn(20)
    pool = poisoned(6, 20, 3)
    pool[4] = torch.randn(20, 3)
    start = pool[4].clone()
    resumed = torch.tensor([False, True, False])
    rows = torch.tensor([2, 4, -1])
    output = cpu.causal_conv1d_fn(
        x, weight, bias, pool, cumulative((5, 2, 2)), [5, 2, 2], rows, resumed, activation="silu"
    )
    fresh = torch.cat([torch.zeros(20, 3), x[:, :5]], dim=1)
    old = torch.cat([start, x[:, 5:7]], dim=1)
    for inputs, got in ((fresh, output[:, :5]), (old, output[:, 5:7])):
        expected = functional.conv1d(inputs[None], weight[:, None], bias, groups=20)[0]
        assert relative_error(got, functional.silu(expected)) <= TOLERANCE
    assert not output[:, 9:].any()
    assert same_bits(pool[2], fresh[:, -3:])
    assert same_bits(pool[4], old[:, -3:])

    together = torch.cat([fresh, x[:, 9:12]], dim=1)
    expected = functional.conv1d(together[None], weight[:, None], bias, groups=20)[0, :, -3:]
    tokens = x[:, 9:12].expand(2, 20, 3)
    decoded = cpu.causal_conv1d_update(
        tokens, pool, weight, bias, True, conv_state_indices=torch.tensor([-1, 2])
    )
    assert relative_error(decoded[1], functional.silu(expected)) <= TOLERANCE
    assert not decoded[0].any()
    assert same_bits(pool[2], together[:, -3:])
    assert same_bits(pool[[0, 1, 3, 5]], poisoned(4, 20, 3))


def gated_delta_pass(*lengths: int) -> tuple[Pass, GatedDeltaInputs]:
    given = make_pass(GatedDeltaRule(qk_l2norm=True), lengths)
    assert isinstance(given.inputs, GatedDeltaInputs)
    return given, given.inputs


def in_order(inputs: GatedDeltaInputs) -> tuple[torch.Tensor, ...]:
    return inputs.q, inputs.k, inputs.v, inputs.g, inputs.beta


def test_prefill_reads_and_writes_pool_rows() -> None:
    given, inputs = gated_delta_pass(70, 200, 9)
    pool = poisoned(9, *given.row)
    pool[[5, 1]] = given.initial_state[:2]
    q, k, v, g, beta = (torch.cat([x, x[:4]])[None] for x in in_order(inputs))
    output, final_state, chunk_states = cpu.chunk_gated_delta_rule(
        q,
        k,
        v,
        g,
        beta,
        initial_state=pool,
        initial_state_indices=torch.tensor([5, 1, -1], dtype=torch.int32),
        cu_seqlens=given.cu_seqlens.int(),
        use_qk_l2norm_in_kernel=True,
    )
    given.initial_state[2] = 0
    expected = given.run()
    assert final_state is None
    assert same_bits(output[0, :-4], expected.output)
    assert not output[0, -4:].any()
    assert same_bits(pool[[5, 1]], expected.final_state[:2])
    assert same_bits(pool[[0, 2, 3, 4, 6, 7, 8]], poisoned(7, *given.row))
    assert chunk_states.shape == (1, 2 + 4 + 1, *given.row)
    alone = given.pick([1])
    assert same_bits(chunk_states[0, 4], alone.before(128).run().final_state[0])


def test_packed_decode_continues_a_sequence() -> None:
    given, inputs = gated_delta_pass(66)
    a, b, a_log, dt_bias = torch.randn(1, 4), torch.randn(1, 4), torch.randn(4), torch.randn(4)
    log_decay, beta = cpu.fused_gdn_gating(a_log, a, b, dt_bias)
    inputs.g[-1], inputs.beta[-1] = log_decay[0, 0], beta[0, 0]
    expected = given.truth()
    pool = poisoned(3, *given.row)
    pool[2] = given.before(65).run().final_state[0]
    mixed = torch.cat([x[-1].flatten() for x in (inputs.q, inputs.k, inputs.v)])
    out = torch.full((2, 1, 4, 32), torch.nan)
    returned, states = cpu.fused_recurrent_gated_delta_rule_packed_decode(
        mixed.expand(2, -1),
        a.expand(2, -1),
        b.expand(2, -1),
        a_log,
        dt_bias,
        32**-0.5,
        pool,
        out,
        torch.tensor([-1, 2]),
        use_qk_l2norm_in_kernel=True,
    )
    assert returned is out
    assert states is pool
    assert not out[0].any()
    assert relative_error(out[1, 0], expected.output[-1]) <= TOLERANCE
    assert relative_error(pool[2], expected.final_state[0]) <= TOLERANCE


def test_unsupported_arguments_are_refused() -> None:
    x, weight, pool = torch.randn(2, 20), torch.randn(20, 4), torch.zeros(2, 20, 3)
    with pytest.raises(ValueError, match="num_accept_tokens: got Tensor; need None"):
        cpu.causal_conv1d_update(x, pool, weight, num_accept_tokens=torch.ones(2))
    with pytest.raises(ValueError, match="block_table: got Tensor; need None"):
        cpu.causal_conv1d_fn(
            x.T, weight, None, pool, cumulative((2,)), [2], block_table=torch.zeros(1)
        )
    given, inputs = gated_delta_pass(4)
    q, k, v, g, beta = (t[None] for t in in_order(inputs))
    with pytest.raises(ValueError, match="head_first: got True"):
        cpu.chunk_gated_delta_rule(q, k, v, g, beta, head_first=True)
    with pytest.raises(ValueError, match="initial_state_indices: got None"):
        cpu.chunk_gated_delta_rule(q, k, v, g, beta, initial_state=given.initial_state)
