"""Decayed products of a chunk's vectors: ``sum_k left_ik exp(G_ik - G_jk) right_jk`` for j <= i."""

from __future__ import annotations

import triton
import triton.language as tl

from state_kernels.gpu.tiles import (
    PRECISION,
    decay_from_start,
    l2_normalised,
    load_tokens,
    load_vectors,
    log_decay_of_all,
    log_decay_to_end,
)


@triton.jit
def products_of_heads(  # type: ignore[no-untyped-def]
    left,
    right,
    log_decay,
    chunks,
    products,
    scale,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    BLOCK_K: tl.constexpr,
    CHUNK: tl.constexpr,
    L2NORM: tl.constexpr,
):
    """Write ``[R, HV, CHUNK, CHUNK]`` under decays ``[T, HV]``; the grid is [R, HV].

    `chunks` ``[R, 2]`` has each chunk's first token and number of tokens.
    """
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token, count = tl.load(chunks + 2 * row), tl.load(chunks + 2 * row + 1)
    key_head = head // (HV // H)
    later = load_vectors(left, token, count, key_head, H, K, CHUNK, BLOCK_K, L2NORM) * scale
    earlier = load_vectors(right, token, count, key_head, H, K, CHUNK, BLOCK_K, L2NORM)
    i = tl.arange(0, CHUNK)[:, None]
    j = tl.arange(0, CHUNK)[None, :]
    steps = load_tokens(log_decay, token, 0, count, head, 0, HV, 1, CHUNK, 1)
    decay = tl.exp(tl.cumsum(tl.where(i > j, steps, 0.0), axis=0))
    result = tl.dot(later, tl.trans(earlier), input_precision=PRECISION) * decay
    place = products + (row * HV + head) * CHUNK * CHUNK + i * CHUNK + j
    tl.store(place, result, mask=i >= j)


@triton.jit
def products_of_keys(  # type: ignore[no-untyped-def]
    left,
    right,
    log_decay,
    chunks,
    products,
    scale,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    BLOCK_K: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    BEFORE: tl.constexpr,
    L2NORM: tl.constexpr,
):
    """Write ``[R, HV, CHUNK, CHUNK]`` under decays ``[T, HV, K]``; the grid is [R, HV, blocks].

    A program has one block of later tokens. Towards a block of earlier tokens the decay falls
    into three that are each at most 1: to that block's end, over the blocks between, and from
    the later block's start. With `BEFORE` it ends before the later token, and only ``j < i`` count.
    """
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token, count = tl.load(chunks + 2 * row), tl.load(chunks + 2 * row + 1)
    key_head = head // (HV // H)
    block = tl.program_id(2)
    first = token + block * BLOCK
    here = count - block * BLOCK
    shift = 1 if BEFORE else 0
    i = tl.arange(0, BLOCK)[:, None]
    j = tl.arange(0, BLOCK)[None, :]
    diagonal = products + (row * HV + head) * CHUNK * CHUNK + block * BLOCK * (CHUNK + 1)
    place = diagonal + i * CHUNK + j

    later = load_vectors(left, first, here, key_head, H, K, BLOCK, BLOCK_K, L2NORM) * scale
    reads = later * decay_from_start(log_decay, first, here, head, 0, HV, K, BLOCK, BLOCK_K, BEFORE)
    between = tl.zeros([1, BLOCK_K], dtype=tl.float32)
    for back in range(1, block + 1):
        start = first - back * BLOCK
        there = tl.minimum(here + back * BLOCK, BLOCK)
        earlier = load_vectors(right, start, there, key_head, H, K, BLOCK, BLOCK_K, L2NORM)
        to_end = log_decay_to_end(log_decay, start, there, head, 0, HV, K, BLOCK, BLOCK_K)
        earlier = earlier * tl.exp(to_end + between)
        result = tl.dot(reads, tl.trans(earlier), input_precision=PRECISION)
        tl.store(place - back * BLOCK, result)
        between += log_decay_of_all(log_decay, start, there, head, 0, HV, K, BLOCK, BLOCK_K)

    column = tl.arange(0, BLOCK_K)[None, :]
    result = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
    decay = tl.zeros([BLOCK, BLOCK_K], dtype=tl.float32)
    for back in range(BLOCK):
        at = BLOCK - 1 - back
        # From one column to the one before it, only one token's decay comes in.
        step = tl.load(
            log_decay + ((first + at + 1) * HV + head) * K + column,
            mask=(column < K) & (back > 0) & (at + 1 < here),
            other=0.0,
        ).to(tl.float32)
        decay += tl.where(i > at + shift, step, 0.0)
        key = tl.load(
            right + ((first + at) * H + key_head) * K + column,
            mask=(column < K) & (at < here),
            other=0.0,
        ).to(tl.float32)
        if L2NORM:
            key = l2_normalised(key)
        product = tl.sum(later * tl.exp(decay) * key, axis=1)
        result = tl.where(j == at, product[:, None], result)
    tl.store(place, result, mask=i >= j + shift)
