"""The time mixing of RWKV-7: a state that decays, reads itself back, and takes a value.

Peng et al., "RWKV-7 Goose with Expressive Dynamic State Evolution", arXiv 2503.14456.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from state_kernels.checks import check_scale, check_shape
from state_kernels.chunked.diagonal_plus_low_rank import (
    LowRankRows,
    advance_low_rank,
    attend_low_rank,
    prepare_low_rank,
)
from state_kernels.gpu.terms import KernelTerms, LowRankCorrection
from state_kernels.numerics import random_log_decay
from state_kernels.passes import Implementation, run
from state_kernels.records import Captures, RecurrenceResult
from state_kernels.recurrence import EXAMPLE_DECAY, Inputs, Recurrence, Sizes


@dataclass(frozen=True)
class RWKV7Inputs(Inputs):
    """r, k, a, b and log decay w ``[T, H, K]``, v ``[T, H, V]``."""

    r: torch.Tensor
    w: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor


@dataclass(frozen=True)
class RWKV7(Recurrence[RWKV7Inputs, LowRankRows]):
    """``S <- S diag(exp(w)) + (S a) b^T + v k^T``, a reading S before; ``o = S (scale r)``.

    Parameters
    ----------
    scale : float
        Factor of r.
    """

    name: ClassVar[str] = "rwkv7"
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_scale(self.scale)

    def check(self, inputs: RWKV7Inputs) -> None:
        k, v = inputs.k, inputs.v
        if v.dim() != 3:
            raise ValueError(
                f"v: got shape {tuple(v.shape)}; need [T, H, V]; pack the sequences along the "
                "first axis"
            )
        check_shape("v", v, (*k.shape[:2], v.shape[-1]))
        check_shape("k", k, (*v.shape[:2], k.shape[-1]))
        for name in ("r", "w", "a", "b"):
            check_shape(name, getattr(inputs, name), tuple(k.shape))

    def example(
        self,
        tokens: int,
        sizes: Sizes,
        generator: torch.Generator,
        decay: tuple[float, float] = EXAMPLE_DECAY,
    ) -> RWKV7Inputs:
        keys = (tokens, sizes.value_heads, sizes.key_size)
        r, k, erased = torch.randn(3, *keys, generator=generator)
        erased = torch.nn.functional.normalize(erased, dim=-1)
        return RWKV7Inputs(
            r=r,
            w=random_log_decay(keys, generator, decay),
            k=k,
            v=torch.randn(*keys[:2], sizes.value_size, generator=generator),
            a=-erased,
            b=erased * torch.rand(keys, generator=generator),
        )

    def token(self, state: torch.Tensor, inputs: RWKV7Inputs) -> torch.Tensor:
        read = (state * inputs.a[..., None, :]).sum(dim=-1)
        state.mul_(inputs.w.exp()[..., None, :])
        state.add_(read[..., None] * inputs.b[..., None, :])
        state.add_(inputs.v[..., None] * inputs.k[..., None, :])
        return (state * (inputs.r * self.scale)[..., None, :]).sum(dim=-1)

    def prepare(self, inputs: RWKV7Inputs) -> LowRankRows:
        return prepare_low_rank(
            inputs.r * self.scale, inputs.w, inputs.k, inputs.v, inputs.a, inputs.b
        )

    def attend(self, rows: LowRankRows, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return attend_low_rank(rows, state)

    def advance(
        self, state: torch.Tensor, rows: LowRankRows, writes: torch.Tensor, cut: torch.Tensor | None
    ) -> None:
        advance_low_rank(state, rows, writes, cut)

    def kernel_terms(self, inputs: RWKV7Inputs) -> KernelTerms:
        return KernelTerms(
            q=inputs.r,
            k=inputs.k,
            v=inputs.v,
            log_decay=inputs.w,
            correction=LowRankCorrection(inputs.a, inputs.b),
            scale=self.scale,
        )


RECURRENCE = RWKV7()


def rwkv7(
    r: torch.Tensor,
    w: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    cu_seqlens: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    captures: Captures | None = None,
    pool: torch.Tensor | None = None,
    scale: float = 1.0,
    implementation: Implementation = "auto",
) -> RecurrenceResult:
    """Run RWKV-7's time mixing over packed sequences, keeping states at chosen depths.

    For each head: ``S <- S diag(exp(w)) + (S a) b^T + v k^T``, where ``S a`` reads the state
    before the token; ``o = S (scale r)``.

    Parameters
    ----------
    r, k, a, b : Tensor ``[T, H, K]``
        In RWKV-7 a is a negated unit vector, and b the same vector times a rate within 0..1 for
        each dimension.
    w : Tensor ``[T, H, K]``
        Log decay of each key dimension, at most 0.
    v : Tensor ``[T, H, V]``
    cu_seqlens, initial_state, captures, pool, implementation
        As for `gated_delta_rule`; states are ``[.., H, V, K]``.
    scale : float
        Factor of r.

    Returns
    -------
    RecurrenceResult
    """
    return run(
        RWKV7(scale),
        RWKV7Inputs(r=r, w=w, k=k, v=v, a=a, b=b),
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        captures=captures,
        pool=pool,
        implementation=implementation,
    )
