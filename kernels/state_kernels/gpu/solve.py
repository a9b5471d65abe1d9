"""The corrections of a chunk, solved: ``U = M V + W S^T`` for its start state S."""

from __future__ import annotations

import triton
import triton.language as tl

from state_kernels.gpu.tiles import (
    PRECISION,
    decay_from_start,
    load_matrix,
    load_tokens,
    load_vectors,
)


@triton.jit
def unit_lower_inverse(lower, LEVELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return ``(I + lower)^-1`` of a strictly lower triangular matrix of size ``2 ** LEVELS``.

    Inverses of diagonal blocks are joined in pairs, ``-Q^-1 L P^-1`` below them, twice the size
    each time, all blocks in one product.
    """
    i = tl.arange(0, 1 << LEVELS)[:, None]
    j = tl.arange(0, 1 << LEVELS)[None, :]
    inverse = tl.where(i == j, 1.0, tl.where(i // 2 == j // 2, -lower, 0.0))
    for level in tl.static_range(1, LEVELS):
        half = 1 << level
        joins = (i // (2 * half) == j // (2 * half)) & (i // half != j // half)
        joined = tl.dot(tl.where(joins, lower, 0.0), inverse, input_precision=PRECISION)
        inverse -= tl.dot(inverse, joined, input_precision=PRECISION)
    return inverse


@triton.jit
def solve_delta(  # type: ignore[no-untyped-def]
    k,
    beta,
    log_decay,
    chunks,
    values_to_writes,
    state_to_writes,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    DECAYS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    LEVELS: tl.constexpr,
    L2NORM: tl.constexpr,
):
    """Turn the decayed products of keys in `values_to_writes` into M in place; write W.

    ``M = (I + diag(beta) P)^-1 diag(beta)`` and ``W = -M exp(G) K``; the grid is [R, HV].
    """
    CHUNK: tl.constexpr = 1 << LEVELS
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token, count = tl.load(chunks + 2 * row), tl.load(chunks + 2 * row + 1)
    matrix = row * HV + head
    i = tl.arange(0, CHUNK)[:, None]
    j = tl.arange(0, CHUNK)[None, :]
    rates = load_tokens(beta, token, 0, count, head, 0, HV, 1, CHUNK, 1)
    system = load_matrix(values_to_writes, matrix, True, CHUNK) * rates
    solved = unit_lower_inverse(system, LEVELS) * tl.trans(rates)
    tl.store(values_to_writes + matrix * CHUNK * CHUNK + i * CHUNK + j, solved)
    keys = load_vectors(k, token, count, head // (HV // H), H, K, CHUNK, BLOCK_K, L2NORM)
    keys *= decay_from_start(
        log_decay, token, count, head, 0, HV, DECAYS, CHUNK, BLOCK_K, BEFORE=False
    )
    column = tl.arange(0, BLOCK_K)[None, :]
    tl.store(
        state_to_writes + (matrix * CHUNK + i) * K + column,
        -tl.dot(solved, keys, input_precision=PRECISION),
        mask=column < K,
    )


@triton.jit
def solve_low_rank(  # type: ignore[no-untyped-def]
    a,
    products_with_b,
    log_decay,
    chunks,
    values_to_writes,
    state_to_writes,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    BLOCK_K: tl.constexpr,
    LEVELS: tl.constexpr,
):
    """Turn the decayed products of a and k in `values_to_writes` into M in place; write W.

    With P those of a and b, ``M = (I - P)^-1 A`` and ``W = (I - P)^-1 exp(G') a``, G' being
    summed up to before each token; the grid is [R, HV].
    """
    CHUNK: tl.constexpr = 1 << LEVELS
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token, count = tl.load(chunks + 2 * row), tl.load(chunks + 2 * row + 1)
    matrix = row * HV + head
    i = tl.arange(0, CHUNK)[:, None]
    j = tl.arange(0, CHUNK)[None, :]
    system = load_matrix(products_with_b, matrix, True, CHUNK)
    inverse = unit_lower_inverse(-system, LEVELS)
    crossing = load_matrix(values_to_writes, matrix, True, CHUNK)
    solved = tl.dot(inverse, crossing, input_precision=PRECISION)
    tl.store(values_to_writes + matrix * CHUNK * CHUNK + i * CHUNK + j, solved)
    reads = load_vectors(a, token, count, head // (HV // H), H, K, CHUNK, BLOCK_K, False)
    reads *= decay_from_start(log_decay, token, count, head, 0, HV, K, CHUNK, BLOCK_K, BEFORE=True)
    column = tl.arange(0, BLOCK_K)[None, :]
    tl.store(
        state_to_writes + (matrix * CHUNK + i) * K + column,
        tl.dot(inverse, reads, input_precision=PRECISION),
        mask=column < K,
    )
