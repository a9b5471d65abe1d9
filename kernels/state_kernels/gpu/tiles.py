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
def reciprocal_norms(  # type: ignore[no-untyped-def]
    packed,
    token,
    count,
    head,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    COLUMNS: tl.constexpr,
    L2NORM: tl.constexpr,
):
    """Return factors ``[ROWS, 1]`` that normalise vectors of the first `count` tokens, or ones."""
    squares = tl.zeros([ROWS, 1], dtype=tl.float32)
    if L2NORM:
        for part in tl.static_range(PARTS):
            x = load_tokens(
                packed, token, 0, count, head, part * COLUMNS, HEADS, SIZE, ROWS, COLUMNS
            )
            squares += tl.sum(x * x, axis=1)[:, None]
        factors = 1.0 / tl.sqrt(squares + L2_NORM_EPSILON)
    else:
        factors = squares + 1.0
    return factors


@triton.jit
def load_log_decay(  # type: ignore[no-untyped-def]
    log_decay,
    token,
    low,
    high,
    head,
    column,
    HEADS: tl.constexpr,
    DECAYS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Load log decays of keys ``[ROWS, COLUMNS]``, or of a head ``[ROWS, 1]`` if it has but one."""
    if DECAYS == 1:
        steps = load_tokens(log_decay, token, low, high, head, 0, HEADS, 1, ROWS, 1)
    else:
        steps = load_tokens(log_decay, token, low, high, head, column, HEADS, DECAYS, ROWS, COLUMNS)
    return steps


@triton.jit
def decay_from_start(  # type: ignore[no-untyped-def]
    log_decay,
    token,
    count,
    head,
    column,
    HEADS: tl.constexpr,
    DECAYS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BEFORE: tl.constexpr,
):
    """Return the decay ``[ROWS, COLUMNS or 1]`` up to after each token, or up to before it."""
    shift = 1 if BEFORE else 0
    steps = load_log_decay(
        log_decay, token - shift, shift, count, head, column, HEADS, DECAYS, ROWS, COLUMNS
    )
    return tl.exp(tl.cumsum(steps, axis=0))


@triton.jit
def log_decay_to_end(  # type: ignore[no-untyped-def]
    log_decay,
    token,
    count,
    head,
    column,
    HEADS: tl.constexpr,
    DECAYS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Return the log decay ``[ROWS, COLUMNS or 1]`` from after each token to after the last."""
    steps = load_log_decay(
        log_decay, token + 1, 0, count - 1, head, column, HEADS, DECAYS, ROWS, COLUMNS
    )
    return tl.cumsum(steps, axis=0, reverse=True)


@triton.jit
def log_decay_of_all(  # type: ignore[no-untyped-def]
    log_decay,
    token,
    count,
    head,
    column,
    HEADS: tl.constexpr,
    DECAYS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Return the log decay ``[1, COLUMNS or 1]`` over all tokens."""
    steps = load_log_decay(log_decay, token, 0, count, head, column, HEADS, DECAYS, ROWS, COLUMNS)
    return tl.sum(steps, axis=0)[None, :]


@triton.jit
def load_matrix(base, index, STRICT: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load lower triangular matrix `index` of ``[..., SIZE, SIZE]``, reading nothing above it."""
    i = tl.arange(0, SIZE)[:, None]
    j = tl.arange(0, SIZE)[None, :]
    below = i > j if STRICT else i >= j
    return tl.load(base + index * SIZE * SIZE + i * SIZE + j, mask=below, other=0.0)
