"""The gated delta rule against transformers' two forms, and its own options."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace

import pytest
import torch
from cases import TOLERANCE, cumulative, make_pass, relative_error

from state_kernels import GatedDeltaRule, gated_delta_rule
from state_kernels.recurrence import Sizes
from state_kernels.recurrences.gated_delta_rule import GatedDeltaInputs

NORMALISED = GatedDeltaRule(qk_l2norm=True)


def test_repeated_keys_without_decay_stay_accurate() -> None:
    # The worst case for the triangular inverse: every product of keys is one.
    given = make_pass(NORMALISED, (192,), decay=(1e-7, 1e-6))
    inputs = given.inputs
    assert isinstance(inputs, GatedDeltaInputs)
    repeated = replace(
        inputs, k=inputs.k[:1].expand_as(inputs.k), beta=torch.ones_like(inputs.beta)
    )
    given = replace(given, inputs=repeated)
    got, expected = given.run(), given.truth()
    assert relative_error(got.output, expected.output) <= TOLERANCE
    assert relative_error(got.final_state, expected.final_state) <= TOLERANCE


def test_agrees_with_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its Triton kernels are not wanted here, and are slow to import.
    monkeypatch.setitem(sys.modules, "fla", None)
    qwen = pytest.importorskip("transformers.models.qwen3_5.modeling_qwen3_5")
    given = make_pass(NORMALISED, (200,), sizes=Sizes(4, 4, 32, 32))
    inputs = given.inputs
    assert isinstance(inputs, GatedDeltaInputs)
    batch = [x[None] for x in (inputs.q, inputs.k, inputs.v, inputs.g, inputs.beta)]
    start = given.initial_state.transpose(2, 3)
    # Unwrapped, in case transformers was imported with those kernels before.
    by_token = inspect.unwrap(qwen.torch_recurrent_gated_delta_rule)
    by_chunk = inspect.unwrap(qwen.torch_chunk_gated_delta_rule)
    for theirs in (by_token, by_chunk):
        output, state = theirs(
            *batch, initial_state=start, output_final_state=True, use_qk_l2norm_in_kernel=True
        )
        for got in (given.run(), given.truth()):
            assert relative_error(got.output, output[0]) <= TOLERANCE
            assert relative_error(got.final_state, state.transpose(2, 3)) <= TOLERANCE
            wrong = got.final_state.transpose(2, 3)
            assert relative_error(wrong, state.transpose(2, 3)) > TOLERANCE


def test_scale_and_normalisation_are_the_callers() -> None:
    given = make_pass(GatedDeltaRule(), (100,))
    inputs = given.inputs
    assert isinstance(inputs, GatedDeltaInputs)
    tensors = (3 * inputs.q, 3 * inputs.k, inputs.v, inputs.g, inputs.beta)
    cu_seqlens = cumulative((100,))
    plain = gated_delta_rule(*tensors, cu_seqlens=cu_seqlens, scale=1.0, qk_l2norm=True)
    halved = gated_delta_rule(*tensors, cu_seqlens=cu_seqlens, scale=0.5, qk_l2norm=True)
    default = gated_delta_rule(*tensors, cu_seqlens=cu_seqlens, qk_l2norm=True)
    assert relative_error(2 * halved.output, plain.output) <= 1e-7
    assert relative_error(default.output * 32**0.5, plain.output) <= 1e-6
    longer = gated_delta_rule(
        7 * inputs.q, 5 * inputs.k, *tensors[2:], cu_seqlens=cu_seqlens, scale=1.0, qk_l2norm=True
    )
    assert relative_error(longer.output, plain.output) <= TOLERANCE


def test_bad_shapes_are_refused() -> None:
    given = make_pass(NORMALISED, (10,))
    inputs = given.inputs
    assert isinstance(inputs, GatedDeltaInputs)
    q, k, v, g, beta = inputs.q, inputs.k, inputs.v, inputs.g, inputs.beta
    cu_seqlens = given.cu_seqlens
    with pytest.raises(ValueError, match="q and k: got shapes"):
        gated_delta_rule(q, k[:, :1], v, g, beta, cu_seqlens=cu_seqlens)
    with pytest.raises(ValueError, match="v: got shape"):
        gated_delta_rule(q, k, v[:, :3], g, beta, cu_seqlens=cu_seqlens)
    with pytest.raises(ValueError, match="beta: got shape"):
        gated_delta_rule(q, k, v, g, beta[:, :2], cu_seqlens=cu_seqlens)
    with pytest.raises(ValueError, match="g: got shape"):
        gated_delta_rule(q, k, v, g[:9], beta, cu_seqlens=cu_seqlens)
