"""`/sparse/placement` over HTTP: where states are told to be is where prompts resume."""

from __future__ import annotations

import pytest

from sglang_sparse import placement as client
from sglang_sparse.asking import ANSWERED, NO_ANSWER
from sglang_sparse.demo.server import Server
from sglang_sparse.placement import ROUTE, read_placement
from support.prompts import words

pytestmark = pytest.mark.server


def kept_depths(server: Server) -> list[int]:
    """Ask twice, and return the depths of the states."""
    first, second = (server.get(ROUTE).raise_for_status().json() for _ in range(2))
    assert first == second
    (answer,) = first
    assert answer["grid"] == 64
    forecast = read_placement(answer)
    return sorted(int(forecast.tree.depths[node]) for node, _ in forecast.kept)


def test_states_are_where_prompts_resume(sparse_server: Server) -> None:
    sparse_server.flush_cache()
    assert kept_depths(sparse_server) == []
    document = words(3000, seed=70)
    sparse_server.complete(document, 1)
    depths = kept_depths(sparse_server)
    assert len(depths) == sparse_server.state()["sparse"]["states"] > 1
    before = sparse_server.state()["sparse"]["counters"]
    for depth in depths:
        leaving = document[: depth + 30]
        told = sparse_server.post("/sparse/explain", input_ids=leaving).raise_for_status().json()
        assert told["state"] == depth
    assert kept_depths(sparse_server) == depths
    assert sparse_server.state()["sparse"]["counters"] == before
    resumed = sparse_server.complete(document[: depths[0] + 30], 1).cached_tokens
    assert resumed == depths[0]


def test_the_client_asks_a_server(
    sparse_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    sparse_server.complete(words(2000, seed=71), 1)
    assert client.main(["--url", sparse_server.url]) == ANSWERED
    assert "at best, with as many" in capsys.readouterr().out
    assert client.main(["--url", "http://127.0.0.1:9"]) == NO_ANSWER
    assert capsys.readouterr().err.startswith("error: --url: got http://127.0.0.1:9")
