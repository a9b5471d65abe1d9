"""Kimi delta attention, of Kimi-Linear: a delta rule whose key dimensions decay one by one.

Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture", arXiv 2510.26692.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from state_kernels.checks import check_keys_and_values, check_shape
from state_kernels.chunked.delta import DeltaInputs, DeltaRecurrence
from state_kernels.numerics import random_log_decay
from state_kernels.passes import Implementation, run
from state_kernels.records import Captures, RecurrenceResult
from state_kernels.recurrence import EXAMPLE_DECAY, Sizes


@dataclass(frozen=True)
class KDAInputs(DeltaInputs):
    """q, k ``[T, H, K]``, v ``[T, HV, V]``, log decay g ``[T, HV, K]``, beta ``[T, HV]``."""


@dataclass(frozen=True)
class KDA(DeltaRecurrence[KDAInputs]):
    """``S <- S diag(exp(g))``; ``S <- S + beta (v - S k) k^T``; ``o = S (scale q)``."""

    name: ClassVar[str] = "kda"

    def check(self, inputs: KDAInputs) -> None:
        check_keys_and_values(inputs.q, inputs.k, inputs.v)
        check_shape("g", inputs.g, (*inputs.v.shape[:2], inputs.k.shape[2]))
        check_shape("beta", inputs.beta, inputs.v.shape[:2])

    def example(
        self,
        tokens: int,
        sizes: Sizes,
        generator: torch.Generator,
        decay: tuple[float, float] = EXAMPLE_DECAY,
    ) -> KDAInputs:
        q, k = torch.randn(2, tokens, sizes.heads, sizes.key_size, generator=generator)
        return KDAInputs(
            q=q,
            k=torch.nn.functional.normalize(k, dim=-1),
            v=torch.randn(tokens, sizes.value_heads, sizes.value_size, generator=generator),
            g=random_log_decay((tokens, sizes.value_heads, sizes.key_size), generator, decay),
            beta=torch.rand(tokens, sizes.value_heads, generator=generator),
        )

    def decays(self, g: torch.Tensor) -> torch.Tensor:
        return g


RECURRENCE = KDA()


def kda(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    *,
    cu_seqlens: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    captures: Captures | None = None,
    pool: torch.Tensor | None = None,
    scale: float | None = None,
    qk_l2norm: bool = False,
    implementation: Implementation = "auto",
) -> RecurrenceResult:
    """Run Kimi delta attention over packed sequences, keeping states at chosen depths.

    For each value head: ``S <- S diag(exp(g))``; ``S <- S + beta (v - S k) k^T``;
    ``o = S (scale q)``. Value head i reads query/key head ``i // (HV // H)``.

    Parameters
    ----------
    q, k : Tensor ``[T, H, K]``
    v : Tensor ``[T, HV, V]``, HV a multiple of H
    g : Tensor ``[T, HV, K]``
        Log decay of each key dimension, at most 0.
    beta : Tensor ``[T, HV]``
    cu_seqlens, initial_state, captures, pool, scale, qk_l2norm, implementation
        As for `gated_delta_rule`.

    Returns
    -------
    RecurrenceResult
    """
    return run(
        KDA(scale, qk_l2norm),
        KDAInputs(q=q, k=k, v=v, g=g, beta=beta),
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        captures=captures,
        pool=pool,
        implementation=implementation,
    )
