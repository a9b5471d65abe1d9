"""`/sparse/integrity` tells of one moment, and by its status whether every slot has an owner."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest
from cache_fixtures import CacheHarness
from cache_pools import configurations
from sglang.srt.managers.io_struct import SetInternalStateReq

from sglang_sparse import endpoint


class Manager:
    """SGLang's tokenizer manager before one scheduler, whose requests go on between messages."""

    def __init__(self, harness: CacheHarness) -> None:
        self.scheduler = SimpleNamespace(
            tree_cache=harness.cache,
            collect_inflight_reqs=lambda: set(harness.requests()),
            waiting_queue=[],
            chunked_req=None,
        )
        self.meanwhile: Callable[[], None] = lambda: None

    async def set_internal_state(self, request: SetInternalStateReq) -> list[bool]:
        answer = endpoint.set_internal_state(pytest.fail, self.scheduler, request)
        self.meanwhile()
        return [answer.updated]

    async def get_internal_state(self) -> list[dict[str, Any]]:
        answer = SimpleNamespace(internal_state={})
        return [endpoint.get_internal_state(answer, self.scheduler).internal_state]


@pytest.fixture
def harness() -> CacheHarness:
    """A sparse cache in which one prompt runs."""
    cfg = next(cfg for cfg in configurations(rows=3, slots=40) if cfg.page_size == 4)
    made = CacheHarness(cfg, sparse=True)
    assert made.extend(made.start(0, range(100)), 100)
    return made


@pytest.fixture
def manager(harness: CacheHarness) -> Manager:
    return Manager(harness)


def ask(manager: Manager) -> tuple[int, dict[str, Any]]:
    """Return the status, and what the one scheduler reports."""
    answer = asyncio.run(endpoint.answer_integrity(manager))
    (report,) = json.loads(bytes(answer.body))
    return answer.status_code, dict(report)


def server_info(manager: Manager) -> dict[str, Any]:
    (state,) = asyncio.run(manager.get_internal_state())
    return state


def test_what_holds_is_answered_with_200(manager: Manager) -> None:
    status, report = ask(manager)
    assert status == HTTPStatus.OK
    assert report["integrity"]["holds"] is True
    assert report["integrity"]["running"] == 3
    assert report["integrity"]["violations"] == []


def test_a_lost_slot_is_answered_with_500_and_named(
    harness: CacheHarness, manager: Manager
) -> None:
    lost = int(harness.slots.free_slots[0])
    harness.slots.free_slots = harness.slots.free_slots[1:]
    status, report = ask(manager)
    assert status == HTTPStatus.INTERNAL_SERVER_ERROR
    assert report["integrity"]["holds"] is False
    assert report["integrity"]["violations"] == [f"slot {lost}: owned 0 times (by none)"]


@pytest.mark.parametrize("place", ["waiting_queue", "chunked_req"])
def test_requests_that_are_in_no_batch_are_counted(manager: Manager, place: str) -> None:
    (request,) = manager.scheduler.collect_inflight_reqs()
    manager.scheduler.collect_inflight_reqs = set
    assert ask(manager)[0] == HTTPStatus.INTERNAL_SERVER_ERROR
    setattr(manager.scheduler, place, request if place == "chunked_req" else [request])
    assert ask(manager)[0] == HTTPStatus.OK


def test_counters_and_integrity_are_of_one_moment(harness: CacheHarness, manager: Manager) -> None:
    """What requests do between the check and the answer is not in it."""
    before = harness.cache.report()
    manager.meanwhile = lambda: harness.abort(harness.running[0])
    _, report = ask(manager)
    assert report["counters"] == before["counters"]
    assert report["integrity"]["pending"] == report["counters"]["captured"] > 0
    assert server_info(manager)["sparse"]["counters"]["discarded"] > 0


def test_server_info_tells_of_a_check_once_there_was_one(manager: Manager) -> None:
    assert set(server_info(manager)) == {endpoint.STATE}
    _, report = ask(manager)
    told = json.loads(json.dumps(server_info(manager)))
    assert told[endpoint.INTEGRITY] == report


def test_other_requests_go_on_to_sglang(manager: Manager) -> None:
    passed = endpoint.set_internal_state(
        lambda scheduler, request: "passed",
        manager.scheduler,
        SetInternalStateReq(server_args={"pp_max_micro_batch_size": 8}),
    )
    assert passed == "passed"
    assert set(server_info(manager)) == {endpoint.STATE}


def test_no_route_without_our_back_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.entrypoints import http_server

    added: list[str] = []
    monkeypatch.setattr(
        http_server.app, "add_api_route", lambda path, *args, **kwargs: added.append(path)
    )
    endpoint.serve_http(SimpleNamespace(radix_cache_backend=None))
    assert added == []
    endpoint.serve_http(SimpleNamespace(radix_cache_backend="sparse"))
    assert added == ["/sparse/integrity", "/sparse/placement", "/sparse/explain"]
