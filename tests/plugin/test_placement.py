"""`/sparse/placement` tells the states of the very tree that SGLang holds, and changes nothing."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from cache_fixtures import CacheHarness
from cache_prompts import harness_of, serve, tokens_of

from sglang_sparse import endpoint
from sglang_sparse import placement as client
from sglang_sparse.asking import ANSWERED, NO_ANSWER
from sglang_sparse.placement import read_placement
from sglang_sparse.planner import has_state, path_to_root
from tree_placement.policy import TreeForecast
from tree_placement.tree import PrefixTree, tree_recompute

DEPTHS = (48, 120, 80, 17, 159, 120, 64)


class Server:
    """SGLang's tokenizer manager before one scheduler."""

    def __init__(self, harness: CacheHarness) -> None:
        self.scheduler = SimpleNamespace(tree_cache=harness.cache)

    def auto_create_handle_loop(self) -> None:
        pass

    async def get_internal_state_communicator(self, request: Any) -> list[Any]:
        answer = SimpleNamespace(internal_state={})
        return [endpoint.get_internal_state(answer, self.scheduler, request)]


@pytest.fixture
def harness() -> CacheHarness:
    """A cache that has served prompts which leave two trunks, one in a namespace, at many depths.

    It has few slots, so that states are missed too.
    """
    made = harness_of(rows=2, slots=16)
    for name, depth in enumerate(DEPTHS):
        for trunk, namespace in enumerate((None, "other")):
            tokens = tokens_of(160, seed=trunk)[:depth] + tokens_of(60, seed=10 * name + trunk + 9)
            serve(made, 2 * name + trunk, tokens, namespace)
    return made


def ask(harness: CacheHarness) -> tuple[int, Any]:
    answer = asyncio.run(endpoint.answer_placement(Server(harness)))
    return answer.status_code, json.loads(bytes(answer.body))


def told(harness: CacheHarness) -> TreeForecast:
    status, (answer,) = ask(harness)
    assert status == HTTPStatus.OK
    assert answer["grid"] == harness.cache.grid
    return read_placement(answer)


def depth_of(node: Any) -> int:
    return sum(len(above.key) for above in path_to_root(node))


def compare(harness: CacheHarness, forecast: TreeForecast) -> None:
    """Hold a forecast to the tree: the same states at the same depths, one above the other alike,
    and each worth what the policy values it at."""
    nodes = [node for node, _ in harness.walk() if has_state(node)]
    assert sorted(forecast.ids) == sorted(node.id for node in nodes)
    place = dict(zip(forecast.ids, forecast.kept, strict=True))
    id_at = {node: state for state, (node, _) in place.items()}
    cost = tree_recompute(forecast.tree, forecast.kept)
    for node in nodes:
        at = place[node.id][0]
        assert forecast.tree.depths[at] == depth_of(node)
        above = []
        while at > 0:
            above += [id_at[at]] if at in id_at else []
            at = int(forecast.tree.parents[at])
        assert above == [each.id for each in path_to_root(node) if has_state(each)]
        rest = [each for each in forecast.kept if each != place[node.id]]
        value = harness.cache.planner.value(node.id)
        assert tree_recompute(forecast.tree, rest) - cost == pytest.approx(value)


def test_what_is_told_is_the_tree_that_sglang_holds(harness: CacheHarness) -> None:
    forecast = told(harness)
    compare(harness, forecast)
    assert len(forecast.kept) > 5
    assert tree_recompute(forecast.tree, forecast.kept) > 0.0, "some are missed"


def moved(forecast: TreeForecast) -> TreeForecast:
    """A state is told of one node further up."""
    node = next(node for node, _ in forecast.kept if forecast.tree.parents[node] > 0)
    up = int(forecast.tree.parents[node])
    kept = tuple(
        (up, int(forecast.tree.lengths[up])) if each[0] == node else each for each in forecast.kept
    )
    return TreeForecast(forecast.tree, kept, forecast.ids)


def lighter(forecast: TreeForecast) -> TreeForecast:
    """Nothing is expected of one state."""
    weights = forecast.tree.weights.copy()
    weights[forecast.kept[-1][0]] = 0.0
    tree = PrefixTree(forecast.tree.parents, forecast.tree.lengths, weights)
    return TreeForecast(tree, forecast.kept, forecast.ids)


@pytest.mark.parametrize("wrong", [moved, lighter])
def test_another_tree_would_be_seen(harness: CacheHarness, wrong: Any) -> None:
    with pytest.raises(AssertionError):
        compare(harness, wrong(told(harness)))


def test_to_ask_changes_nothing(harness: CacheHarness) -> None:
    def footprint() -> list[Any]:
        nodes = [
            (node.id, node.last_access_time, len(node.key), node.hit_count, numbers[-1])
            for node, numbers in harness.walk()
        ]
        planner = harness.cache.planner
        order, learned = list(planner.eviction_order()), planner.policy.statistics()
        return [nodes, order, learned, harness.cache.report()]

    before = footprint()
    first = ask(harness)
    assert footprint() == before
    assert ask(harness) == first


def test_an_empty_cache_keeps_nothing() -> None:
    forecast = told(harness_of())
    assert (len(forecast.tree), forecast.kept) == (1, ())


def test_other_requests_are_not_told(harness: CacheHarness) -> None:
    scheduler = Server(harness).scheduler
    for request in (None, SimpleNamespace(rid=None), SimpleNamespace(rid="1")):
        answer = SimpleNamespace(internal_state={})
        told = endpoint.get_internal_state(answer, scheduler, request)
        assert set(told.internal_state) == {endpoint.STATE}


def test_a_policy_that_fails_is_answered_with_a_line(
    harness: CacheHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness.cache.planner.policy, "forecast", lambda: 1 // 0)
    status, answer = ask(harness)
    assert status == HTTPStatus.INTERNAL_SERVER_ERROR
    assert answer["error"].startswith("policy: got no forecast")


def test_the_client_prints_how_near_the_optimum_they_are(
    harness: CacheHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def get(url: str, *, headers: dict[str, str], timeout: float) -> httpx.Response:
        assert url == "http://host:1/sparse/placement"
        assert headers == {"Authorization": "Bearer key"}
        status, answer = ask(harness)
        return httpx.Response(status, json=answer)

    monkeypatch.setattr(httpx, "get", get)
    arguments = ["--url", "http://host:1/", "--admin-key", "key"]
    forecast = told(harness)
    assert client.main(arguments) == ANSWERED
    printed = capsys.readouterr().out
    assert f"{len(forecast.kept)} states kept" in printed
    assert f"{tree_recompute(forecast.tree, forecast.kept):,.1f}" in printed
    assert client.main([*arguments, "--json"]) == ANSWERED
    assert json.loads(capsys.readouterr().out) == ask(harness)[1]
    monkeypatch.setattr(harness.cache.planner.policy, "forecast", lambda: 1 // 0)
    assert client.main(arguments) == NO_ANSWER
    assert "error: the server answered 500" in capsys.readouterr().err
