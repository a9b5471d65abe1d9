"""Pieces that the kernels share: tiles of packed tokens, and decays inside a chunk.

Every decay is the exponential of a sum over exactly the tokens it covers, never of a difference
of sums: float32 is then enough, whatever stronger decays stand beside.
"""

from __future__ import annotations

import triton
import triton.language as tl

L2_NORM_EPSILON = tl.constexpr(1e-6)

# Three products on tensor cores that keep float32's accuracy but for the last bits. Float32's own,
# without tensor cores, spill tens of kilobytes of registers and take minutes to compile.
PRECISION = tl.constexpr("tf32x3")


@triton.jit
def l2_normalised(x):  # type: ignore[no-untyped-def]
    """Return the rows of x, each divided by its norm."""
    return x / tl.sqrt(tl.sum(x * x, axis=1) + L2_NORM_EPSILON)[:, None]


@triton.jit
def load_tokens(  # type: ignore[no-untyped-def]
    packed,
    token,
    low,
    high,
    head,
    column,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Load float32 ``[ROWS, COLUMNS]`` of packed ``[T, HEADS, SIZE]``.

    Row i is token ``token + i``, and zero unless ``low <= i < high``.
    """
    i = tl.arange(0, ROWS)
    j = column + tl.arange(0, COLUMNS)
    inside = ((i >= low) & (i < high))[:, None] & (j < SIZE)[None, :]
    place = ((token + i) * HEADS + head) * SIZE
    return tl.load(packed + place[:, None] + j[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def load_vectors(  # type: ignore[no-untyped-def]
    packed,
    token,
    count,
    head,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    L2NORM: tl.constexpr,
):
    """Load the first `count` tokens' whole vectors, normalised if asked."""
    x = load_tokens(packed, token, 0, count, head, 0, HEADS, SIZE, ROWS, COLUMNS)
    if L2NORM:
        x = l2_normalised(x)
    return x


@triton.jit
def decay_from_start(  # type: ignore[no-untyped-def]
    log_decay,
    token,
    count,
    head,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BEFORE: tl.constexpr,
):
    """Return the decay ``[ROWS, COLUMNS]`` up to after each token, or up to before it."""
    shift = 1 if BEFORE else 0
    steps = load_tokens(log_decay, token - shift, shift, count, head, 0, HEADS, SIZE, ROWS, COLUMNS)
    return tl.exp(tl.cumsum(steps, axis=0))


@triton.jit
def log_decay_to_end(  # type: ignore[no-untyped-def]
    log_decay,
    token,
    count,
    head,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Return the log decay ``[ROWS, COLUMNS]`` from after each token to after the last."""
    steps = load_tokens(log_decay, token + 1, 0, count - 1, head, 0, HEADS, SIZE, ROWS, COLUMNS)
    return tl.cumsum(steps, axis=0, reverse=True)


@triton.jit
def load_matrix(base, index, STRICT: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load lower triangular matrix `index` of ``[..., SIZE, SIZE]``, reading nothing above it."""
    i = tl.arange(0, SIZE)[:, None]
    j = tl.arange(0, SIZE)[None, :]
    below = i > j if STRICT else i >= j
    return tl.load(base + index * SIZE * SIZE + i * SIZE + j, mask=below, other=0.0)
