"""How many random cases the comparisons with brute force take."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a long comparison be asked for."""
    parser.addoption(
        "--cases", default=1000, type=int, help="random cases of a comparison (default: 1000)"
    )


@pytest.fixture(scope="session")
def cases(pytestconfig: pytest.Config) -> int:
    """Random cases that a comparison with brute force takes."""
    return int(pytestconfig.getoption("--cases", default=1000))
