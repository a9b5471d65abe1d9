"""One pass of a recurrence by Triton kernels.

What needs no state is done for all chunks at once: decayed products of the vectors inside a chunk
(`products`), and the corrections solved for the chunk's start state (`solve`). Then one program for
each sequence, head and block of V goes over the chunks (`sweep`) and stores the outputs and the
states asked for, in float32 from the accumulator.

flash-linear-attention 0.6.0 has kernels of the same recurrences, which do not serve here.
``chunk_gated_delta_rule_fwd_h``, which KDA shares, and ``chunk_dplr_fwd_h`` return the state at
every chunk's start in the type of the inputs; ``chunk_fwd_h`` of the decayed linear attentions can
have them in float32, but all of them and none inside a chunk.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import triton

from state_kernels.chunked.layout import CHUNK
from state_kernels.gpu.batch import BatchTables, batch_tables, capture_tables
from state_kernels.gpu.products import products_of_heads, products_of_keys
from state_kernels.gpu.solve import solve_delta, solve_low_rank
from state_kernels.gpu.sweep import sweep
from state_kernels.gpu.terms import DeltaCorrection, KernelTerms, LowRankCorrection
from state_kernels.records import Captures, RecurrenceResult

SMALLEST_PRODUCT = 16
"""Fewest rows or columns of a product of tiles."""

# Enough programs for one sequence of 32 heads and V = 128 on a GPU of 132 processors.
LARGEST_VALUE_BLOCK = 32

# Operands of products over more columns of K would not stay in registers.
LARGEST_KEY_BLOCK = 64

LEVELS = CHUNK.bit_length() - 1


@dataclass(frozen=True)
class Prepared:
    """What chunks contribute apart from their start states, in float32.

    Attributes
    ----------
    attention_to_values, attention_to_writes : Tensor ``[R, HV, 64, 64]``, optional
        What outputs take from the values and from the corrections of a chunk's tokens.
    values_to_writes : Tensor ``[R, HV, 64, 64]``, optional
    state_to_writes : Tensor ``[R, HV, 64, K]``, optional
        M and W of `state_kernels.gpu.solve`.
    """

    attention_to_values: torch.Tensor | None = None
    attention_to_writes: torch.Tensor | None = None
    values_to_writes: torch.Tensor | None = None
    state_to_writes: torch.Tensor | None = None


@dataclass(frozen=True)
class Keeps:
    """Where a sweep puts states that it passes: see `state_kernels.gpu.batch.CaptureTables`."""

    rows: torch.Tensor
    pool: torch.Tensor
    starts: torch.Tensor


def run_kernels(
    terms: KernelTerms,
    bounds: tuple[int, ...],
    initial_state: torch.Tensor | None,
    captures: Captures | None,
    pool: torch.Tensor | None,
) -> RecurrenceResult:
    """Run packed sequences, keeping states at chosen depths.

    Parameters
    ----------
    terms : KernelTerms
        Float32 or half.
    bounds : tuple of int
        Cumulative sequence lengths.
    initial_state : Tensor ``[N, HV, V, K]``, optional
    captures, pool
        Valid ones, or None; the pool may have any strides and any floating-point type.

    Returns
    -------
    RecurrenceResult

    Notes
    -----
    Takes ``256 T HV n`` bytes beside the results while it runs, n being 1 to 4 matrices and
    ``K / 64`` where there are corrections.
    """
    device = terms.v.device
    tables = batch_tables(bounds, device)
    output = torch.empty_like(terms.v, memory_format=torch.contiguous_format)
    states = (len(bounds) - 1, *terms.v.shape[1:], terms.k.shape[-1])
    final = terms.v.new_empty(states, dtype=torch.float32)
    start = None if initial_state is None else _start_rows(initial_state, pool)
    with _current(device):
        kernels = _Kernels(terms, tables)
        prepared = kernels.prepare()
        if captures is None or pool is None or len(captures.slot) == 0:
            kernels.sweep(prepared, tables.runs, start, final, output)
            return RecurrenceResult(output, final)
        kept = capture_tables(captures, bounds, device)
        starts = final.new_empty((kept.kept_starts, *states[1:]))
        keeps = Keeps(kept.kept_rows, pool, starts)
        kernels.sweep(prepared, tables.runs, start, final, output, keeps)
        kernels.sweep(prepared, kept.runs, starts, pool)
    return RecurrenceResult(output, final)


class _Kernels:
    """Launches over one batch."""

    def __init__(self, terms: KernelTerms, tables: BatchTables) -> None:
        self.q, self.k, self.v = (x.contiguous() for x in (terms.q, terms.k, terms.v))
        self.log_decay = terms.log_decay.contiguous()
        correction = terms.correction
        self.correction = correction and correction.map(torch.Tensor.contiguous)
        self.scale = float(terms.scale)
        self.l2norm = terms.qk_l2norm
        self.chunks = tables.chunks
        self.H, self.K = self.k.shape[1:]
        self.HV, self.V = self.v.shape[1:]
        self.decays = 1 if self.log_decay.dim() == 2 else self.K
        self.block_k = max(SMALLEST_PRODUCT, triton.next_power_of_2(self.K))

    def prepare(self) -> Prepared:
        """Do all work on chunks that needs no state."""
        if self.correction is None:
            return Prepared(attention_to_values=self.products(self.q, self.k, self.scale))
        erase = self.k.new_empty((len(self.chunks), self.HV, CHUNK, self.K), dtype=torch.float32)
        if isinstance(self.correction, DeltaCorrection):
            mix = self.products(self.k, self.k)
            self._solve_delta(self.correction.beta, mix, erase)
            return Prepared(
                attention_to_writes=self.products(self.q, self.k, self.scale),
                values_to_writes=mix,
                state_to_writes=erase,
            )
        a, b = self.correction.a, self.correction.b
        mix = self.products(a, self.k, before=True)
        self._solve_low_rank(a, self.products(a, b, before=True), mix, erase)
        return Prepared(
            attention_to_values=self.products(self.q, self.k, self.scale),
            attention_to_writes=self.products(self.q, b, self.scale),
            values_to_writes=mix,
            state_to_writes=erase,
        )

    def products(
        self, left: torch.Tensor, right: torch.Tensor, scale: float = 1.0, before: bool = False
    ) -> torch.Tensor:
        """Return decayed products ``[R, HV, 64, 64]``, with nothing written above the diagonal.

        `before` ends the decay before the later token.
        """
        rows = (len(self.chunks), self.HV)
        products = left.new_empty((*rows, CHUNK, CHUNK), dtype=torch.float32)
        if self.decays == 1:
            products_of_heads[rows](
                left,
                right,
                self.log_decay,
                self.chunks,
                products,
                scale,
                H=self.H,
                HV=self.HV,
                K=self.K,
                BLOCK_K=self.block_k,
                CHUNK=CHUNK,
                L2NORM=self.l2norm,
            )
        else:
            products_of_keys[(*rows, CHUNK // SMALLEST_PRODUCT)](
                left,
                right,
                self.log_decay,
                self.chunks,
                products,
                scale,
                H=self.H,
                HV=self.HV,
                K=self.K,
                BLOCK_K=self.block_k,
                CHUNK=CHUNK,
                BLOCK=SMALLEST_PRODUCT,
                BEFORE=before,
                L2NORM=self.l2norm,
                num_warps=2,
            )
        return products

    def _solve_delta(self, beta: torch.Tensor, mix: torch.Tensor, erase: torch.Tensor) -> None:
        solve_delta[len(self.chunks), self.HV](
            self.k,
            beta,
            self.log_decay,
            self.chunks,
            mix,
            erase,
            H=self.H,
            HV=self.HV,
            K=self.K,
            DECAYS=self.decays,
            BLOCK_K=self.block_k,
            LEVELS=LEVELS,
            L2NORM=self.l2norm,
        )

    def _solve_low_rank(
        self, a: torch.Tensor, system: torch.Tensor, mix: torch.Tensor, erase: torch.Tensor
    ) -> None:
        solve_low_rank[len(self.chunks), self.HV](
            a,
            system,
            self.log_decay,
            self.chunks,
            mix,
            erase,
            H=self.H,
            HV=self.HV,
            K=self.K,
            BLOCK_K=self.block_k,
            LEVELS=LEVELS,
        )

    def sweep(
        self,
        prepared: Prepared,
        runs: torch.Tensor,
        start: torch.Tensor | None,
        final: torch.Tensor,
        output: torch.Tensor | None = None,
        keeps: Keeps | None = None,
    ) -> None:
        """Take runs from the rows of `start` to rows of `final`."""
        correction = self.correction
        block_v = min(LARGEST_VALUE_BLOCK, max(SMALLEST_PRODUCT, triton.next_power_of_2(self.V)))
        block_k = min(LARGEST_KEY_BLOCK, self.block_k)
        sweep[len(runs) * self.HV, triton.cdiv(self.V, block_v)](
            self.q,
            self.k,
            self.v,
            correction.b if isinstance(correction, LowRankCorrection) else self.k,
            self.log_decay,
            prepared.attention_to_values,
            prepared.attention_to_writes,
            prepared.values_to_writes,
            prepared.state_to_writes,
            runs,
            None if keeps is None else keeps.rows,
            output,
            start,
            final,
            *final.stride(),
            None if keeps is None else keeps.pool,
            *((0, 0, 0, 0) if keeps is None else keeps.pool.stride()),
            None if keeps is None else keeps.starts,
            self.scale,
            H=self.H,
            HV=self.HV,
            K=self.K,
            V=self.V,
            DECAYS=self.decays,
            PARTS=triton.cdiv(self.K, block_k),
            BLOCK_K=block_k,
            BLOCK_V=block_v,
            CHUNK=CHUNK,
            L2NORM=self.l2norm,
            CORRECTED=correction is not None,
            VALUES_WRITTEN=not isinstance(correction, DeltaCorrection),
            STARTS_GIVEN=start is not None,
            OUTPUT=output is not None,
            KEEPS=keeps is not None,
            num_warps=4,
            # The tiles of two chunks would not fit beside each other with two terms to write.
            num_stages=1 if isinstance(correction, LowRankCorrection) else 2,
        )


def _start_rows(initial_state: torch.Tensor, pool: torch.Tensor | None) -> torch.Tensor:
    """Return start states in memory of their own: one program may write what another starts from
    where they are rows of the pool."""
    if pool is not None and (
        pool.untyped_storage().data_ptr() == initial_state.untyped_storage().data_ptr()
    ):
        return initial_state.clone(memory_format=torch.contiguous_format)
    return initial_state.contiguous()


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Make a GPU the one that kernels are launched on."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
