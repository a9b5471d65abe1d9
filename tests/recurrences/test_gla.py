"""GLA against FLA's reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import SLOW, TOLERANCE, cumulative, make_pass, relative_error
from outside import assert_agrees, fla_reference

from state_kernels import GLA, SimpleDecay, gla
from state_kernels.recurrence import Sizes
from state_kernels.recurrences.gla import GLAInputs
from state_kernels.recurrences.simple_decay import SimpleDecayInputs


def test_agrees_with_fla() -> None:
    reference = fla_reference("gla", "naive_recurrent_gla")
    given = make_pass(GLA(), (200,), decay=SLOW, sizes=Sizes(4, 4, 32, 48))
    inputs = given.inputs
    assert isinstance(inputs, GLAInputs)
    output, state = reference(
        *(x[None] for x in (inputs.q, inputs.k, inputs.v, inputs.g)),
        initial_state=given.initial_state.mT,
        output_final_state=True,
    )
    decays_of_the_next_key = replace(given, inputs=replace(inputs, g=inputs.g.roll(1, dims=2)))
    assert_agrees(given, decays_of_the_next_key, output, state)


def test_equal_decays_of_keys_are_a_decay_of_the_head() -> None:
    simple = make_pass(SimpleDecay(), (200, 3))
    inputs = simple.inputs
    assert isinstance(inputs, SimpleDecayInputs)
    result = gla(
        inputs.q,
        inputs.k,
        inputs.v,
        inputs.g[..., None].expand(-1, -1, inputs.k.shape[2]),
        cu_seqlens=cumulative((200, 3)),
        initial_state=simple.initial_state,
    )
    assert relative_error(result.output, simple.run().output) <= TOLERANCE


def test_bad_shapes_are_refused() -> None:
    given = make_pass(GLA(), (10,))
    inputs = given.inputs
    assert isinstance(inputs, GLAInputs)
    for bad in (inputs.g[..., 0], inputs.g[..., :7], inputs.g[:, :2]):
        with pytest.raises(ValueError, match="g: got shape"):
            replace(given, inputs=replace(inputs, g=bad)).run()
