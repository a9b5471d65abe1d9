"""Prefill cost fitted from measurements whose true cost is known."""

import math

import numpy as np
import pytest

from tree_placement import PrefillCost
from tree_placement.fitting import fit_prefill_cost

LENGTHS = (500, 1_000, 2_000, 4_000, 8_000, 32_000, 128_000)


@pytest.mark.parametrize(
    ("linear", "quadratic", "overhead"),
    [(2e-4, 3e-9, 0.0), (2e-4, 3e-9, 0.05), (2e-4, 0.0, 0.0), (0.0, 3e-9, 0.1), (7.0, 0.0, 9.0)],
)
def test_exact_measurements_give_the_true_cost(
    linear: float, quadratic: float, overhead: float
) -> None:
    true = PrefillCost(linear, quadratic)
    fitted = fit_prefill_cost((t, overhead + float(true(t))) for t in LENGTHS)
    assert fitted.linear == pytest.approx(linear, rel=1e-9, abs=1e-9 * float(true(1_000)) / 1_000)
    assert fitted.quadratic == pytest.approx(quadratic, rel=1e-9, abs=1e-15 * float(true(1_000)))


def test_noise_averages_out() -> None:
    true, rng = PrefillCost(2e-4, 3e-9), np.random.default_rng(1)
    pairs = [
        (t, (0.02 + float(true(t))) * rng.normal(1.0, 0.03)) for t in LENGTHS for _ in range(200)
    ]
    fitted = fit_prefill_cost(pairs)
    assert fitted.linear == pytest.approx(true.linear, rel=0.05)
    assert fitted.quadratic == pytest.approx(true.quadratic, rel=0.05)


@pytest.mark.parametrize("seed", range(40))
def test_no_other_coefficients_that_are_not_negative_fit_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.uniform(0.5, 3.0, 6)
    seconds = rng.uniform(0.1, 0.4, 6) + rng.uniform(0.3, 2.0) * tokens ** rng.uniform(0.3, 3.0)
    fitted = fit_prefill_cost(zip(tokens, seconds, strict=True))
    overhead = max(float(np.mean(seconds - fitted(tokens))), 0.0)
    least = float(np.sum((overhead + fitted(tokens) - seconds) ** 2))
    base = np.array([fitted.linear, fitted.quadratic])
    for step in np.concatenate((rng.normal(0, 0.01, (200, 3)), rng.normal(0, 1.0, (200, 3)))):
        a, b = np.maximum(base + step[:2], 0.0)
        c = max(overhead + step[2], 0.0)
        other = float(np.sum((c + a * tokens + b * tokens**2 / 2 - seconds) ** 2))
        assert least <= other + 1e-12


def test_an_overhead_is_not_taken_for_the_time_of_tokens() -> None:
    with_overhead = fit_prefill_cost((t, 5.0 + 1e-3 * t) for t in LENGTHS)
    assert with_overhead.linear == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], r"pairs: got shape \(0,\); need shape \(n, 2\); "),
        ([(1, 2, 3)], r"pairs: got shape \(1, 3\); need shape \(n, 2\); "),
        ([(1, 1), (0, 1), (3, 1)], r"pairs\[1\] tokens: got 0.0; need a finite number > 0; "),
        ([(1, 1), (2, math.nan)], r"pairs\[1\] seconds: got nan; need a finite number > 0; "),
        ([(1, 1), (2, 2), (2, 3)], r"pairs: got 2 different lengths; need at least 3"),
        ([(1, 3), (2, 2), (3, 1)], r"pairs: got times that do not grow with the length; need "),
    ],
)
def test_bad_input_is_named(pairs: list, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        fit_prefill_cost(pairs)
