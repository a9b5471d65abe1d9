"""Every recurrence and implementation against its token-by-token form in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from cases import (
    SLOW,
    TOLERANCE,
    Pass,
    capture_all,
    forgetting,
    make_pass,
    poisoned,
    relative_error,
    same_bits,
)

from state_kernels import Recurrence, run, run_with_chunk_states, step
from state_kernels.passes import Implementation
from state_kernels.recurrence import Sizes


def assert_accurate(given: Pass, implementation: Implementation) -> None:
    got, expected = given.run(implementation=implementation), given.truth()
    assert relative_error(got.output, expected.output) <= TOLERANCE
    assert relative_error(got.final_state, expected.final_state) <= TOLERANCE


@pytest.mark.parametrize(
    "lengths",
    [(1,), (63,), (64,), (65,), (127,), (500,), (2049,), (3, 300, 64, 1, 129), (0, 70, 0)],
    ids=str,
)
def test_lengths(
    recurrence: Recurrence[Any, Any], implementation: Implementation, lengths: tuple[int, ...]
) -> None:
    assert_accurate(make_pass(recurrence, lengths), implementation)


@pytest.mark.parametrize(
    "decay", [(20.0, 30.0), (4.5, 5.5), (0.5, 1.0), (1e-4, 2e-4), (1e-4, 30.0)], ids=str
)
def test_decays(
    recurrence: Recurrence[Any, Any], implementation: Implementation, decay: tuple[float, float]
) -> None:
    assert_accurate(make_pass(recurrence, (300, 65), decay=decay), implementation)


@pytest.mark.parametrize("log_decay", [-50.0, -1e4, torch.finfo(torch.float32).min, -torch.inf])
def test_tokens_that_forget_all(
    recurrence: Recurrence[Any, Any], implementation: Implementation, log_decay: float
) -> None:
    remembering = make_pass(recurrence, (200, 70), decay=SLOW)
    given = forgetting(remembering, log_decay)
    assert_accurate(given, implementation)
    captures, pool = capture_all(0, range(1, 201), range(200)), poisoned(200, *given.row)
    exact = poisoned(200, *given.row, dtype=torch.float64)
    given.run(captures, pool, implementation)
    given.truth(captures, exact)
    errors = [relative_error(got, expected) for got, expected in zip(pool, exact, strict=True)]
    assert max(errors) <= TOLERANCE
    remembered = remembering.run(implementation=implementation)
    assert relative_error(remembered.output, given.truth().output) > 100 * TOLERANCE


@pytest.mark.parametrize(
    "sizes",
    [Sizes(1, 1, 16, 48), Sizes(3, 9, 20, 12), Sizes(2, 2, 128, 128), Sizes(2, 6, 64, 64)],
    ids=str,
)
def test_head_shapes(
    recurrence: Recurrence[Any, Any], implementation: Implementation, sizes: Sizes
) -> None:
    assert_accurate(make_pass(recurrence, (130, 7), sizes=sizes), implementation)


def test_one_wrong_token_is_caught(
    recurrence: Recurrence[Any, Any], implementation: Implementation
) -> None:
    given = make_pass(recurrence, (300,))
    v = given.inputs.v.clone()
    v[150] *= 1.01
    wrong = replace(given, inputs=replace(given.inputs, v=v)).run(implementation=implementation)
    assert relative_error(wrong.output, given.truth().output) > TOLERANCE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_inputs_lose_only_the_output_rounding(
    recurrence: Recurrence[Any, Any], dtype: torch.dtype
) -> None:
    rounded = make_pass(recurrence, (200, 70)).to(dtype)
    given = replace(rounded, initial_state=rounded.initial_state.float())
    got, expected = given.run(), given.truth()
    assert got.output.dtype == dtype
    assert got.final_state.dtype == torch.float32
    assert relative_error(got.output, expected.output) <= torch.finfo(dtype).eps
    assert relative_error(got.final_state, expected.final_state) <= TOLERANCE


def test_float64_inputs_compute_in_float64(recurrence: Recurrence[Any, Any]) -> None:
    given = make_pass(recurrence, (200,)).to(torch.float64)
    assert relative_error(given.run().output, given.truth().output) <= 1e-13


def test_a_token_of_zeros_leaves_the_state(recurrence: Recurrence[Any, Any]) -> None:
    given = make_pass(recurrence, (5,))
    zeros = replace(given, inputs=given.inputs.map(torch.zeros_like))
    for implementation in ("reference", "chunked"):
        assert same_bits(zeros.run(implementation=implementation).final_state, given.initial_state)


def test_chunk_states_are_the_states_at_chunk_starts(recurrence: Recurrence[Any, Any]) -> None:
    given = make_pass(recurrence, (130, 64, 1))
    result = run_with_chunk_states(
        recurrence,
        given.inputs,
        cu_seqlens=given.cu_seqlens,
        initial_state=given.initial_state,
    )
    expected = []
    for sequence, length in enumerate(given.lengths):
        alone = given.pick([sequence])
        expected.append(given.initial_state[sequence])
        expected += [alone.before(d).run().final_state[0] for d in range(64, length, 64)]
    assert same_bits(result.chunk_states, torch.stack(expected))
    assert same_bits(result.output, given.run().output)
    assert same_bits(result.final_state, given.run().final_state)


def test_step_continues_a_sequence_and_skips_padding(recurrence: Recurrence[Any, Any]) -> None:
    given = make_pass(recurrence, (70,))
    expected = given.truth()
    pool = poisoned(5, *given.row)
    pool[3] = given.before(60).run().final_state[0]
    untouched = pool.clone()
    for token in range(60, 70):
        rows = given.inputs.map(lambda x, t=token: x[t].expand(2, *x.shape[1:]))  # type: ignore[misc]
        output = step(recurrence, rows, pool=pool, slots=torch.tensor([-1, 3]))
        assert not output[0].any()
        assert relative_error(output[1], expected.output[token]) <= TOLERANCE
    assert relative_error(pool[3], expected.final_state[0]) <= TOLERANCE
    assert same_bits(pool[[0, 1, 2, 4]], untouched[[0, 1, 2, 4]])
    with pytest.raises(ValueError, match="slots: got 5"):
        step(recurrence, rows, pool=pool, slots=torch.tensor([0, 5]))


def test_missing_initial_state_is_zeros(recurrence: Recurrence[Any, Any]) -> None:
    given = make_pass(recurrence, (100, 3))
    given = replace(given, initial_state=torch.zeros_like(given.initial_state))
    got = run(recurrence, given.inputs, cu_seqlens=given.cu_seqlens)
    assert same_bits(got.output, given.run().output)


def test_arguments_stay_as_they_are(recurrence: Recurrence[Any, Any]) -> None:
    given = make_pass(recurrence, (100,))
    before = [x.clone() for x in (*given.inputs.tensors(), given.initial_state)]
    given.run()
    given.run(implementation="reference")
    for old, new in zip(before, (*given.inputs.tensors(), given.initial_state), strict=True):
        assert same_bits(old, new)


@pytest.mark.parametrize("sizes", [Sizes(1, 0, 8, 8), Sizes(1, 1, 0, 8), Sizes(1, 1, 8, 0)])
def test_states_of_nothing_are_refused(recurrence: Recurrence[Any, Any], sizes: Sizes) -> None:
    inputs = recurrence.example(5, sizes, torch.Generator())
    for bad in (inputs, inputs.map(lambda x: x[:0])):
        with pytest.raises(ValueError, match="need no axis of size 0"):
            run(recurrence, bad, cu_seqlens=torch.tensor([0, len(bad.v)]))


def test_bad_arguments_are_refused(recurrence: Recurrence[Any, Any]) -> None:
    given = make_pass(recurrence, (10,))
    for bounds in ([0, 9], [0, 7, 5, 10], [1, 10]):
        with pytest.raises(ValueError, match="cu_seqlens: got"):
            run(recurrence, given.inputs, cu_seqlens=torch.tensor(bounds))
    with pytest.raises(ValueError, match="initial_state: got shape"):
        replace(given, initial_state=given.initial_state[0]).run()
    with pytest.raises(ValueError, match="v: got shape"):
        replace(given, inputs=replace(given.inputs, v=given.inputs.v[:, :, 0])).run()
    for kind in (torch.int64, torch.complex64):
        with pytest.raises(ValueError, match=f"v: got {kind}; need a floating"):
            replace(given, inputs=replace(given.inputs, v=given.inputs.v.to(kind))).run()
    with pytest.raises(TypeError, match="v: got list; need a tensor"):
        replace(given, inputs=replace(given.inputs, v=[])).run()
    for state in (given.initial_state.tolist(), given.initial_state.numpy()):
        with pytest.raises(TypeError, match="initial_state: got"):
            replace(given, initial_state=state).run()
    for lengths in ([0, 10], None):
        with pytest.raises(TypeError, match="cu_seqlens: got"):
            run(recurrence, given.inputs, cu_seqlens=lengths)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"cu_seqlens: got torch\.bool"):
        run(recurrence, given.inputs, cu_seqlens=torch.tensor([False, True]))
    with pytest.raises(ValueError, match="initial_state: got a tensor on meta; need one on cpu"):
        replace(given, initial_state=given.initial_state.to("meta")).run()
    with pytest.raises(ValueError, match="implementation: got 'fast'"):
        given.run(implementation="fast")  # type: ignore[arg-type]


def test_a_scale_that_is_no_number_is_refused(recurrence: Recurrence[Any, Any]) -> None:
    for scale in ("1", True, torch.ones(3)):
        with pytest.raises(TypeError, match="scale: got"):
            replace(recurrence, scale=scale)  # type: ignore[type-var]
    for scale in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="scale: got"):
            replace(recurrence, scale=scale)  # type: ignore[type-var]
