"""Recurrences and implementations in turn, and thread counts, for the tests of state_kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from state_kernels import Recurrence, all_recurrences
from state_kernels.passes import Implementation


@pytest.fixture(params=all_recurrences(), ids=lambda each: each.name)
def recurrence(request: pytest.FixtureRequest) -> Recurrence[Any, Any]:
    """Return each recurrence of the package, whichever there are."""
    found: Recurrence[Any, Any] = request.param
    return found


@pytest.fixture(params=["reference", "chunked"])
def implementation(request: pytest.FixtureRequest) -> Implementation:
    """Return each implementation that a CPU runs, in float32 as in serving."""
    found: Implementation = request.param
    return found


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Run on one thread: small products gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def two_threads(one_thread: None) -> None:
    """Run on two threads."""
    torch.set_num_threads(2)
