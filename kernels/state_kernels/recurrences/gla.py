"""Gated linear attention: each key dimension decays by itself.

Yang, Wang, Shen, Panda, Kim, "Gated Linear Attention Transformers", arXiv 2312.06635.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from state_kernels.checks import check_keys_and_values, check_shape
from state_kernels.chunked.linear import LinearInputs, LinearRecurrence
from state_kernels.numerics import random_log_decay
from state_kernels.passes import Implementation, run
from state_kernels.records import Captures, RecurrenceResult
from state_kernels.recurrence import EXAMPLE_DECAY, Sizes


@dataclass(frozen=True)
class GLAInputs(LinearInputs):
    """q, k ``[T, H, K]``, v ``[T, HV, V]``, log decay g ``[T, HV, K]``."""


@dataclass(frozen=True)
class GLA(LinearRecurrence[GLAInputs]):
    """``S <- S diag(exp(g)) + v k^T``; ``o = S (scale q)``."""

    name: ClassVar[str] = "gla"

    def check(self, inputs: GLAInputs) -> None:
        check_keys_and_values(inputs.q, inputs.k, inputs.v)
        check_shape("g", inputs.g, (*inputs.v.shape[:2], inputs.k.shape[2]))

    def example(
        self,
        tokens: int,
        sizes: Sizes,
        generator: torch.Generator,
        decay: tuple[float, float] = EXAMPLE_DECAY,
    ) -> GLAInputs:
        q, k = torch.randn(2, tokens, sizes.heads, sizes.key_size, generator=generator)
        return GLAInputs(
            q=q,
            k=k,
            v=torch.randn(tokens, sizes.value_heads, sizes.value_size, generator=generator),
            g=random_log_decay((tokens, sizes.value_heads, sizes.key_size), generator, decay),
        )

    def decays(self, g: torch.Tensor) -> torch.Tensor:
        return g


RECURRENCE = GLA()


def gla(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    *,
    cu_seqlens: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    captures: Captures | None = None,
    pool: torch.Tensor | None = None,
    scale: float | None = None,
    implementation: Implementation = "auto",
) -> RecurrenceResult:
    """Run gated linear attention over packed sequences, keeping states at chosen depths.

    For each value head: ``S <- S diag(exp(g)) + v k^T``; ``o = S (scale q)``. Value head i reads
    query/key head ``i // (HV // H)``.

    Parameters
    ----------
    q, k : Tensor ``[T, H, K]``
    v : Tensor ``[T, HV, V]``, HV a multiple of H
    g : Tensor ``[T, HV, K]``
        Log decay of each key dimension, at most 0.
    cu_seqlens, initial_state, captures, pool, implementation
        As for `gated_delta_rule`.
    scale : float, optional
        Factor of q; ``K ** -0.5`` if not given.

    Returns
    -------
    RecurrenceResult
    """
    return run(
        GLA(scale),
        GLAInputs(q=q, k=k, v=v, g=g),
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        captures=captures,
        pool=pool,
        implementation=implementation,
    )
