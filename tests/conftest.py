"""Real servers for the tests, started once a session, and the small model that they serve.

The fixtures import what they need, so that tests of `tree_placement` run without the packages of a
server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sglang_sparse.demo.server import Server
    from support.truth import TransformersTruth

SLOTS = 32
COMMON_FLAGS = ["--max-mamba-cache-size", str(SLOTS), "--max-total-tokens", "200000"]
SPARSE = ["--radix-cache-backend", "sparse", "--sparse-states-per-path", "8"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a long run be asked for."""
    parser.addoption(
        "--random-steps", default=120, type=int, help="steps of the random clients (default: 120)"
    )


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """The tiny hybrid model, built once and kept."""
    from sglang_sparse.demo.tiny_model import build_tiny_model, default_model_folder

    return build_tiny_model(default_model_folder())


@pytest.fixture(scope="session")
def servers(
    model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Server]]:
    """A stock and a sparse server with the same flags, started side by side."""
    from sglang_sparse.demo.server import Server

    logs = tmp_path_factory.mktemp("servers")
    with ExitStack() as running:
        pair = [
            running.enter_context(Server(model_folder, flags, log=logs / f"{name}.log"))
            for name, flags in (("stock", COMMON_FLAGS), ("sparse", COMMON_FLAGS + SPARSE))
        ]
        for server in pair:
            server.wait_until_ready()
        yield pair[0], pair[1]


@pytest.fixture(scope="session")
def stock_server(servers: tuple[Server, Server]) -> Server:
    """SGLang as it is; a test that wants an empty cache flushes it."""
    return servers[0]


@pytest.fixture(scope="session")
def sparse_server(servers: tuple[Server, Server]) -> Server:
    """SGLang with `--radix-cache-backend sparse`; a test that wants an empty cache flushes it."""
    return servers[1]


@pytest.fixture(scope="session")
def hostile_server(
    model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A sparse server in the other modes: 12 slots, chunks of 512, no overlap, forced retraction.

    Its admin key is that of `support.admin`; it loads the plugin that spoils states on request.
    """
    from sglang_sparse.demo.server import Server
    from support import plugins
    from support.admin import ADMIN_KEY

    flags = ["--max-mamba-cache-size", "12", "--max-total-tokens", "20000"]
    flags += ["--chunked-prefill-size", "512", "--disable-overlap-schedule"]
    flags += ["--admin-api-key", ADMIN_KEY, *SPARSE]
    folder = tmp_path_factory.mktemp("hostile")
    plugin = plugins.environment(
        folder, "sabotage", "support.sabotage:register", Path(__file__).parent
    )
    environment = {"SGLANG_TEST_RETRACT": "1", **plugin}
    with Server(model_folder, flags, log=folder / "log", environment=environment) as server:
        server.wait_until_ready()
        yield server


@pytest.fixture(scope="session")
def truth(model_folder: Path) -> Iterator[TransformersTruth]:
    """The same model in transformers."""
    from support.truth import TransformersTruth

    with TransformersTruth(model_folder, threads=2) as model:
        yield model
