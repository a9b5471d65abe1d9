"""The recurrences of hybrid models, one file each."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import Any

from state_kernels.recurrence import Recurrence


@cache
def all_recurrences() -> tuple[Recurrence[Any, Any], ...]:
    """Return the rule of each file in this folder, with its default options, by name."""
    modules = (import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__))
    return tuple(sorted((m.RECURRENCE for m in modules), key=lambda each: each.name))
