"""SGLang's device interface, answered for a CPU that runs plain torch operations."""

from __future__ import annotations

import os
from typing import Any

import torch
from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform

_CONVOLUTION_TYPES = {
    "float32": "float32",
    "float": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "half": "float16",
}


class TorchCpuPlatform(CpuDeviceMixin, SRTPlatform):  # type: ignore[misc]
    """A CPU without SGLang's compiled kernels; hybrid models keep their states in extra buffers."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"
    capabilities = PlatformCapabilities()

    def get_device(self, device_id: int = 0) -> str:
        """Name the one CPU device; SGLang's settings expect a string here."""
        return "cpu"

    def get_default_attention_backend(self) -> str:
        return "torch_native"

    def support_mamba_cache_extra_buffer(self) -> bool:
        return True

    def is_pin_memory_available(self, device: Any = None) -> bool:
        return False

    def apply_server_args_defaults(self, server_args: Any) -> None:
        """Fill in what a CPU needs where the user left SGLang's default."""
        server_args.device = "cpu"
        if server_args.dtype == "auto":
            server_args.dtype = "float32"
        # SGLang keeps convolution windows in bfloat16 unless this variable says otherwise; torch
        # convolves in one type.
        os.environ.setdefault("SGLANG_MAMBA_CONV_DTYPE", _CONVOLUTION_TYPES[server_args.dtype])
        server_args.disable_cuda_graph = True
        # An idle scheduler would otherwise spin on a core that other processes need.
        server_args.sleep_on_idle = True
        if server_args.sampling_backend is None:
            server_args.sampling_backend = "pytorch"
        if server_args.mamba_radix_cache_strategy == "auto":
            server_args.mamba_radix_cache_strategy = "extra_buffer"

    def init_backend(self) -> None:
        """Make pinning the identity: torch's own raises where there is no driver."""
        torch.Tensor.pin_memory = _identity  # type: ignore[method-assign, assignment]


def _identity(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
    return tensor
