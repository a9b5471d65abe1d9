"""A sequence's result is the same to the bit under cuts on the grid and in any batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cases import Pass, capture_all, cumulative, make_pass, poisoned, same_bits

from state_kernels import Recurrence, causal_convolution, step
from state_kernels.recurrence import Sizes

SIZES = [
    Sizes(2, 4, 32, 32),
    Sizes(1, 1, 64, 64),
    Sizes(3, 3, 20, 12),
    Sizes(2, 2, 128, 128),
]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_cut_and_resumed(recurrence: Recurrence[Any, Any], sizes: Sizes) -> None:
    given = make_pass(recurrence, (650,), decay=(1e-4, 1e-1), sizes=sizes)
    depths = range(64, 650, 64)
    pool = poisoned(len(depths), *given.row)
    whole = given.run(capture_all(0, depths, range(len(depths))), pool)
    for slot, depth in enumerate(depths):
        state = pool[slot : slot + 1]
        resumed = given.after(depth, state).run()
        assert same_bits(resumed.output, whole.output[depth:])
        assert same_bits(resumed.final_state, whole.final_state)
        assert same_bits(given.before(depth).run().final_state, state)


def test_a_state_off_by_one_bit_is_caught(recurrence: Recurrence[Any, Any]) -> None:
    given = make_pass(recurrence, (200,), decay=(1e-4, 1e-2))
    pool = poisoned(1, *given.row)
    whole = given.run(capture_all(0, range(64, 65), range(1)), pool)
    pool = torch.nextafter(pool, torch.tensor(torch.inf))
    resumed = given.after(64, pool).run()
    assert not same_bits(resumed.final_state, whole.final_state)


def assert_same_in_batch(given: Pass, batches: list[list[int]]) -> None:
    bounds = given.cu_seqlens.tolist()
    whole = given.run()
    for batch in batches:
        part = given.pick(batch).run()
        tokens = torch.cat([torch.arange(bounds[n], bounds[n + 1]) for n in batch])
        assert same_bits(part.output, whole.output[tokens])
        assert same_bits(part.final_state, whole.final_state[batch])


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_batches_of_one_to_eight(recurrence: Recurrence[Any, Any], sizes: Sizes) -> None:
    given = make_pass(recurrence, (1, 63, 64, 65, 200, 127, 333, 20), sizes=sizes)
    alone = [[n] for n in range(8)]
    growing = [list(range(8))[:n] for n in range(2, 8)]
    mixed = [[7, 6, 5, 4, 3, 2, 1, 0], [6, 0], [3, 6, 1], [5, 4, 0, 2]]
    assert_same_in_batch(given, alone + growing + mixed)


def test_long_sequences_in_a_batch(recurrence: Recurrence[Any, Any]) -> None:
    given = make_pass(recurrence, (3000, 5, 1029, 2048), sizes=Sizes(1, 2, 32, 32))
    assert_same_in_batch(given, [[0], [1], [2], [3], [3, 0], [1, 2]])


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_decoding_rows(recurrence: Recurrence[Any, Any], sizes: Sizes) -> None:
    given = make_pass(recurrence, (9,), sizes=sizes)
    pool = torch.randn(9, *given.row)
    together = pool.clone()
    output = step(recurrence, given.inputs, pool=together, slots=torch.arange(9))
    for rows in ([0], [8], [2, 5], [7, 1, 3, 4]):
        apart = pool.clone()
        part = step(
            recurrence,
            given.inputs.map(lambda x, rows=rows: x[rows]),  # type: ignore[misc]
            pool=apart,
            slots=torch.tensor(rows),
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
def test_two_threads(recurrence: Recurrence[Any, Any]) -> None:
    given = make_pass(recurrence, (150, 64, 1), sizes=Sizes(1, 2, 32, 32))
    assert_same_in_batch(given, [[0], [1, 2]])
    alone = given.pick([0])
    pool = poisoned(1, *given.row)
    whole = alone.run(capture_all(0, range(64, 65), range(1)), pool)
    resumed = alone.after(64, pool).run()
    assert same_bits(resumed.output, whole.output[64:])
    assert same_bits(resumed.final_state, whole.final_state)
