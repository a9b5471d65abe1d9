"""Placements that do not know the overlaps, against their definitions and their guarantees."""

import math

import numpy as np
import pytest

from tree_placement import expected_recompute, place
from tree_placement.path.spacing import block, logarithmic, square_root


def worst_recompute(length: int, depths: list[int]) -> int:
    states = [0, *depths]
    return max(t - max(state for state in states if state <= t) for t in range(1, length + 1))


@pytest.mark.parametrize("length", [0, 1, 2, 7, 64, 1_000])
@pytest.mark.parametrize("size", [1, 3, 8, 2_000])
def test_block_is_every_multiple(length: int, size: int) -> None:
    depths = block(length, size).tolist()
    assert depths == [t for t in range(1, length + 1) if t % size == 0]
    if 0 < size <= length:
        assert worst_recompute(length, depths) <= size - 1


@pytest.mark.parametrize("length", [*range(30), 99, 100, 101, 12_345])
def test_square_root_has_as_many_states_as_tokens_between_them(length: int) -> None:
    depths = square_root(length).tolist()
    root = math.isqrt(length)
    assert depths == [t for t in range(1, length + 1) if t % root == 0]
    assert not length or root <= len(depths) <= root + 2


@pytest.mark.parametrize("first", [1, 3, 64])
@pytest.mark.parametrize("length", [1, 2, 3, 63, 64, 65, 500, 4_096])
def test_logarithmic_recomputes_less_than_half(length: int, first: int) -> None:
    depths = logarithmic(length, first).tolist()
    assert depths == [first * 2**j for j in range(40) if first * 2**j <= length]
    for overlap in range(first, length + 1):
        assert overlap - max(state for state in depths if state <= overlap) < overlap / 2


def test_depths_on_a_grid_are_the_free_ones_rounded_down() -> None:
    for free, on_grid in (
        (block(5_000, 100), block(5_000, 100, grid=64)),
        (square_root(5_000), square_root(5_000, grid=64)),
        (logarithmic(5_000, 48), logarithmic(5_000, 48, grid=64)),
    ):
        assert on_grid.tolist() == sorted({t // 64 * 64 for t in free.tolist()} - {0})
        assert on_grid.dtype == np.int64


def test_none_beats_the_optimum_of_as_many_states() -> None:
    weights = np.random.default_rng(0).exponential(size=500) ** 3
    for depths in (block(500, 60), square_root(500), logarithmic(500)):
        optimum = place(weights, len(depths)).cost
        assert expected_recompute(weights, depths) > optimum * 1.01


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: block(-1, 4), r"length: got -1; need a whole number >= 0; "),
        (lambda: block(9, 0), r"size: got 0; need a whole number >= 1; "),
        (lambda: block(9, 2, grid=0), r"grid: got 0; need a whole number >= 1; "),
        (lambda: square_root(2.5), r"length: got 2.5; need a whole number >= 0, an int; "),
        (lambda: logarithmic(9, 0), r"first: got 0; need a whole number >= 1; "),
    ],
)
def test_bad_input_is_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        call()
