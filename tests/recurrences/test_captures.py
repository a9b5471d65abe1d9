"""States captured in a prefill pass: exact at any depth, and nothing else is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from cases import (
    SLOW,
    TOLERANCE,
    capture_all,
    make_pass,
    poisoned,
    relative_error,
    same_bits,
)

from state_kernels import Captures, Recurrence, step
from state_kernels.passes import Implementation


def test_every_depth_of_every_residue(
    recurrence: Recurrence[Any, Any], implementation: Implementation
) -> None:
    given = make_pass(recurrence, (17, 200, 64))
    captures = capture_all(1, range(1, 201), range(2, 202))
    pool, exact = poisoned(210, *given.row), poisoned(210, *given.row, dtype=torch.float64)
    result = given.run(captures, pool, implementation)
    given.truth(captures, exact)
    errors = [relative_error(pool[slot], exact[slot]) for slot in range(2, 202)]
    assert max(errors) <= TOLERANCE
    untouched = [0, 1, *range(202, 210)]
    assert same_bits(pool[untouched], poisoned(10, *given.row))
    assert same_bits(pool[201], result.final_state[1])


def test_a_neighbour_depth_is_caught(recurrence: Recurrence[Any, Any]) -> None:
    given = make_pass(recurrence, (200,), decay=SLOW)
    pool, exact = poisoned(200, *given.row), poisoned(200, *given.row, dtype=torch.float64)
    captures = capture_all(0, range(1, 201), range(200))
    given.run(captures, pool)
    given.truth(captures, exact)
    errors = [relative_error(pool[i], exact[i + 1]) for i in range(199)]
    print(f"state of the depth before: relative error {min(errors):.1e} to {max(errors):.1e}")
    assert min(errors) > 100 * TOLERANCE


def test_captures_over_several_sequences_in_any_order(
    recurrence: Recurrence[Any, Any], implementation: Implementation
) -> None:
    given = make_pass(recurrence, (130, 3, 700, 64))
    captures = Captures(
        sequence=torch.tensor([2, 0, 3, 2, 1, 0, 2, 2]),
        depth=torch.tensor([700, 1, 64, 65, 2, 128, 64, 333]),
        slot=torch.tensor([0, 7, 1, 6, 2, 5, 3, 8]),
    )
    pool, exact = poisoned(10, *given.row), poisoned(10, *given.row, dtype=torch.float64)
    given.run(captures, pool, implementation)
    given.truth(captures, exact)
    for slot in captures.slot.tolist():
        assert relative_error(pool[slot], exact[slot]) <= TOLERANCE
    assert same_bits(pool[[4, 9]], poisoned(2, *given.row))


def test_captures_change_no_result(
    recurrence: Recurrence[Any, Any], implementation: Implementation
) -> None:
    given = make_pass(recurrence, (130, 200))
    pool = poisoned(200, *given.row)
    plain = given.run(implementation=implementation)
    captured = given.run(capture_all(1, range(1, 201), range(200)), pool, implementation)
    assert same_bits(plain.output, captured.output)
    assert same_bits(plain.final_state, captured.final_state)


def test_no_captures_write_nothing(
    recurrence: Recurrence[Any, Any], implementation: Implementation
) -> None:
    given = make_pass(recurrence, (70,))
    pool = poisoned(3, *given.row)
    given.run(capture_all(0, range(0), range(0)), pool, implementation)
    assert same_bits(pool, poisoned(3, *given.row))


def test_half_pool_gets_the_float32_state_rounded_once(
    recurrence: Recurrence[Any, Any], implementation: Implementation
) -> None:
    given = make_pass(recurrence, (150,))
    captures = capture_all(0, range(60, 70), range(10))
    half, full = poisoned(10, *given.row, dtype=torch.bfloat16), poisoned(10, *given.row)
    given.run(captures, half, implementation)
    given.run(captures, full, implementation)
    assert same_bits(half, full.to(torch.bfloat16))


def test_resuming_from_off_grid_depths_is_accurate(
    recurrence: Recurrence[Any, Any], implementation: Implementation
) -> None:
    given = make_pass(recurrence, (300,), decay=SLOW)
    pool = poisoned(300, *given.row)
    given.run(capture_all(0, range(1, 301), range(300)), pool, implementation)
    expected = given.truth()
    for depth in (1, 63, 65, 100, 191, 299):
        rest = given.after(depth, pool[depth - 1 : depth])
        resumed = rest.run(implementation=implementation)
        assert relative_error(resumed.output, expected.output[depth:]) <= TOLERANCE
        assert relative_error(resumed.final_state, expected.final_state) <= TOLERANCE


def test_wrong_states_fail_where_the_captured_one_passes(recurrence: Recurrence[Any, Any]) -> None:
    given = make_pass(recurrence, (400,), decay=SLOW)
    pool = poisoned(400, *given.row)
    given.run(capture_all(0, range(1, 401), range(400)), pool)
    expected = given.truth()
    depth = 192
    right = pool[depth - 1 : depth]
    candidates = {
        "captured": right,
        "zeros": torch.zeros_like(right),
        "the chunk before": pool[depth - 65 : depth - 64],
        "rounded to bfloat16": right.bfloat16().float(),
    }
    errors = {}
    for name, state in candidates.items():
        resumed = given.after(depth, state).run()
        errors[name] = relative_error(resumed.output, expected.output[depth:])
        print(f"resumed from {name}: relative error {errors[name]:.1e}")
    assert errors.pop("captured") <= TOLERANCE
    assert min(errors.values()) > 10 * TOLERANCE


@pytest.mark.parametrize(
    ("captures", "message"),
    [
        (Captures(torch.tensor([0]), torch.tensor([11]), torch.tensor([0])), "depth: got 11"),
        (Captures(torch.tensor([0]), torch.tensor([0]), torch.tensor([0])), "depth: got 0"),
        (Captures(torch.tensor([2]), torch.tensor([1]), torch.tensor([0])), "sequence: got 2"),
        (Captures(torch.tensor([0]), torch.tensor([1]), torch.tensor([4])), "slot: got 4"),
        (Captures(torch.tensor([0]), torch.tensor([1]), torch.tensor([-1])), "slot: got -1"),
        (
            Captures(torch.tensor([0, 1]), torch.tensor([1, 1]), torch.tensor([3, 3])),
            "need distinct slots",
        ),
    ],
)
def test_bad_captures_are_refused(
    recurrence: Recurrence[Any, Any], captures: Captures, message: str
) -> None:
    given = make_pass(recurrence, (10, 5))
    pool = poisoned(4, *given.row)
    with pytest.raises(ValueError, match=message):
        given.run(captures, pool)
    assert same_bits(pool, poisoned(4, *given.row))


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ((torch.tensor([0, 1]), torch.tensor([1]), torch.tensor([0])), ValueError, "lengths: got"),
        ((torch.tensor([0]), torch.tensor([1.0]), torch.tensor([0])), ValueError, "depth: got"),
        ((torch.tensor([0]), torch.tensor([1]), torch.tensor([True])), ValueError, "slot: got"),
        ((torch.tensor([0]), torch.tensor([1]), torch.tensor(0)), ValueError, "slot: got"),
        ((torch.tensor([0]), [1], torch.tensor([0])), TypeError, "captures.depth: got list"),
        ((None, torch.tensor([1]), torch.tensor([0])), TypeError, "captures.sequence: got None"),
    ],
)
def test_captures_are_three_tensors_of_integers(
    columns: tuple[Any, Any, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Captures(*columns)


def test_captures_take_any_integers(recurrence: Recurrence[Any, Any]) -> None:
    given = make_pass(recurrence, (100, 70))
    wide, narrow = poisoned(3, *given.row), poisoned(3, *given.row)
    columns = (torch.tensor(x) for x in ([1, 0], [64, 99], [2, 0]))
    sequence, depth, slot = columns
    given.run(Captures(sequence, depth, slot), wide)
    given.run(Captures(sequence.to(torch.uint8), depth.int(), slot.to(torch.int16)), narrow)
    assert same_bits(wide, narrow)


def test_no_gradient_follows_states_into_the_pool(
    recurrence: Recurrence[Any, Any], implementation: Implementation
) -> None:
    given = make_pass(recurrence, (100,))
    captures = capture_all(0, range(60, 70), range(10))
    plain, pool = poisoned(10, *given.row), poisoned(10, *given.row)
    expected = given.run(captures, plain, implementation)
    training = replace(given, inputs=given.inputs.map(lambda x: x.clone().requires_grad_()))
    for _ in range(2):
        result = training.run(captures, pool, implementation)
        assert pool.grad_fn is None
        assert not pool.requires_grad
    assert same_bits(pool, plain)
    assert same_bits(result.output, expected.output)


@pytest.mark.parametrize(
    ("pool", "error", "message"),
    [
        *(
            (lambda row, t=t: torch.zeros(2, *row, dtype=t), ValueError, "pool: got torch")
            for t in (torch.int8, torch.int32, torch.bool, torch.complex64)
        ),
        (lambda row: torch.zeros(1, *row).expand(2, *row), ValueError, "pool: got strides"),
        (lambda row: torch.zeros(()), ValueError, r"pool: got shape \(\); need \[slots, "),
        (lambda row: torch.zeros(2, *row).tolist(), TypeError, "pool: got list"),
        (lambda row: torch.zeros(2, *row).numpy(), TypeError, "pool: got ndarray"),
    ],
)
def test_bad_pools_are_refused(
    recurrence: Recurrence[Any, Any],
    pool: Callable[[tuple[int, ...]], Any],
    error: type[Exception],
    message: str,
) -> None:
    given = make_pass(recurrence, (10,))
    bad = pool(given.row)
    with pytest.raises(error, match=message):
        given.run(capture_all(0, range(1, 2), range(1)), bad)
    assert not np.any(np.asarray(bad))
    with pytest.raises(error, match=message):
        step(recurrence, given.before(1).inputs, pool=bad, slots=torch.tensor([0]))
    assert not np.any(np.asarray(bad))


def test_captures_and_pool_come_together(recurrence: Recurrence[Any, Any]) -> None:
    given = make_pass(recurrence, (10,))
    with pytest.raises(ValueError, match="pool: got None"):
        given.run(capture_all(0, range(1, 2), range(1)))
    with pytest.raises(TypeError, match="captures: got tuple; need Captures"):
        given.run(([0], [1], [0]), poisoned(2, *given.row))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pool: got shape"):
        given.run(capture_all(0, range(1, 2), range(1)), poisoned(2, 4, 32, 31))
