"""What importing the package brings in, seen from a fresh interpreter."""

import subprocess
import sys
from pathlib import Path

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


COLLECT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import pytest
sys.exit(pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", {folder!r}]))
"""


def collected_without(*absent: str) -> int:
    here = Path(__file__).parent
    code = COLLECT.format(absent=set(absent), folder=str(here))
    command = [sys.executable, "-c", code]
    root = here.parents[1]
    return subprocess.run(command, capture_output=True, text=True, cwd=root).returncode


def test_these_tests_need_no_server_s_packages() -> None:
    assert collected_without("sglang", "torch", "transformers", "httpx", "rich") == 0


def test_a_missing_package_would_be_seen() -> None:
    assert collected_without("networkx") != 0
