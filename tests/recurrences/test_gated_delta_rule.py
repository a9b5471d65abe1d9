"""The chunked gated delta rule against float64 recurrences, its own and transformers'."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace

import pytest
import torch
from state_kernels_inputs import (
    TOLERANCE,
    Inputs,
    Size,
    make_inputs,
    poisoned,
    relative_error,
    run,
    same_bits,
    truth,
)

from state_kernels import (
    gated_delta_rule,
    gated_delta_rule_step,
    gated_delta_rule_with_chunk_states,
)


def assert_accurate(inputs: Inputs) -> None:
    got, expected = run(inputs), truth(inputs)
    assert relative_error(got.output, expected.output) <= TOLERANCE
    assert relative_error(got.final_state, expected.final_state) <= TOLERANCE


@pytest.mark.parametrize(
    "lengths",
    [(1,), (63,), (64,), (65,), (127,), (500,), (2049,), (3, 300, 64, 1, 129), (0, 70, 0)],
)
def test_lengths(lengths: tuple[int, ...]) -> None:
    assert_accurate(make_inputs(lengths))


@pytest.mark.parametrize("decay", [(4.5, 5.5), (0.5, 1.0), (1e-4, 2e-4), (1e-4, 5.0)])
def test_decays(decay: tuple[float, float]) -> None:
    assert_accurate(make_inputs((300, 65), decay=decay))


@pytest.mark.parametrize(
    "size", [Size(1, 1, 16, 48), Size(3, 9, 20, 12), Size(2, 2, 128, 128), Size(2, 6, 64, 64)]
)
def test_head_shapes(size: Size) -> None:
    assert_accurate(make_inputs((130, 7), size=size))


def test_repeated_keys_without_decay_stay_accurate() -> None:
    # The worst case for the triangular inverse: every product of keys is one.
    inputs = make_inputs((192,), decay=(1e-7, 1e-6))
    inputs = replace(inputs, k=inputs.k[:1].expand_as(inputs.k), beta=torch.ones_like(inputs.beta))
    assert_accurate(inputs)


def test_one_wrong_token_is_caught() -> None:
    inputs = make_inputs((300,))
    beta = inputs.beta.clone()
    beta[150] *= 1.01
    wrong = run(replace(inputs, beta=beta))
    assert relative_error(wrong.output, truth(inputs).output) > TOLERANCE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_inputs_lose_only_the_output_rounding(dtype: torch.dtype) -> None:
    rounded = make_inputs((200, 70)).to(dtype)
    inputs = replace(rounded, g=rounded.g.float(), initial_state=rounded.initial_state.float())
    got, expected = run(inputs), truth(inputs)
    assert got.output.dtype == dtype
    assert got.final_state.dtype == torch.float32
    assert relative_error(got.output, expected.output) <= torch.finfo(dtype).eps
    assert relative_error(got.final_state, expected.final_state) <= TOLERANCE


def test_float64_inputs_compute_in_float64() -> None:
    inputs = make_inputs((200,)).to(torch.float64)
    assert relative_error(run(inputs).output, truth(inputs).output) <= 1e-13


def test_scale_and_missing_initial_state() -> None:
    inputs = make_inputs((100,))
    got = gated_delta_rule(*inputs.packed, cu_seqlens=inputs.cu_seqlens, scale=0.5)
    expected = gated_delta_rule(
        *inputs.to(torch.float64).packed,
        cu_seqlens=inputs.cu_seqlens,
        initial_state=torch.zeros_like(inputs.initial_state),
        scale=0.5,
        implementation="reference",
    )
    # Keys that are not normalised make the recurrence grow: compare where it is still finite.
    assert relative_error(got.output[:8], expected.output[:8]) <= TOLERANCE


def test_agrees_with_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its Triton kernels are not wanted here, and are slow to import.
    monkeypatch.setitem(sys.modules, "fla", None)
    qwen = pytest.importorskip("transformers.models.qwen3_5.modeling_qwen3_5")
    inputs = make_inputs((200,), size=Size(heads=4, value_heads=4))
    batch = [x[None] for x in inputs.packed]
    start = inputs.initial_state.transpose(2, 3)
    # Unwrapped, in case transformers was imported with those kernels before.
    by_token = inspect.unwrap(qwen.torch_recurrent_gated_delta_rule)
    by_chunk = inspect.unwrap(qwen.torch_chunk_gated_delta_rule)
    recurrent, recurrent_state = by_token(
        *batch, initial_state=start, output_final_state=True, use_qk_l2norm_in_kernel=True
    )
    chunked, chunked_state = by_chunk(
        *batch, initial_state=start, output_final_state=True, use_qk_l2norm_in_kernel=True
    )
    for got in (run(inputs), truth(inputs)):
        for output, state in ((recurrent, recurrent_state), (chunked, chunked_state)):
            assert relative_error(got.output, output[0]) <= TOLERANCE
            assert relative_error(got.final_state, state.transpose(2, 3)) <= TOLERANCE


def test_chunk_states_are_the_states_at_chunk_starts() -> None:
    inputs = make_inputs((130, 64, 1))
    result = gated_delta_rule_with_chunk_states(
        *inputs.packed,
        cu_seqlens=inputs.cu_seqlens,
        initial_state=inputs.initial_state,
        qk_l2norm=True,
    )
    expected = []
    for sequence, length in enumerate(inputs.lengths):
        alone = inputs.pick([sequence])
        expected.append(inputs.initial_state[sequence])
        expected += [run(alone.before(d)).final_state[0] for d in range(64, length, 64)]
    assert same_bits(result.chunk_states, torch.stack(expected))
    assert same_bits(result.output, run(inputs).output)
    assert same_bits(result.final_state, run(inputs).final_state)


def test_step_continues_a_sequence_and_skips_padding() -> None:
    inputs = make_inputs((70,))
    expected = truth(inputs)
    pool = poisoned(5, *inputs.initial_state.shape[1:])
    pool[3] = run(inputs.before(60)).final_state[0]
    untouched = pool.clone()
    for token in range(60, 70):
        row = [x[token].expand(2, *x.shape[1:]) for x in inputs.packed]
        output = gated_delta_rule_step(*row, pool=pool, slots=torch.tensor([-1, 3]), qk_l2norm=True)
        assert not output[0].any()
        assert relative_error(output[1], expected.output[token]) <= TOLERANCE
    assert relative_error(pool[3], expected.final_state[0]) <= TOLERANCE
    assert same_bits(pool[[0, 1, 2, 4]], untouched[[0, 1, 2, 4]])


def test_bad_arguments_are_refused() -> None:
    inputs = make_inputs((10,))
    q, k, v, g, beta = inputs.packed
    cu_seqlens = inputs.cu_seqlens
    with pytest.raises(ValueError, match="q and k: got shapes"):
        gated_delta_rule(q, k[:, :1], v, g, beta, cu_seqlens=cu_seqlens)
    with pytest.raises(ValueError, match="v: got shape"):
        gated_delta_rule(q, k, v[:, :3], g, beta, cu_seqlens=cu_seqlens)
    with pytest.raises(ValueError, match="beta: got shape"):
        gated_delta_rule(q, k, v, g, beta[:, :2], cu_seqlens=cu_seqlens)
    with pytest.raises(ValueError, match="cu_seqlens: got"):
        gated_delta_rule(q, k, v, g, beta, cu_seqlens=torch.tensor([0, 9]))
    with pytest.raises(ValueError, match="cu_seqlens: got"):
        gated_delta_rule(q, k, v, g, beta, cu_seqlens=torch.tensor([0, 7, 5, 10]))
    with pytest.raises(ValueError, match="initial_state: got shape"):
        gated_delta_rule(
            q, k, v, g, beta, cu_seqlens=cu_seqlens, initial_state=inputs.initial_state[0]
        )
    with pytest.raises(ValueError, match="implementation: got"):
        gated_delta_rule(
            q,
            k,
            v,
            g,
            beta,
            cu_seqlens=cu_seqlens,
            implementation="triton",  # type: ignore[arg-type]
        )
    pool = poisoned(4, *inputs.initial_state.shape[1:])
    with pytest.raises(ValueError, match="slots: got 4"):
        gated_delta_rule_step(
            q[:1], k[:1], v[:1], g[:1], beta[:1], pool=pool, slots=torch.tensor([4])
        )
