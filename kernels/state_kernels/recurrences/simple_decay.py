"""Linear attention whose heads decay: Mamba2's SSD, Lightning attention, RetNet.

Dao, Gu, "Transformers are SSMs", arXiv 2405.21060 (decays that depend on the token); Qin et al.,
"Lightning Attention-2", arXiv 2401.04658, and Sun et al., "Retentive Network", arXiv 2307.08621
(one decay a head).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from state_kernels.checks import check_keys_and_values, check_shape
from state_kernels.chunked.linear import LinearInputs, LinearRecurrence
from state_kernels.numerics import compute_dtype, random_log_decay
from state_kernels.passes import Implementation, run
from state_kernels.records import Captures, RecurrenceResult
from state_kernels.recurrence import EXAMPLE_DECAY, Sizes
from state_kernels.tensors import check_devices, check_floating, check_tensors


@dataclass(frozen=True)
class SimpleDecayInputs(LinearInputs):
    """q, k ``[T, H, K]``, v ``[T, HV, V]``, log decay g ``[T, HV]``."""


@dataclass(frozen=True)
class SimpleDecay(LinearRecurrence[SimpleDecayInputs]):
    """``S <- exp(g) S + v k^T``; ``o = S (scale q)``."""

    name: ClassVar[str] = "simple_decay"

    def check(self, inputs: SimpleDecayInputs) -> None:
        check_keys_and_values(inputs.q, inputs.k, inputs.v)
        check_shape("g", inputs.g, inputs.v.shape[:2])

    def example(
        self,
        tokens: int,
        sizes: Sizes,
        generator: torch.Generator,
        decay: tuple[float, float] = EXAMPLE_DECAY,
    ) -> SimpleDecayInputs:
        q, k = torch.randn(2, tokens, sizes.heads, sizes.key_size, generator=generator)
        return SimpleDecayInputs(
            q=q,
            k=k,
            v=torch.randn(tokens, sizes.value_heads, sizes.value_size, generator=generator),
            g=random_log_decay((tokens, sizes.value_heads), generator, decay),
        )

    def decays(self, g: torch.Tensor) -> torch.Tensor:
        return g[..., None]


RECURRENCE = SimpleDecay()


def simple_decay(
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
    """Run linear attention with decaying heads over packed sequences, keeping states.

    For each value head: ``S <- exp(g) S + v k^T``; ``o = S (scale q)``. Value head i reads
    query/key head ``i // (HV // H)``.

    Parameters
    ----------
    q, k : Tensor ``[T, H, K]``
    v : Tensor ``[T, HV, V]``, HV a multiple of H
    g : Tensor ``[T, HV]`` or ``[HV]``
        Log decay, at most 0; the same for all tokens in the second form (Lightning, RetNet).
    cu_seqlens, initial_state, captures, pool, implementation
        As for `gated_delta_rule`.
    scale : float, optional
        Factor of q; ``K ** -0.5`` if not given.

    Returns
    -------
    RecurrenceResult
    """
    check_tensors(q=q, k=k, v=v, g=g)
    if g.dim() == 1:
        check_keys_and_values(q, k, v)
        check_shape("g", g, v.shape[1:2], each="value head, or for each token and value head")
        g = g.expand(v.shape[:2])
    return run(
        SimpleDecay(scale),
        SimpleDecayInputs(q=q, k=k, v=v, g=g),
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        captures=captures,
        pool=pool,
        implementation=implementation,
    )


@torch.no_grad()
def ssd(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor | None = None,
    *,
    cu_seqlens: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    captures: Captures | None = None,
    pool: torch.Tensor | None = None,
    implementation: Implementation = "auto",
) -> RecurrenceResult:
    """Run Mamba2's state space recurrence over packed sequences, keeping states.

    For each head: ``S <- exp(dt A) S + (dt x) B^T``; ``o = S C + D x``.

    Parameters
    ----------
    x : Tensor ``[T, HV, V]``
    dt : Tensor ``[T, HV]``
        Step sizes, after bias and softplus.
    A : Tensor ``[HV]``
        Negative.
    B, C : Tensor ``[T, H, K]``
        One for each group of ``HV // H`` heads.
    D : Tensor ``[HV]``, optional
    cu_seqlens, initial_state, captures, pool, implementation
        As for `gated_delta_rule`.

    Returns
    -------
    RecurrenceResult
    """
    check_floating(x=x, dt=dt, A=A, B=B, C=C)
    if x.dim() != 3 or B.dim() != 3 or B.shape != C.shape or len(B) != len(x):
        raise ValueError(
            f"x, B and C: got shapes {tuple(x.shape)}, {tuple(B.shape)} and {tuple(C.shape)}; need "
            "[T, HV, V] and twice [T, H, K]; pack the sequences along the first axis"
        )
    check_shape("dt", dt, tuple(x.shape[:2]), each="token and head")
    check_shape("A", A, tuple(x.shape[1:2]), each="head")
    if D is not None:
        check_floating(D=D)
        check_shape("D", D, tuple(x.shape[1:2]), each="head")
    check_devices(x=x, dt=dt, A=A, B=B, C=C, D=D)
    dtype = compute_dtype(x, dt, A, B, C)
    result = simple_decay(
        C,
        B,
        x.to(dtype) * dt.to(dtype)[..., None],
        dt.to(dtype) * A.to(dtype),
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        captures=captures,
        pool=pool,
        scale=1.0,
        implementation=implementation,
    )
    output = result.output
    if D is not None:
        output = output + x.to(dtype) * D.to(dtype)[:, None]
    return RecurrenceResult(output.to(x.dtype), result.final_state)
