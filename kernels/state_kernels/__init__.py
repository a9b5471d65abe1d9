"""Exact recurrent states from prefill passes: tensors in, states out, in torch and Triton."""

from state_kernels.convolution import (
    ConvolutionResult,
    capture_windows,
    causal_convolution,
    causal_convolution_step,
)
from state_kernels.passes import ChunkStatesResult, run, run_with_chunk_states, step
from state_kernels.pools import PackedPools, StatePools
from state_kernels.quantize import QuantizedStates, dequantize_states, quantize_states
from state_kernels.records import Captures, RecurrenceResult
from state_kernels.recurrence import Recurrence
from state_kernels.recurrences import all_recurrences
from state_kernels.recurrences.gated_delta_rule import GatedDeltaRule, gated_delta_rule
from state_kernels.recurrences.gla import GLA, gla
from state_kernels.recurrences.kda import KDA, kda
from state_kernels.recurrences.rwkv7 import RWKV7, rwkv7
from state_kernels.recurrences.simple_decay import SimpleDecay, simple_decay, ssd
from state_kernels.reference import reference_convolution
from state_kernels.transfer import copy_states

__all__ = [
    "GLA",
    "KDA",
    "RWKV7",
    "Captures",
    "ChunkStatesResult",
    "ConvolutionResult",
    "GatedDeltaRule",
    "PackedPools",
    "QuantizedStates",
    "Recurrence",
    "RecurrenceResult",
    "SimpleDecay",
    "StatePools",
    "all_recurrences",
    "capture_windows",
    "causal_convolution",
    "causal_convolution_step",
    "copy_states",
    "dequantize_states",
    "gated_delta_rule",
    "gla",
    "kda",
    "quantize_states",
    "reference_convolution",
    "run",
    "run_with_chunk_states",
    "rwkv7",
    "simple_decay",
    "ssd",
    "step",
]
