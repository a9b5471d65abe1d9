"""The `torch_cpu` platform: hybrid models under SGLang on a machine without an accelerator.

SGLang finds both functions through entry points and calls them in each of its processes.
"""

from __future__ import annotations

import os

import torch


def activate() -> str | None:
    """Name the platform class where there is no accelerator, None where there is one.

    SGLang's own CPU engine (`SGLANG_USE_CPU_ENGINE=1`) takes precedence.
    """
    if os.environ.get("SGLANG_USE_CPU_ENGINE") == "1" or _has_accelerator():
        return None
    return "sglang_sparse.platform.torch_cpu.TorchCpuPlatform"


def register_operations() -> None:
    """Register the torch operations in place of SGLang's own, on this platform alone."""
    from sglang.srt.platforms import current_platform

    from sglang_sparse.platform.torch_cpu import TorchCpuPlatform

    if isinstance(current_platform, TorchCpuPlatform):
        from sglang_sparse.platform.operations import register

        register()


def _has_accelerator() -> bool:
    return torch.accelerator.is_available() or torch.cuda.is_available()
