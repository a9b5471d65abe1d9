"""The one part of a pass that is sequential: the state, chunk after chunk."""

from __future__ import annotations

import triton
import triton.language as tl

from state_kernels.gpu.tiles import (
    PRECISION,
    decay_from_start,
    load_matrix,
    load_tokens,
    log_decay_of_all,
    log_decay_to_end,
    reciprocal_norms,
)


@triton.jit
def state_tile(base, row, head, values, keys, strides):  # type: ignore[no-untyped-def]
    """Return pointers ``[len(values), len(keys)]`` into states ``[rows, HV, V, K]``."""
    start = base + row * strides[0] + head.to(tl.int64) * strides[1]
    return start + values[:, None] * strides[2] + keys[None, :] * strides[3]


@triton.jit
def store_state(  # type: ignore[no-untyped-def]
    state,
    base,
    row,
    head,
    values,
    strides,
    K: tl.constexpr,
    V: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Store the parts of a state into a row of states ``[rows, HV, V, K]``, in their type."""
    for part in tl.static_range(PARTS):
        keys = part * BLOCK_K + tl.arange(0, BLOCK_K)
        inside = (values < V)[:, None] & (keys < K)[None, :]
        tile = state_tile(base, row, head, values, keys, strides)
        tl.store(tile, state[part].to(base.dtype.element_ty), mask=inside)


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
    PARTS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
    CHUNK: tl.constexpr,
    L2NORM: tl.constexpr,
    CORRECTED: tl.constexpr,
    VALUES_WRITTEN: tl.constexpr,
    STARTS_GIVEN: tl.constexpr,
    OUTPUT: tl.constexpr,
    KEEPS: tl.constexpr,
):
    """Run the chunks of a run of tokens, the state in registers.

    The state ``[BLOCK_V, K]`` is in parts of `BLOCK_K` columns. The grid is [runs HV, blocks of V].

    `runs` ``[N, 5]`` has the first token, the number of tokens, the first chunk, and the rows of
    `start` and `final`; a last chunk may have fewer tokens here than it was prepared for.
    `kept_rows` ``[R, 2]`` has, for each chunk, the row of `pool` that takes the state at its end
    and the row of `kept_starts` that takes the one at its start, or -1.
    """
    run, head = tl.program_id(0) // HV, tl.program_id(0) % HV
    first_token = tl.load(runs + 5 * run)
    length = tl.load(runs + 5 * run + 1)
    first_chunk = tl.load(runs + 5 * run + 2)
    key_head = head // (HV // H)
    first_value = tl.program_id(1) * BLOCK_V
    values = first_value + tl.arange(0, BLOCK_V)
    i = tl.arange(0, CHUNK)

    own_strides = (HV * V * K, V * K, K, 1)
    final_strides = (final_row_stride, final_head_stride, final_value_stride, final_key_stride)
    pool_strides = (pool_row_stride, pool_head_stride, pool_value_stride, pool_key_stride)

    row = tl.load(runs + 5 * run + 3)
    state = ()
    for part in tl.static_range(PARTS):
        if STARTS_GIVEN:
            keys = part * BLOCK_K + tl.arange(0, BLOCK_K)
            inside = (values < V)[:, None] & (keys < K)[None, :]
            place = state_tile(start, row, head, values, keys, own_strides)
            tile = tl.load(place, mask=inside, other=0.0).to(tl.float32)
        else:
            tile = tl.zeros([BLOCK_V, BLOCK_K], dtype=tl.float32)
        state = state + (tile,)  # type: ignore[assignment]  # noqa: RUF005

    for step in range(tl.cdiv(length, CHUNK)):
        token = first_token + step * CHUNK
        count = tl.minimum(length - step * CHUNK, CHUNK)
        chunk = first_chunk + step
        matrix = chunk * HV + head
        if KEEPS:
            row = tl.load(kept_rows + 2 * chunk + 1)
            if row >= 0:
                store_state(
                    state, kept_starts, row, head, values, own_strides, K, V, PARTS, BLOCK_K
                )
        written = load_tokens(v, token, 0, count, head, first_value, HV, V, CHUNK, BLOCK_V)

        if CORRECTED:
            mix = load_matrix(values_to_writes, matrix, False, CHUNK)
            corrections = tl.dot(mix, written, input_precision=PRECISION)
            for part in tl.static_range(PARTS):
                keys = part * BLOCK_K + tl.arange(0, BLOCK_K)
                erase = tl.load(
                    state_to_writes + (matrix * CHUNK + i[:, None]) * K + keys[None, :],
                    mask=(keys < K)[None, :],
                    other=0.0,
                )
                corrections = tl.dot(
                    erase, tl.trans(state[part]), corrections, input_precision=PRECISION
                )
        if OUTPUT:
            result = tl.zeros([CHUNK, BLOCK_V], dtype=tl.float32)
            factor = scale * reciprocal_norms(
                q, token, count, key_head, H, K, CHUNK, PARTS, BLOCK_K, L2NORM
            )
            for part in tl.static_range(PARTS):
                first = part * BLOCK_K
                reads = load_tokens(q, token, 0, count, key_head, first, H, K, CHUNK, BLOCK_K)
                reads *= factor * decay_from_start(
                    log_decay, token, count, head, first, HV, DECAYS, CHUNK, BLOCK_K, BEFORE=False
                )
                result = tl.dot(reads, tl.trans(state[part]), result, input_precision=PRECISION)
            if VALUES_WRITTEN:
                attention = load_matrix(attention_to_values, matrix, False, CHUNK)
                result = tl.dot(attention, written, result, input_precision=PRECISION)
            if CORRECTED:
                attention = load_matrix(attention_to_writes, matrix, False, CHUNK)
                result = tl.dot(attention, corrections, result, input_precision=PRECISION)
            offset = ((token + i) * HV + head) * V
            tl.store(
                output + offset[:, None] + values[None, :],
                result.to(output.dtype.element_ty),
                mask=(i < count)[:, None] & (values < V)[None, :],
            )

        if CORRECTED:
            corrections *= reciprocal_norms(
                b, token, count, key_head, H, K, CHUNK, PARTS, BLOCK_K, L2NORM
            )
        if VALUES_WRITTEN:
            written *= reciprocal_norms(
                k, token, count, key_head, H, K, CHUNK, PARTS, BLOCK_K, L2NORM
            )
        advanced = ()
        for part in tl.static_range(PARTS):
            first = part * BLOCK_K
            to_end = log_decay_to_end(
                log_decay, token, count, head, first, HV, DECAYS, CHUNK, BLOCK_K
            )
            of_all = log_decay_of_all(
                log_decay, token, count, head, first, HV, DECAYS, CHUNK, BLOCK_K
            )
            tile = state[part] * tl.exp(of_all)
            if VALUES_WRITTEN:
                along = load_tokens(k, token, 0, count, key_head, first, H, K, CHUNK, BLOCK_K)
                along *= tl.exp(to_end)
                tile = tl.dot(tl.trans(written), along, tile, input_precision=PRECISION)
            if CORRECTED:
                along = load_tokens(b, token, 0, count, key_head, first, H, K, CHUNK, BLOCK_K)
                along *= tl.exp(to_end)
                tile = tl.dot(tl.trans(corrections), along, tile, input_precision=PRECISION)
            advanced = advanced + (tile,)  # type: ignore[assignment]  # noqa: RUF005
        state = advanced

        if KEEPS:
            row = tl.load(kept_rows + 2 * chunk)
            if row >= 0:
                store_state(state, pool, row, head, values, pool_strides, K, V, PARTS, BLOCK_K)

    row = tl.load(runs + 5 * run + 4)
    store_state(state, final, row, head, values, final_strides, K, V, PARTS, BLOCK_K)
