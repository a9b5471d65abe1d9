"""States captured in a prefill pass: exact at any depth, and nothing else is written."""

from __future__ import annotations

import pytest
import torch
from state_kernels_inputs import (
    TOLERANCE,
    capture_all,
    make_inputs,
    poisoned,
    relative_error,
    run,
    same_bits,
    truth,
)

from state_kernels import Captures

SLOW = (1e-4, 1e-2)


def test_every_depth_of_every_residue() -> None:
    inputs = make_inputs((17, 200, 64), decay=(1e-4, 5.0))
    row = inputs.initial_state.shape[1:]
    captures = capture_all(1, range(1, 201), range(2, 202))
    pool, exact = poisoned(210, *row), poisoned(210, *row, dtype=torch.float64)
    result = run(inputs, captures, pool)
    truth(inputs, captures, exact)
    errors = [relative_error(pool[slot], exact[slot]) for slot in range(2, 202)]
    assert max(errors) <= TOLERANCE
    untouched = [0, 1, *range(202, 210)]
    assert same_bits(pool[untouched], poisoned(10, *row))
    assert same_bits(pool[201], result.final_state[1])


def test_a_neighbour_depth_is_caught() -> None:
    inputs = make_inputs((200,), decay=SLOW)
    row = inputs.initial_state.shape[1:]
    pool, exact = poisoned(200, *row), poisoned(200, *row, dtype=torch.float64)
    captures = capture_all(0, range(1, 201), range(200))
    run(inputs, captures, pool)
    truth(inputs, captures, exact)
    errors = [relative_error(pool[i], exact[i + 1]) for i in range(199)]
    print(f"state of the depth before: relative error {min(errors):.1e} to {max(errors):.1e}")
    assert min(errors) > 100 * TOLERANCE


def test_captures_over_several_sequences_in_any_order() -> None:
    inputs = make_inputs((130, 3, 700, 64))
    row = inputs.initial_state.shape[1:]
    captures = Captures(
        sequence=torch.tensor([2, 0, 3, 2, 1, 0, 2, 2]),
        depth=torch.tensor([700, 1, 64, 65, 2, 128, 64, 333]),
        slot=torch.tensor([0, 7, 1, 6, 2, 5, 3, 8]),
    )
    pool, exact = poisoned(10, *row), poisoned(10, *row, dtype=torch.float64)
    run(inputs, captures, pool)
    truth(inputs, captures, exact)
    for slot in captures.slot.tolist():
        assert relative_error(pool[slot], exact[slot]) <= TOLERANCE
    assert same_bits(pool[[4, 9]], poisoned(2, *row))


def test_captures_change_no_result() -> None:
    inputs = make_inputs((130, 200))
    pool = poisoned(200, *inputs.initial_state.shape[1:])
    plain, captured = run(inputs), run(inputs, capture_all(1, range(1, 201), range(200)), pool)
    assert same_bits(plain.output, captured.output)
    assert same_bits(plain.final_state, captured.final_state)


def test_no_captures_write_nothing() -> None:
    inputs = make_inputs((70,))
    pool = poisoned(3, *inputs.initial_state.shape[1:])
    run(inputs, capture_all(0, range(0), range(0)), pool)
    assert same_bits(pool, poisoned(3, *inputs.initial_state.shape[1:]))


def test_half_pool_gets_the_float32_state_rounded_once() -> None:
    inputs = make_inputs((150,))
    row = inputs.initial_state.shape[1:]
    captures = capture_all(0, range(60, 70), range(10))
    half, full = poisoned(10, *row, dtype=torch.bfloat16), poisoned(10, *row)
    run(inputs, captures, half)
    run(inputs, captures, full)
    assert same_bits(half, full.to(torch.bfloat16))


def test_resuming_from_off_grid_depths_is_accurate() -> None:
    inputs = make_inputs((300,), decay=SLOW)
    pool = poisoned(300, *inputs.initial_state.shape[1:])
    run(inputs, capture_all(0, range(1, 301), range(300)), pool)
    expected = truth(inputs)
    for depth in (1, 63, 65, 100, 191, 299):
        resumed = run(inputs.after(depth, pool[depth - 1 : depth]))
        assert relative_error(resumed.output, expected.output[depth:]) <= TOLERANCE
        assert relative_error(resumed.final_state, expected.final_state) <= TOLERANCE


def test_wrong_states_fail_where_the_captured_one_passes() -> None:
    inputs = make_inputs((400,), decay=SLOW)
    pool = poisoned(400, *inputs.initial_state.shape[1:])
    run(inputs, capture_all(0, range(1, 401), range(400)), pool)
    expected = truth(inputs)
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
        resumed = run(inputs.after(depth, state))
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
        (Captures(torch.tensor([0, 1]), torch.tensor([1]), torch.tensor([0])), "lengths: got"),
        (Captures(torch.tensor([0]), torch.tensor([1.0]), torch.tensor([0])), "depth: got torch"),
        (
            Captures(torch.tensor([0, 1]), torch.tensor([1, 1]), torch.tensor([3, 3])),
            "need distinct slots",
        ),
    ],
)
def test_bad_captures_are_refused(captures: Captures, message: str) -> None:
    inputs = make_inputs((10, 5))
    pool = poisoned(4, *inputs.initial_state.shape[1:])
    with pytest.raises(ValueError, match=message):
        run(inputs, captures, pool)
    assert same_bits(pool, poisoned(4, *inputs.initial_state.shape[1:]))


def test_captures_and_pool_come_together() -> None:
    inputs = make_inputs((10,))
    with pytest.raises(ValueError, match="pool: got None"):
        run(inputs, capture_all(0, range(1, 2), range(1)))
    with pytest.raises(ValueError, match="pool: got shape"):
        run(inputs, capture_all(0, range(1, 2), range(1)), poisoned(2, 4, 32, 31))
