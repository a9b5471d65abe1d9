"""Seeded prompts of printable bytes, which the tiny model's tokenizer maps to themselves."""

from __future__ import annotations

import random


def words(count: int, seed: int) -> list[int]:
    """Return `count` token ids that look like words, the same ones for the same seed."""
    draw = random.Random(seed)
    text = bytearray()
    while len(text) < count:
        text += bytes(draw.randrange(97, 123) for _ in range(draw.randrange(2, 9))) + b" "
    return list(text[:count])
