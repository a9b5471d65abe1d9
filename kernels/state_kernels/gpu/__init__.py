"""Triton kernels. Their modules are imported when a kernel is asked for, not before."""

from __future__ import annotations

import os
from importlib.util import find_spec

import torch


def require_triton(device: torch.device) -> None:
    """Raise ValueError unless Triton kernels can run on tensors of a device.

    They can on a CUDA device, and anywhere under Triton's interpreter (``TRITON_INTERPRET=1``).
    """
    if find_spec("triton") is None:
        raise ValueError(
            "implementation: got 'triton'; need Triton, which is not installed; pip install triton"
        )
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(
            f"implementation: got 'triton' for tensors on {device}; need a CUDA device; "
            "move the tensors there, or set TRITON_INTERPRET=1 to try the kernels without one"
        )
