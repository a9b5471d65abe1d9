"""Every recurrence's Triton kernels against the token-by-token form in float64.

`test_triton` runs this file in a process of its own, because Triton is told of its interpreter
before it is imported: under the interpreter in small shapes, on a GPU in full ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from cases import (
    SLOW,
    TOLERANCE,
    Pass,
    forgetting,
    make_pass,
    poisoned,
    relative_error,
    same_bits,
)

from state_kernels import KDA, Captures, GatedDeltaRule, Recurrence, run
from state_kernels.recurrence import Sizes
from state_kernels.recurrences.gated_delta_rule import GatedDeltaInputs
from state_kernels.recurrences.kda import KDAInputs

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
ODD = Sizes(1, 2, 20, 36) if INTERPRETED else Sizes(3, 6, 100, 72)
EVEN = Sizes(1, 1, 16, 16) if INTERPRETED else Sizes(16, 32, 128, 128)
LARGE = Sizes(1, 1, 64, 64) if INTERPRETED else Sizes(2, 2, 128, 256)
LENGTHS = (1, 65, 0, 130) if INTERPRETED else (1, 65, 0, 2049, 63, 64, 127, 500)
ANY_DECAY = (1e-4, 30.0)


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    """Fill whatever is allocated and not written with NaN."""
    torch.use_deterministic_algorithms(True)
    assert torch.zeros(1, device=DEVICE).new_empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


def surrounded(x: torch.Tensor) -> torch.Tensor:
    """Return x on the device with NaN before and after it in memory."""
    margin = torch.full((64, *x.shape[1:]), torch.nan, dtype=x.dtype)
    return torch.cat([margin, x, margin]).to(DEVICE)[64:-64]


def on_device(given: Pass) -> Pass:
    return replace(
        given,
        inputs=given.inputs.map(surrounded),
        initial_state=surrounded(given.initial_state),
    )


def assert_equal_to_truth(given: Pass) -> None:
    got, expected = given.run(implementation="triton"), given.truth()
    assert relative_error(got.output, expected.output) <= TOLERANCE
    assert relative_error(got.final_state, expected.final_state) <= TOLERANCE


def captures_of(lengths: tuple[int, ...]) -> Captures:
    """Return the first and the last state of each sequence, those about 64, and the last again."""
    pairs = [
        (sequence, depth)
        for sequence, length in enumerate(lengths)
        for depth in sorted({1, 63, 64, 65, length - 1, length})
        if 1 <= depth <= length
    ]
    pairs += [(n, length) for n, length in enumerate(lengths) if length]
    sequence, depth = torch.tensor(pairs).T
    slots = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(0))
    return Captures(sequence.contiguous(), depth.contiguous(), slots + 1)


def test_captures_of_a_mixed_batch(recurrence: Recurrence[Any, Any]) -> None:
    given = on_device(make_pass(recurrence, LENGTHS, sizes=ODD, decay=ANY_DECAY))
    captures = captures_of(LENGTHS)
    slots = len(captures.slot) + 2
    pool = poisoned(slots, *given.row).to(DEVICE)
    exact = poisoned(slots, *given.row, dtype=torch.float64).to(DEVICE)
    got, expected = given.run(captures, pool, "triton"), given.truth(captures, exact)
    assert relative_error(got.output, expected.output) <= TOLERANCE
    assert relative_error(got.final_state, expected.final_state) <= TOLERANCE
    for slot in captures.slot.tolist():
        assert relative_error(pool[slot], exact[slot]) <= TOLERANCE
    untouched = [0, slots - 1]
    assert same_bits(pool[untouched], poisoned(2, *given.row).to(DEVICE))
    ends = [n for n, length in enumerate(LENGTHS) if length]
    first_ends = [
        int(captures.slot[(captures.sequence == n) & (captures.depth == LENGTHS[n])][0])
        for n in ends
    ]
    assert same_bits(pool[first_ends], got.final_state[ends])


def test_a_neighbour_depth_is_caught(recurrence: Recurrence[Any, Any]) -> None:
    given = on_device(make_pass(recurrence, (66,), sizes=EVEN, decay=SLOW))
    depth = torch.tensor([1, 2, 63, 64, 65, 66])
    captures = Captures(torch.zeros_like(depth), depth, torch.arange(6))
    pool = poisoned(6, *given.row).to(DEVICE)
    exact = poisoned(6, *given.row, dtype=torch.float64).to(DEVICE)
    given.run(captures, pool, "triton")
    given.truth(captures, exact)
    assert max(relative_error(pool[i], exact[i]) for i in range(6)) <= TOLERANCE
    neighbours = ((0, 1), (1, 0), (2, 3), (3, 2), (3, 4), (4, 3), (4, 5), (5, 4))
    errors = [relative_error(pool[i], exact[j]) for i, j in neighbours]
    print(f"state of a neighbouring depth: relative error {min(errors):.1e} to {max(errors):.1e}")
    assert min(errors) > 100 * TOLERANCE


def apart_in_memory(x: torch.Tensor) -> torch.Tensor:
    """Return x with NaN between its elements."""
    return torch.stack([x, torch.full_like(x, torch.nan)], dim=-1)[..., 0]


def test_inputs_with_strides(recurrence: Recurrence[Any, Any]) -> None:
    given = on_device(make_pass(recurrence, (1, 66), sizes=EVEN, decay=SLOW))
    apart = replace(
        given,
        inputs=given.inputs.map(apart_in_memory),
        initial_state=apart_in_memory(given.initial_state),
    )
    assert_equal_to_truth(apart)


def test_a_pass_that_writes_where_another_sequence_starts(
    recurrence: Recurrence[Any, Any],
) -> None:
    given = on_device(make_pass(recurrence, (1, 66), sizes=EVEN, decay=SLOW))
    captures = Captures(torch.tensor([0, 1]), torch.tensor([1, 1]), torch.tensor([1, 0]))
    exact = given.initial_state.double()
    expected = given.truth(captures, exact)
    pool = given.initial_state.clone()
    got = replace(given, initial_state=pool).run(captures, pool, "triton")
    assert relative_error(got.output, expected.output) <= TOLERANCE
    assert relative_error(got.final_state, expected.final_state) <= TOLERANCE
    assert relative_error(pool, exact) <= TOLERANCE


@pytest.mark.parametrize("log_decay", [torch.finfo(torch.float32).min, -torch.inf])
def test_tokens_that_forget_all(recurrence: Recurrence[Any, Any], log_decay: float) -> None:
    given = on_device(forgetting(make_pass(recurrence, (130,), sizes=EVEN, decay=SLOW), log_decay))
    assert_equal_to_truth(given)


@pytest.mark.parametrize(("dtype", "length"), [(torch.bfloat16, 63), (torch.float16, 64)])
def test_half_inputs_and_pool(
    recurrence: Recurrence[Any, Any], dtype: torch.dtype, length: int
) -> None:
    rounded = make_pass(recurrence, (length,), sizes=EVEN).to(dtype)
    given = on_device(replace(rounded, initial_state=rounded.initial_state.float()))
    captures = Captures(torch.tensor([0, 0]), torch.tensor([length, 17]), torch.tensor([2, 0]))
    # Every second row of a larger pool, keys before values in memory.
    heads, values, keys = given.row
    pool = torch.full((6, heads, keys, values), torch.nan, dtype=dtype, device=DEVICE)
    pool = pool.transpose(2, 3)[::2]
    exact = poisoned(3, *given.row, dtype=torch.float64).to(DEVICE)
    got, expected = given.run(captures, pool, "triton"), given.truth(captures, exact)
    assert got.output.dtype == dtype
    assert relative_error(got.output, expected.output) <= torch.finfo(dtype).eps
    assert relative_error(got.final_state, expected.final_state) <= TOLERANCE
    # Triton's interpreter drops the last bits of bfloat16 where a GPU rounds.
    if dtype != torch.bfloat16 or not INTERPRETED:
        assert same_bits(pool[2], got.final_state[0].to(dtype))
    assert relative_error(pool[2], exact[2]) <= torch.finfo(dtype).eps
    assert relative_error(pool[0], exact[0]) <= torch.finfo(dtype).eps
    assert bool(pool[1].isnan().all())


def test_without_initial_state(recurrence: Recurrence[Any, Any]) -> None:
    given = on_device(make_pass(recurrence, (65,), sizes=EVEN))
    got = run(
        recurrence, given.inputs, cu_seqlens=given.cu_seqlens.to(DEVICE), implementation="triton"
    )
    expected = replace(given, initial_state=torch.zeros_like(given.initial_state)).truth()
    assert relative_error(got.output, expected.output) <= TOLERANCE
    assert relative_error(got.final_state, expected.final_state) <= TOLERANCE
    assert relative_error(got.output, given.truth().output) > TOLERANCE


@pytest.mark.parametrize("rule", [GatedDeltaRule(0.7, qk_l2norm=True), KDA(0.7, qk_l2norm=True)])
def test_options_in_large_heads(rule: Recurrence[Any, Any]) -> None:
    given = on_device(make_pass(rule, (20,), sizes=LARGE))
    assert_equal_to_truth(given)
    got = given.run(implementation="triton").output
    plain = replace(given, recurrence=type(rule)())
    assert relative_error(got, plain.truth().output) > TOLERANCE


@pytest.mark.parametrize("rule", [GatedDeltaRule(), KDA()])
def test_repeated_keys_without_decay_stay_accurate(rule: Recurrence[Any, Any]) -> None:
    # The worst case for the triangular inverse: every product of keys is one.
    given = make_pass(rule, (64,), sizes=EVEN, decay=(1e-7, 1e-6))
    inputs = given.inputs
    assert isinstance(inputs, GatedDeltaInputs | KDAInputs)
    repeated = replace(
        inputs, k=inputs.k[:1].expand_as(inputs.k), beta=torch.ones_like(inputs.beta)
    )
    assert_equal_to_truth(on_device(replace(given, inputs=repeated)))


def test_one_wrong_token_is_caught(recurrence: Recurrence[Any, Any]) -> None:
    given = on_device(make_pass(recurrence, (20,), sizes=EVEN))
    v = given.inputs.v.clone()
    v[10] *= 1.01
    wrong = replace(given, inputs=replace(given.inputs, v=v)).run(implementation="triton")
    assert relative_error(wrong.output, given.truth().output) > TOLERANCE


def test_no_tokens(recurrence: Recurrence[Any, Any]) -> None:
    given = on_device(make_pass(recurrence, (0, 0), sizes=EVEN))
    got = given.run(implementation="triton")
    assert got.output.shape[0] == 0
    assert same_bits(got.final_state, given.initial_state)


def test_inputs_that_no_kernel_takes_are_refused() -> None:
    given = on_device(make_pass(GatedDeltaRule(), (3,), sizes=EVEN))
    with pytest.raises(ValueError, match=r"got 'triton' for torch\.float64"):
        given.to(torch.float64).run(implementation="triton")
    beta = replace(given.inputs, beta=given.inputs.beta.double())
    with pytest.raises(ValueError, match=r"got 'triton' for torch\.float64"):
        replace(given, inputs=beta).run(implementation="triton")
    wide = on_device(make_pass(GatedDeltaRule(), (3,), sizes=Sizes(1, 1, 129, 16)))
    with pytest.raises(ValueError, match="got 'triton' for K = 129"):
        wide.run(implementation="triton")
