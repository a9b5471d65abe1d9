"""Data beside the repository, which is no part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2].parent / "shared" / "data"


def shared(name: str) -> Path:
    """Return the path of a file of the shared data; skip the test where it is absent."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"no {path}: the shared data is not here")
    return path
