"""The one part of a pass that is sequential: the state, chunk after chunk."""

from __future__ import annotations

import triton
import triton.language as tl

from state_kernels.gpu.tiles import (
    PRECISION,
    decay_from_start,
    load_matrix,
    load_tokens,
    load_vectors,
    log_decay_to_end,
)


@triton.jit
def state_tile(  # type: ignore[no-untyped-def]
    base, row, head, values, keys, row_stride, head_stride, value_stride, key_stride
):
    """Return pointers ``[len(values), len(keys)]`` into states ``[rows, HV, V, K]``."""
    start = base + row * row_stride + head.to(tl.int64) * head_stride
    return start + values[:, None] * value_stride + keys[None, :] * key_stride


@triton.jit
def sweep(  # type: ignore[no-untyped-def]
    q,
    k,
    v,
    b,
    log_decay,
    attention_to_values,
    attention_to_writes,
    values_to_writes,
    state_to_writes,
    runs,
    kept_rows,
    output,
    start,
    final,
    final_row_stride,
    final_head_stride,
    final_value_stride,
    final_key_stride,
    pool,
    pool_row_stride,
    pool_head_stride,
    pool_value_stride,
    pool_key_stride,
    kept_starts,
    scale,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    DECAYS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_DECAYS: tl.constexpr,
    CHUNK: tl.constexpr,
    L2NORM: tl.constexpr,
    CORRECTED: tl.constexpr,
    VALUES_WRITTEN: tl.constexpr,
    STARTS_GIVEN: tl.constexpr,
    OUTPUT: tl.constexpr,
    KEEPS: tl.constexpr,
):
    """Run the chunks of a run of tokens, the state ``[BLOCK_V, K]`` in registers.

    The grid is [runs HV, blocks of V]. `runs` ``[N, 5]`` has the first token, the number of tokens,
    the first chunk, and the rows of `start` and `final`; a last chunk may have fewer tokens here
    than it was prepared for. `kept_rows` ``[R, 2]`` has, for each chunk, the row of `pool` that
    takes the state at its end and the row of `kept_starts` that takes the one at its start, or -1.
    """
    run, head = tl.program_id(0) // HV, tl.program_id(0) % HV
    first_token = tl.load(runs + 5 * run)
    length = tl.load(runs + 5 * run + 1)
    first_chunk = tl.load(runs + 5 * run + 2)
    key_head = head // (HV // H)
    first_value = tl.program_id(1) * BLOCK_V
    values = first_value + tl.arange(0, BLOCK_V)
    keys = tl.arange(0, BLOCK_K)
    inside = (values < V)[:, None] & (keys < K)[None, :]

    if STARTS_GIVEN:
        row = tl.load(runs + 5 * run + 3)
        tile = state_tile(start, row, head, values, keys, HV * V * K, V * K, K, 1)
        state = tl.load(tile, mask=inside, other=0.0).to(tl.float32)
    else:
        state = tl.zeros([BLOCK_V, BLOCK_K], dtype=tl.float32)

    for step in range(tl.cdiv(length, CHUNK)):
        token = first_token + step * CHUNK
        count = tl.minimum(length - step * CHUNK, CHUNK)
        chunk = first_chunk + step
        matrix = chunk * HV + head
        if KEEPS:
            row = tl.load(kept_rows + 2 * chunk + 1)
            if row >= 0:
                tile = state_tile(kept_starts, row, head, values, keys, HV * V * K, V * K, K, 1)
                tl.store(tile, state, mask=inside)

        written = load_tokens(v, token, 0, count, head, first_value, HV, V, CHUNK, BLOCK_V)
        if OUTPUT:
            reads = load_vectors(q, token, count, key_head, H, K, CHUNK, BLOCK_K, L2NORM) * scale
            reads *= decay_from_start(
                log_decay, token, count, head, HV, DECAYS, CHUNK, BLOCK_DECAYS, BEFORE=False
            )
            result = tl.dot(reads, tl.trans(state), input_precision=PRECISION)
            if VALUES_WRITTEN:
                attention = load_matrix(attention_to_values, matrix, False, CHUNK)
                result = tl.dot(attention, written, result, input_precision=PRECISION)
        if CORRECTED:
            i = tl.arange(0, CHUNK)[:, None]
            erase = tl.load(
                state_to_writes + (matrix * CHUNK + i) * K + keys[None, :],
                mask=(keys < K)[None, :],
                other=0.0,
            )
            mix = load_matrix(values_to_writes, matrix, False, CHUNK)
            corrections = tl.dot(mix, written, input_precision=PRECISION)
            corrections -= tl.dot(erase, tl.trans(state), input_precision=PRECISION)
            if OUTPUT:
                attention = load_matrix(attention_to_writes, matrix, False, CHUNK)
                result = tl.dot(attention, corrections, result, input_precision=PRECISION)
        steps = load_tokens(log_decay, token, 0, count, head, 0, HV, DECAYS, CHUNK, BLOCK_DECAYS)
        state *= tl.exp(tl.sum(steps, axis=0))[None, :]
        to_end = tl.exp(
            log_decay_to_end(log_decay, token, count, head, HV, DECAYS, CHUNK, BLOCK_DECAYS)
        )
        if VALUES_WRITTEN:
            along = load_vectors(k, token, count, key_head, H, K, CHUNK, BLOCK_K, L2NORM) * to_end
            state = tl.dot(tl.trans(written), along, state, input_precision=PRECISION)
        if CORRECTED:
            along = load_vectors(b, token, count, key_head, H, K, CHUNK, BLOCK_K, L2NORM) * to_end
            state = tl.dot(tl.trans(corrections), along, state, input_precision=PRECISION)

        if OUTPUT:
            i = tl.arange(0, CHUNK)
            place = ((token + i) * HV + head) * V
            tl.store(
                output + place[:, None] + values[None, :],
                result.to(output.dtype.element_ty),
                mask=(i < count)[:, None] & (values < V)[None, :],
            )
        if KEEPS:
            row = tl.load(kept_rows + 2 * chunk)
            if row >= 0:
                tile = state_tile(
                    pool,
                    row,
                    head,
                    values,
                    keys,
                    pool_row_stride,
                    pool_head_stride,
                    pool_value_stride,
                    pool_key_stride,
                )
                tl.store(tile, state.to(pool.dtype.element_ty), mask=inside)

    row = tl.load(runs + 5 * run + 4)
    tile = state_tile(
        final,
        row,
        head,
        values,
        keys,
        final_row_stride,
        final_head_stride,
        final_value_stride,
        final_key_stride,
    )
    tl.store(tile, state.to(final.dtype.element_ty), mask=inside)
