"""The identity of a token prefix, and how a state slot is marked with one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_DIGITS = torch.tensor([1, 128, 128**2, 128**3])


class Identities:
    """A number for every prefix of every token sequence in a namespace; 0 is no state at all."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, Any], int] = {}

    def root(self, namespace: str | None) -> int:
        """Return the number of the empty prefix."""
        return self._after(0, f"namespace {namespace}")

    def along(self, start: int, tokens: Sequence[int]) -> list[int]:
        """Return the numbers of the prefixes that go on from `start`, one for each token."""
        numbers = []
        for token in tokens:
            start = self._after(start, token)
            numbers.append(start)
        return numbers

    def _after(self, prefix: int, token: Any) -> int:
        return self._numbers.setdefault((prefix, token), len(self._numbers) + 1)


def write_mark(pool: Any, slot: torch.Tensor, identity: int) -> None:
    """Write an identity into a slot, in the first and last layer and the convolution's window.

    In digits of 7 bits, which bfloat16 holds exactly.
    """
    digits = (identity // _DIGITS % 128).to(torch.bfloat16)
    for place in _places(pool):
        place[int(slot)] = digits


def marks(pool: Any) -> list[int]:
    """Return the identity in every slot; -1 where its layers disagree."""
    numbers = torch.stack([(place.long() * _DIGITS).sum(-1) for place in _places(pool)])
    agreed = (numbers == numbers[0]).all(dim=0)
    identities: list[int] = torch.where(agreed, numbers[0], -1).tolist()
    return identities


def _places(pool: Any) -> list[torch.Tensor]:
    """Return views of shape [slots, 4] where a slot's identity stands."""
    layers = pool.mamba_cache
    return [layers.temporal[layer, :, 0, 0, :4] for layer in (0, -1)] + [
        layers.conv[0][layer, :, :4, 0] for layer in (0, -1)
    ]
