"""Checks of what is given where a tensor is needed."""

from __future__ import annotations

import torch


def is_integer(tensor: torch.Tensor) -> bool:
    """Return whether a tensor holds integers; booleans are none."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def is_expanded(tensor: torch.Tensor) -> bool:
    """Return whether elements along an axis share their memory."""
    axes = zip(tensor.shape, tensor.stride(), strict=True)
    return any(size > 1 and stride == 0 for size, stride in axes)


def check_tensors(**values: object) -> None:
    """Raise TypeError unless all values, each by its argument's name, are tensors."""
    for name, value in values.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name}: got {type(value).__name__}; need a tensor; convert it first")


def check_floating(**values: object) -> None:
    """Raise TypeError unless all values are tensors, ValueError unless of floating point."""
    check_tensors(**values)
    for name, value in values.items():
        if isinstance(value, torch.Tensor) and not value.is_floating_point():
            raise ValueError(
                f"{name}: got {value.dtype}; need a floating-point type; convert it first"
            )


def check_devices(**values: object) -> None:
    """Raise ValueError unless all tensors among the values, by their arguments' names, are on the
    device of the first."""
    tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    for name, tensor in tensors.items():
        first = next(iter(tensors))
        if tensor.device != tensors[first].device:
            raise ValueError(
                f"{name}: got a tensor on {tensor.device}; "
                f"need one on {tensors[first].device}, as {first} is; move it there"
            )
