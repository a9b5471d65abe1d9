"""Truths from outside: flash-linear-attention's naive references, and transformers' layers."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from cases import TOLERANCE, Pass, relative_error

Reference = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def fla_reference(operation: str, name: str) -> Reference:
    """Return a function of FLA's ``fla/ops/<operation>/naive.py``; skip where FLA is absent.

    The file is loaded by itself: the package would import Triton and look for a GPU.
    """
    package = importlib.util.find_spec("fla")
    if package is None or not package.submodule_search_locations:
        pytest.skip("no flash-linear-attention: its references are not here")
    path = Path(package.submodule_search_locations[0]) / "ops" / operation / "naive.py"
    spec = importlib.util.spec_from_file_location(f"fla_naive_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    reference: Reference = getattr(module, name)
    return reference


def transformers_model(monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    """Return ``transformers.models.<name>``'s code with every function on its torch path."""
    # FLA's Triton kernels, which it would take, do not run on a CPU and are slow to import.
    monkeypatch.setitem(sys.modules, "fla", None)
    module: ModuleType = pytest.importorskip(f"transformers.models.{name}.modeling_{name}")
    for each, value in vars(module).copy().items():
        # In case transformers was imported with those kernels before.
        if inspect.isfunction(value) and value.__module__ == module.__name__:
            monkeypatch.setattr(module, each, inspect.unwrap(value))
    return module


def assert_agrees(given: Pass, wrong: Pass, output: torch.Tensor, state: torch.Tensor) -> None:
    """Hold both implementations to an outside truth, which a wrong pass must miss.

    `output` is ``[1, T, HV, V]`` and `state` ``[1, HV, K, V]``.
    """
    state = state.transpose(2, 3)
    for got in (given.run(), given.truth()):
        assert relative_error(got.output, output[0]) <= TOLERANCE
        assert relative_error(got.final_state, state) <= TOLERANCE
    missed = wrong.run()
    errors = relative_error(missed.output, output[0]), relative_error(missed.final_state, state)
    print("the wrong pass: relative errors " + ", ".join(f"{error:.1e}" for error in errors))
    assert min(errors) > 100 * TOLERANCE
