"""The gated delta rule against FLA's and transformers' two forms, and its own options."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import SLOW, TOLERANCE, cumulative, make_pass, relative_error
from outside import assert_agrees, fla_reference, transformers_model

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


@pytest.mark.parametrize(
    "name", ["naive_recurrent_gated_delta_rule", "naive_chunk_gated_delta_rule"]
)
def test_agrees_with_fla(name: str) -> None:
    reference = fla_reference("gated_delta_rule", name)
    given = make_pass(GatedDeltaRule(), (192,), decay=SLOW, sizes=Sizes(4, 4, 32, 48))
    inputs = given.inputs
    assert isinstance(inputs, GatedDeltaInputs)
    output, state = reference(
        *(x[None] for x in (inputs.q, inputs.k, inputs.v)),
        g=inputs.g[None],
        beta=inputs.beta[None],
        initial_state=given.initial_state.mT,
        output_final_state=True,
    )
    decays_of_the_next_head = replace(given, inputs=replace(inputs, g=inputs.g.roll(1, dims=1)))
    assert_agrees(given, decays_of_the_next_head, output, state)


def test_agrees_with_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    qwen = transformers_model(monkeypatch, "qwen3_5")
    given = make_pass(NORMALISED, (200,), sizes=Sizes(4, 4, 32, 32))
    inputs = given.inputs
    assert isinstance(inputs, GatedDeltaInputs)
    batch = [x[None] for x in (inputs.q, inputs.k, inputs.v, inputs.g, inputs.beta)]
    start = given.initial_state.transpose(2, 3)
    for theirs in (qwen.torch_recurrent_gated_delta_rule, qwen.torch_chunk_gated_delta_rule):
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


def test_the_readme_captures_as_it_says() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n([^`]*gated_delta_rule[^`]*)```", readme)
    torch.manual_seed(0)
    run: dict[str, Any] = {}
    exec(snippet, run)
    inputs = [run[name][100:250] for name in ("q", "k", "v", "g", "beta")]
    alone = gated_delta_rule(*inputs, cu_seqlens=torch.tensor([0, 150]), qk_l2norm=True)
    assert relative_error(run["pool"][2], alone.final_state[0]) <= TOLERANCE
    assert relative_error(run["pool"][5], alone.final_state[0]) > 100 * TOLERANCE
    assert not run["pool"][[0, 1, 3, 4, 6, 7]].any()
