"""The gated delta rule of Qwen3.5 and Qwen3-Next: a delta rule whose heads decay.

Yang, Kautz, Hatamizadeh, "Gated Delta Networks", arXiv 2412.06464.
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
class GatedDeltaInputs(DeltaInputs):
    """q, k ``[T, H, K]``, v ``[T, HV, V]``, log decay g and beta ``[T, HV]``."""


@dataclass(frozen=True)
class GatedDeltaRule(DeltaRecurrence[GatedDeltaInputs]):
    """``S <- exp(g) S``; ``S <- S + beta (v - S k) k^T``; ``o = S (scale q)``."""

    name: ClassVar[str] = "gated_delta_rule"

    def check(self, inputs: GatedDeltaInputs) -> None:
        check_keys_and_values(inputs.q, inputs.k, inputs.v)
        check_shape("g", inputs.g, inputs.v.shape[:2])
        check_shape("beta", inputs.beta, inputs.v.shape[:2])

    def example(
        self,
        tokens: int,
        sizes: Sizes,
        generator: torch.Generator,
        decay: tuple[float, float] = EXAMPLE_DECAY,
    ) -> GatedDeltaInputs:
        q, k = torch.randn(2, tokens, sizes.heads, sizes.key_size, generator=generator)
        return GatedDeltaInputs(
            q=q,
            k=torch.nn.functional.normalize(k, dim=-1),
            v=torch.randn(tokens, sizes.value_heads, sizes.value_size, generator=generator),
            g=random_log_decay((tokens, sizes.value_heads), generator, decay),
            beta=torch.rand(tokens, sizes.value_heads, generator=generator),
        )

    def decays(self, g: torch.Tensor) -> torch.Tensor:
        return g[..., None]


RECURRENCE = GatedDeltaRule()


def gated_delta_rule(
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
    """Run the gated delta rule over packed sequences, keeping states at chosen depths.

    For each value head: ``S <- exp(g) S``; ``S <- S + beta (v - S k) k^T``; ``o = S (scale q)``.
    Value head i reads query/key head ``i // (HV // H)``.

    Parameters
    ----------
    q, k : Tensor ``[T, H, K]``
    v : Tensor ``[T, HV, V]``, HV a multiple of H
    g : Tensor ``[T, HV]``
        Log decay, at most 0.
    beta : Tensor ``[T, HV]``
        0 to 1. Up to 2, where keys repeat and nothing decays, "chunked" loses a digit: 4e-5.
    cu_seqlens : Tensor ``[N + 1]``, integer
        Cumulative sequence lengths.
    initial_state : Tensor ``[N, HV, V, K]``, optional
        State before each sequence's first token; zeros if not given.
    captures : Captures, optional
        States to write to `pool` in this pass, any depths 1..length.
    pool : Tensor ``[slots, HV, V, K]``, optional
        Receives the captured states in its own dtype; no other row is touched.
    scale : float, optional
        Factor of q; ``K ** -0.5`` if not given.
    qk_l2norm : bool
        Normalise q and k along K first (epsilon 1e-6 under the root).
    implementation : {"auto", "reference", "chunked", "triton"}
        See `state_kernels.run`, which also states errors, precision and cost.

    Returns
    -------
    RecurrenceResult
    """
    return run(
        GatedDeltaRule(scale, qk_l2norm),
        GatedDeltaInputs(q=q, k=k, v=v, g=g, beta=beta),
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        captures=captures,
        pool=pool,
        implementation=implementation,
    )
