"""Decayed products inside a chunk against their definition, whatever the decays."""

from __future__ import annotations

import pytest
import torch
from cases import TOLERANCE, relative_error

from state_kernels.chunked.decay import decayed_products, summed

R, H, HV, K = 3, 2, 4, 20


def defined(left: torch.Tensor, right: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
    """Return the products ``[R, HV, 64, 64]`` of one kind, term by term in float64."""
    left, right = (x.double().repeat_interleave(HV // H, dim=1) for x in (left, right))
    later_than = torch.ones(64, 64, dtype=torch.bool).tril()[..., None]
    exponent = sums[:, :, :, None] - sums[:, :, None]
    decay = exponent.masked_fill(~later_than, -torch.inf).exp()
    return (left[:, :, :, None] * decay * right[:, :, None]).sum(dim=-1)


DECAYS = {
    "none": torch.zeros(64),
    "slow": torch.full((64,), 1e-4),
    "a token's": torch.full((64,), 30.0),
    "past what float32 can divide by": torch.full((64,), 200.0),
    "strong ones among slow ones": torch.where(torch.arange(64) % 7 == 0, 300.0, 1e-4),
}


@pytest.mark.parametrize("decays_of", [1, K], ids=["heads", "keys"])
@pytest.mark.parametrize("decay", DECAYS.values(), ids=DECAYS.keys())
def test_products_are_as_defined(decay: torch.Tensor, decays_of: int) -> None:
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(R, H, 2 * 64, K, generator=generator)
    right = torch.randn(R, H, 3 * 64, K, generator=generator)
    spread = 0.5 + torch.rand(R, HV, 64, decays_of, generator=generator)
    sums = summed(-decay[:, None] * spread)
    products = decayed_products(left, right, sums)
    assert products.shape == (R, HV, 2, 3, 64, 64)
    for n, of_left in enumerate(torch.split(left, 64, dim=2)):
        for m, of_right in enumerate(torch.split(right, 64, dim=2)):
            expected = defined(of_left, of_right, sums)
            assert relative_error(products[:, :, n, m], expected) <= TOLERANCE
            other = defined(of_left, of_right.roll(1, dims=2), sums)
            assert relative_error(products[:, :, n, m], other) > 100 * TOLERANCE


def test_a_decay_on_the_wrong_side_of_its_token_is_caught() -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, R, H, 64, K, generator=generator)
    log_decay = -0.1 * torch.rand(R, HV, 64, K, generator=generator)
    sums = summed(log_decay)
    shifted = decayed_products(left, right, sums - log_decay)
    assert relative_error(shifted[:, :, 0, 0], defined(left, right, sums)) > 100 * TOLERANCE
