"""What a GatedDeltaNet hybrid calls of SGLang that needs a GPU, or wastes a CPU, in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from state_kernels import cpu

_GDN_BACKEND = "sglang.srt.layers.attention.linear.gdn_backend"
_GDN_KERNEL = "sglang.srt.layers.attention.linear.kernels.gdn_triton"
_STATE_SCATTER = "sglang.kernels.ops.mamba.mamba_state_scatter_triton"
_HYBRID_BACKEND = "sglang.srt.layers.attention.hybrid_linear_attn_backend"

OPERATIONS: dict[str, Callable[..., Any]] = {
    f"{_GDN_BACKEND}.causal_conv1d_fn": cpu.causal_conv1d_fn,
    f"{_GDN_BACKEND}.causal_conv1d_update": cpu.causal_conv1d_update,
    f"{_GDN_BACKEND}.fused_gdn_gating": cpu.fused_gdn_gating,
    f"{_GDN_KERNEL}.chunk_gated_delta_rule": cpu.chunk_gated_delta_rule,
    f"{_GDN_KERNEL}.fused_recurrent_gated_delta_rule_packed_decode": (
        cpu.fused_recurrent_gated_delta_rule_packed_decode
    ),
    "sglang.kernels.ops.attention.triton_gdn_fused_proj."
    "fused_qkvzba_split_reshape_cat_contiguous": cpu.fused_qkvzba_split_reshape_cat_contiguous,
    "sglang.kernels.ops.attention.fla.layernorm_gated.rms_norm_gated": cpu.rms_norm_gated,
    "sglang.kernels.ops.elementwise.elementwise.fused_sigmoid_mul": cpu.fused_sigmoid_mul,
    "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend."
    "_run_sdpa_forward_extend": cpu.run_sdpa_forward_extend,
    f"{_STATE_SCATTER}.track_mamba_states_all_layers": cpu.track_mamba_states_all_layers,
    f"{_STATE_SCATTER}.track_mamba_states_if_needed": cpu.track_mamba_states_if_needed,
}
"""The full name of each replaced function, and the torch function of the same signature."""


def register() -> None:
    """Replace each of `OPERATIONS` through SGLang's hooks."""
    for target, operation in OPERATIONS.items():
        HookRegistry.register(target, operation, HookType.REPLACE)
