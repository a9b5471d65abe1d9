"""Whatever clients do, no slot is lost, and the server goes on."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest

from sglang_sparse.demo.server import Server, ServerError
from support.admin import ADMIN_KEY, flush
from support.comparison import TOLERANCE, largest_difference
from support.prompts import words

pytestmark = pytest.mark.server


def integrity(server: Server) -> dict[str, Any]:
    """Ask the server to account for its slots; wait until nothing runs."""
    answer = server.get("/sparse/integrity", Authorization=f"Bearer {ADMIN_KEY}")
    report = answer.json()[0]
    return dict(report["integrity"])


def assert_all_slots_back(server: Server) -> None:
    for _ in range(50):
        report = integrity(server)
        if report["running"] == 0:
            break
        time.sleep(0.2)
    assert report["violations"] == []
    assert report["running"] == report["pending"] == 0
    assert report["free"] + report["tree"] == report["slots"]


@pytest.mark.parametrize("route", ["/sparse/integrity", "/sparse/placement"])
def test_what_tells_of_others_prompts_is_behind_the_admin_key(
    hostile_server: Server, route: str
) -> None:
    assert hostile_server.get(route).status_code == httpx.codes.UNAUTHORIZED
    wrong = hostile_server.get(route, Authorization="Bearer wrong")
    assert wrong.status_code == httpx.codes.UNAUTHORIZED
    assert_all_slots_back(hostile_server)


def test_aborted_in_mid_prefill(hostile_server: Server) -> None:
    """The client is told, no pending state of the request stays, and its slots are free again."""
    prompt = words(9000, seed=21)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(hostile_server.complete, prompt, 4, request_id="to-abort")
        time.sleep(0.4)
        abort(hostile_server, "to-abort")
        error = running.exception(timeout=300)
    assert isinstance(error, ServerError)
    assert "abort" in str(error)
    assert_all_slots_back(hostile_server)


def test_client_disconnects(hostile_server: Server) -> None:
    body = {
        "input_ids": words(6000, seed=22),
        "sampling_params": {"max_new_tokens": 64, "temperature": 0, "ignore_eos": True},
        "stream": True,
    }
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{hostile_server.url}/generate", json=body, timeout=0.3)
    assert_all_slots_back(hostile_server)


def test_more_requests_than_slots_hold(hostile_server: Server) -> None:
    """Optional states are skipped and counted; every request is served."""
    documents = [words(1500, seed=30 + row) for row in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda prompt: hostile_server.complete(prompt, 40), documents))
    assert all(len(answer.tokens) == 40 for answer in answers)
    assert_all_slots_back(hostile_server)
    counters = hostile_server.state()["sparse"]["counters"]
    assert counters["skipped_no_slot"] + counters["skipped_not_worth"] > 0


def test_random_clients(hostile_server: Server, pytestconfig: pytest.Config) -> None:
    """Forks anywhere, aborts, disconnects and flushes; outputs equal those of an empty cache.

    The server retracts running requests again and again meanwhile. `--random-steps` sets for how
    long.
    """
    steps = int(pytestconfig.getoption("--random-steps"))
    random_steps(hostile_server, steps=steps, seed=5)
    log = hostile_server.log.read_text(errors="replace")
    assert re.search(r"#retracted_reqs: [1-9]", log)


def random_steps(server: Server, *, steps: int, seed: int) -> None:
    draw = random.Random(seed)
    documents = [words(draw.randrange(200, 1300), seed=40 + row) for row in range(5)]
    asked: list[tuple[list[int], Any]] = []
    for step in range(steps):
        if step % 100 == 99:
            assert_all_slots_back(server)
            print(f"step {step + 1}: {server.state()['sparse']['counters']}", flush=True)
        document = draw.choice(documents)
        prompt = document[: draw.randrange(1, len(document))]
        prompt += words(draw.randrange(1, 200), seed=seed * 100_000 + step)
        kind = draw.random()
        if kind < 0.6:
            asked.append((prompt, server.complete(prompt, 3, top=5)))
        elif kind < 0.75:
            with ThreadPoolExecutor(3) as pool:
                list(pool.map(lambda p: server.complete(p, 6), [prompt, document, prompt[::2]]))
        elif kind < 0.85:
            abort_soon(server, prompt * 4, f"step-{seed}-{step}", draw.uniform(0.0, 0.1))
        elif kind < 0.95:
            disconnect(server, prompt * 3, draw.uniform(0.01, 0.1))
        else:
            assert_all_slots_back(server)
            flush(server)
    assert_all_slots_back(server)
    for prompt, answer in draw.sample(asked, min(len(asked), 30)):
        flush(server)
        cold = server.complete(prompt, 3, top=5)
        assert cold.cached_tokens == 0
        assert largest_difference(cold, answer) <= TOLERANCE


def abort_soon(server: Server, prompt: list[int], name: str, seconds: float) -> None:
    client = threading.Thread(
        target=lambda: _ignore(lambda: server.complete(prompt, 8, request_id=name))
    )
    client.start()
    time.sleep(seconds)
    abort(server, name)
    client.join(120)


def abort(server: Server, name: str) -> None:
    httpx.post(
        f"{server.url}/abort_request",
        json={"rid": name},
        headers={"Authorization": f"Bearer {ADMIN_KEY}"},
        timeout=60,
    ).raise_for_status()


def disconnect(server: Server, prompt: list[int], seconds: float) -> None:
    body = {"input_ids": prompt, "sampling_params": {"max_new_tokens": 8}, "stream": True}
    _ignore(lambda: httpx.post(f"{server.url}/generate", json=body, timeout=seconds))


def _ignore(action: Callable[[], object]) -> None:
    """Act as a client whose request may be cut short."""
    with suppress(httpx.TransportError, ServerError):
        action()
