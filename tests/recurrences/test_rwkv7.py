"""RWKV-7: a published model's logits, resumed at many depths; and FLA's reference."""

from __future__ import annotations

import pydoc_data.topics
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import SLOW, TOLERANCE, make_pass
from outside import assert_agrees, fla_reference
from rwkv7_model import ModelState, RWKV7Model

from state_kernels import RWKV7, rwkv7
from state_kernels.passes import Implementation
from state_kernels.recurrence import Sizes
from state_kernels.recurrences.rwkv7 import RWKV7Inputs
from support.shared_data import shared

TEXT = pydoc_data.topics.topics["assignment"].encode()[:2000]
DEPTHS = (1, 2, 63, 64, 65, 127, 128, 250, 500, 777, 1024, 1111, 1472, 1999)


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    with np.load(shared("rwkv7/tiny_rwkv7_834k.npz")) as archive:
        return dict(archive)


def largest_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("implementation", ["reference", "chunked"])
def test_published_logits(
    arrays: dict[str, np.ndarray], implementation: Implementation, dtype: torch.dtype
) -> None:
    model = RWKV7Model.of(arrays, dtype)
    expected = torch.from_numpy(arrays["expected_logits"])
    got = model.run(b'"in', implementation=implementation).logits[-1]
    print(f"largest difference {largest_difference(got, expected):.1e}")
    assert largest_difference(got, expected) <= TOLERANCE
    one_byte_less = model.run(b"in", implementation=implementation).logits[-1]
    assert largest_difference(one_byte_less, expected) > 100 * TOLERANCE


@pytest.mark.parametrize(("implementation", "length"), [("reference", 300), ("chunked", 2000)])
def test_a_long_text_resumed(
    arrays: dict[str, np.ndarray], implementation: Implementation, length: int
) -> None:
    text = TEXT[:length]
    assert len(text) == length
    model = RWKV7Model.of(arrays, torch.float32)
    depths = tuple(depth for depth in DEPTHS if depth < length)
    captured = tuple(sorted({d + offset for d in depths for offset in (0, 1)}))
    whole = model.run(text, depths=captured, implementation=implementation)
    exact = RWKV7Model.of(arrays, torch.float64).run(text, implementation="reference")
    assert largest_difference(whole.logits, exact.logits) <= TOLERANCE

    for depth in depths:
        state, next_state = whole.states[depth], whole.states[depth + 1]

        def error_from(state: ModelState, end: int, depth: int = depth) -> float:
            resumed = model.run(text[depth:end], state, implementation=implementation)
            return largest_difference(resumed.logits, whole.logits[depth:end])

        assert error_from(state, length) <= TOLERANCE
        wrong = {
            "matrices of the next depth": replace(state, matrices=next_state.matrices),
            "matrices of zeros": replace(state, matrices=torch.zeros_like(state.matrices)),
            "shifts of the next depth": replace(state, shifts=next_state.shifts),
        }
        errors = {name: error_from(each, depth + 32) for name, each in wrong.items()}
        print(depth, {name: f"{error:.1e}" for name, error in errors.items()})
        assert min(errors.values()) > 10 * TOLERANCE


def test_agrees_with_fla() -> None:
    reference = fla_reference("generalized_delta_rule/dplr", "dplr_recurrence")
    given = make_pass(RWKV7(scale=32**-0.5), (200,), decay=SLOW, sizes=Sizes(4, 4, 32, 48))
    inputs = given.inputs
    assert isinstance(inputs, RWKV7Inputs)
    batch = (inputs.r, inputs.k, inputs.v, inputs.a, inputs.b, inputs.w)
    output, state = reference(
        *(x.transpose(0, 1)[None] for x in batch), initial_state=given.initial_state.mT
    )
    read_and_written = replace(given, inputs=replace(inputs, a=inputs.b, b=inputs.a))
    assert_agrees(given, read_and_written, output.transpose(1, 2), state)


def test_scale_is_one_unless_given() -> None:
    given = make_pass(RWKV7(), (70,))
    inputs, cu_seqlens = given.inputs, given.cu_seqlens
    assert isinstance(inputs, RWKV7Inputs)
    tensors = (inputs.r, inputs.w, inputs.k, inputs.v, inputs.a, inputs.b)
    plain = rwkv7(*tensors, cu_seqlens=cu_seqlens)
    halved = rwkv7(*tensors, cu_seqlens=cu_seqlens, scale=0.5)
    assert torch.equal(2 * halved.output, plain.output)
    assert torch.equal(halved.final_state, plain.final_state)


@pytest.mark.parametrize("name", ["r", "w", "k", "a", "b"])
def test_bad_shapes_are_refused(name: str) -> None:
    given = make_pass(RWKV7(), (10,))
    bad = replace(given.inputs, **{name: getattr(given.inputs, name)[:, :2]})
    with pytest.raises(ValueError, match=": got shape"):
        replace(given, inputs=bad).run()
