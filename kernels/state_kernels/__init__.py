"""Exact recurrent states from prefill passes: tensors in, states out, in plain torch."""

from state_kernels.convolution import (
    ConvolutionResult,
    capture_windows,
    causal_convolution,
    causal_convolution_step,
)
from state_kernels.gated_delta_rule import (
    ChunkStatesResult,
    gated_delta_rule,
    gated_delta_rule_step,
    gated_delta_rule_with_chunk_states,
)
from state_kernels.records import Captures, GatedDeltaResult
from state_kernels.reference import reference_convolution, reference_gated_delta_rule

__all__ = [
    "Captures",
    "ChunkStatesResult",
    "ConvolutionResult",
    "GatedDeltaResult",
    "capture_windows",
    "causal_convolution",
    "causal_convolution_step",
    "gated_delta_rule",
    "gated_delta_rule_step",
    "gated_delta_rule_with_chunk_states",
    "reference_convolution",
    "reference_gated_delta_rule",
]
