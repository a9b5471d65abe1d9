"""A sequence's result is the same to the bit under cuts on the grid and in any batch."""

from __future__ import annotations

import pytest
import torch
from state_kernels_inputs import (
    Inputs,
    Size,
    capture_all,
    cumulative,
    make_inputs,
    poisoned,
    run,
    same_bits,
)

from state_kernels import causal_convolution, gated_delta_rule_step

SIZES = [
    Size(heads=2, value_heads=4, key_size=32, value_size=32),
    Size(heads=1, value_heads=1, key_size=64, value_size=64),
    Size(heads=3, value_heads=3, key_size=20, value_size=12),
    Size(heads=2, value_heads=2, key_size=128, value_size=128),
]


@pytest.mark.parametrize("size", SIZES)
def test_cut_and_resumed(size: Size) -> None:
    inputs = make_inputs((650,), decay=(1e-4, 1e-1), size=size)
    depths = range(64, 650, 64)
    pool = poisoned(len(depths), *inputs.initial_state.shape[1:])
    whole = run(inputs, capture_all(0, depths, range(len(depths))), pool)
    for slot, depth in enumerate(depths):
        state = pool[slot : slot + 1]
        resumed = run(inputs.after(depth, state))
        assert same_bits(resumed.output, whole.output[depth:])
        assert same_bits(resumed.final_state, whole.final_state)
        assert same_bits(run(inputs.before(depth)).final_state, state)


def test_a_state_off_by_one_bit_is_caught() -> None:
    inputs = make_inputs((200,), decay=(1e-4, 1e-2))
    pool = poisoned(1, *inputs.initial_state.shape[1:])
    whole = run(inputs, capture_all(0, range(64, 65), range(1)), pool)
    pool[0, 0, 0, 0] = torch.nextafter(pool[0, 0, 0, 0], torch.tensor(torch.inf))
    resumed = run(inputs.after(64, pool))
    assert not same_bits(resumed.final_state, whole.final_state)


def assert_same_in_batch(inputs: Inputs, batches: list[list[int]]) -> None:
    bounds = inputs.cu_seqlens.tolist()
    whole = run(inputs)
    for batch in batches:
        part = run(inputs.pick(batch))
        tokens = torch.cat([torch.arange(bounds[n], bounds[n + 1]) for n in batch])
        assert same_bits(part.output, whole.output[tokens])
        assert same_bits(part.final_state, whole.final_state[batch])


@pytest.mark.parametrize("size", SIZES)
def test_batches_of_one_to_eight(size: Size) -> None:
    inputs = make_inputs((1, 63, 64, 65, 200, 127, 333, 20), size=size)
    alone = [[n] for n in range(8)]
    growing = [list(range(8))[:n] for n in range(2, 8)]
    mixed = [[7, 6, 5, 4, 3, 2, 1, 0], [6, 0], [3, 6, 1], [5, 4, 0, 2]]
    assert_same_in_batch(inputs, alone + growing + mixed)


def test_long_sequences_in_a_batch() -> None:
    inputs = make_inputs((3000, 5, 1029, 2048), size=Size(heads=1, value_heads=2))
    assert_same_in_batch(inputs, [[0], [1], [2], [3], [3, 0], [1, 2]])


@pytest.mark.parametrize("size", SIZES)
def test_decoding_rows(size: Size) -> None:
    inputs = make_inputs((9,), size=size)
    pool = torch.randn(9, *inputs.initial_state.shape[1:])
    together = pool.clone()
    output = gated_delta_rule_step(
        *inputs.packed, pool=together, slots=torch.arange(9), qk_l2norm=True
    )
    for rows in ([0], [8], [2, 5], [7, 1, 3, 4]):
        apart = pool.clone()
        part = gated_delta_rule_step(
            *(x[rows] for x in inputs.packed),
            pool=apart,
            slots=torch.tensor(rows),
            qk_l2norm=True,
        )
        assert same_bits(part, output[rows])
        assert same_bits(apart[rows], together[rows])


@pytest.mark.parametrize("channels", [1, 37, 192])
def test_convolution_cut_anywhere_and_batched(channels: int) -> None:
    lengths = (1, 2, 500, 64, 3, 117)
    x = torch.randn(sum(lengths), channels, generator=torch.Generator().manual_seed(0))
    weight, bias = torch.randn(channels, 4), torch.randn(channels)
    windows = torch.randn(len(lengths), channels, 3)
    bounds = cumulative(lengths).tolist()
    whole = causal_convolution(
        x,
        weight,
        bias,
        cu_seqlens=cumulative(lengths),
        initial_window=windows,
        activation="silu",
    )
    for sequence, length in enumerate(lengths):
        tokens = x[bounds[sequence] : bounds[sequence + 1]]
        for cut in {1, 2, length // 2, length - 1} & set(range(1, length)):
            window = windows[sequence : sequence + 1]
            outputs = []
            for part in (tokens[:cut], tokens[cut:]):
                output, window = causal_convolution(
                    part,
                    weight,
                    bias,
                    cu_seqlens=cumulative((len(part),)),
                    initial_window=window,
                    activation="silu",
                )
                outputs.append(output)
            assert same_bits(
                torch.cat(outputs), whole.output[bounds[sequence] : bounds[sequence + 1]]
            )
            assert same_bits(window[0], whole.final_window[sequence])


@pytest.mark.usefixtures("two_threads")
def test_two_threads() -> None:
    inputs = make_inputs((150, 64, 1), size=Size(heads=1, value_heads=2))
    assert_same_in_batch(inputs, [[0], [1, 2]])
    alone = inputs.pick([0])
    pool = poisoned(1, *inputs.initial_state.shape[1:])
    whole = run(alone, capture_all(0, range(64, 65), range(1)), pool)
    resumed = run(alone.after(64, pool))
    assert same_bits(resumed.output, whole.output[64:])
    assert same_bits(resumed.final_state, whole.final_state)
