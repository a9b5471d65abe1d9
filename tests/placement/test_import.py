"""What importing the package brings in, seen from a fresh interpreter."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "sglang", "state_kernels", "numba", "networkx")
REPORT = f"import sys; print(*[name for name in {HEAVY} if name in sys.modules])"


def loaded_by(statement: str) -> list[str]:
    command = [sys.executable, "-c", f"{statement}; {REPORT}"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return result.stdout.split()


def test_import_is_light() -> None:
    assert loaded_by("import tree_placement") == []


@pytest.mark.parametrize("name", ["numba", "networkx"])
def test_a_heavy_import_would_be_seen(name: str) -> None:
    assert name in loaded_by(f"import tree_placement, {name}")
