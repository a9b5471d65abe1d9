"""A miss is explained: where the prompt differs, what is cached, why no deeper state is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from cache_checks import check
from cache_fixtures import CacheHarness, Running
from cache_pools import configurations
from sglang.srt.entrypoints.openai.protocol import TokenizeResponse
from test_cache_cases import harness_of, serve, tokens_of

from sglang_sparse import endpoint
from sglang_sparse import explain as client
from sglang_sparse.asking import ANSWERED, BAD_INPUT
from sglang_sparse.explanation import Divergence, Explanation
from sglang_sparse.question import Question, QuestionError


def explain(
    harness: CacheHarness, tokens: Sequence[int], namespace: str | None = None
) -> Explanation:
    """Explain a prompt, and check that this changed nothing that a later request could notice."""
    before = footprint(harness)
    told: Explanation = harness.cache.explain(tokens, namespace, None)
    assert footprint(harness) == before
    return told


def footprint(harness: CacheHarness) -> list[Any]:
    nodes = [
        (node.id, node.last_access_time, len(node.key), node.hit_count, numbers[-1])
        for node, numbers in harness.walk()
    ]
    policy = harness.cache.planner.policy
    order = list(harness.cache.planner.eviction_order())
    return [nodes, order, policy.statistics(), harness.cache.report()]


def test_what_is_told_is_what_a_request_then_finds() -> None:
    harness = harness_of()
    trunk = tokens_of(160)
    serve(harness, 1, trunk)
    for name, depth in enumerate((48, 120, 80, 17, 159), 2):
        prompt = trunk[:depth] + tokens_of(40, seed=name)
        told = explain(harness, prompt)
        resumed = serve(harness, name, prompt)
        assert told.state == resumed
        assert told.overlap == depth // 4 * 4
        assert told.gap == told.overlap - told.state
        assert told.divergence.depth == depth
        assert told.divergence.token == prompt[depth]
        assert trunk[depth] in told.divergence.cached


def test_a_prompt_that_is_all_there() -> None:
    harness = harness_of()
    serve(harness, 1, tokens_of(100))
    told = explain(harness, tokens_of(100))
    assert (told.overlap, told.state, told.gap) == (96, 96, 0)
    assert told.divergence == Divergence(96, tokens_of(100)[96], ())
    assert explain(harness, tokens_of(96)).divergence == Divergence(96, None, ())
    assert told.why.startswith("nothing is missing")
    inside = explain(harness, tokens_of(61))
    assert inside.divergence.token is None
    assert inside.overlap == 60


def test_an_empty_cache_and_another_namespace_have_nothing() -> None:
    harness = harness_of()
    assert explain(harness, tokens_of(100)).why == "no cached prompt begins with these tokens"
    serve(harness, 1, tokens_of(100))
    told = explain(harness, tokens_of(100), "other")
    assert (told.overlap, told.state, told.divergence.depth) == (0, 0, 0)
    assert told.divergence.cached == ()


def test_too_short_for_a_state() -> None:
    harness = harness_of()
    serve(harness, 1, tokens_of(100))
    told = explain(harness, tokens_of(7) + tokens_of(20, seed=1))
    assert (told.overlap, told.state) == (4, 0)
    assert "8 tokens apart at least" in told.why


def test_never_planned() -> None:
    harness = harness_of(states_per_path=1)
    serve(harness, 1, tokens_of(200))
    told = explain(harness, tokens_of(100) + tokens_of(40, seed=1))
    assert (told.overlap, told.state, told.missed) == (100, 0, ())
    assert told.why == "no state was ever planned between 0 and 100"


def test_evicted_at_a_price() -> None:
    harness = harness_of()
    serve(harness, 1, tokens_of(100))
    live = explain(harness, tokens_of(101)).state
    price = harness.cache.planner.value(next(harness.cache.planner.eviction_order()))
    harness.evict(harness.slots.size, 0)
    told = explain(harness, tokens_of(101))
    assert (told.state, told.live) == (0, 0)
    assert told.missed[0].depth == live == 96
    assert {missed.reason for missed in told.missed} == {"evicted"}
    assert min(missed.price for missed in told.missed) == pytest.approx(price)
    assert told.why.startswith("a state at 96 was evicted 0 prompts ago, the least valuable")
    serve(harness, 2, tokens_of(50, seed=5))
    assert "evicted 1 prompt ago" in explain(harness, tokens_of(101)).why
    serve(harness, 3, tokens_of(101))
    assert explain(harness, tokens_of(101)).missed == ()


def test_a_path_beyond_its_budget_dropped_it() -> None:
    harness = harness_of(states_per_path=2, rows=3, slots=60)
    serve(harness, 0, tokens_of(160))
    serve(harness, 1, tokens_of(160) + tokens_of(100, seed=1))
    told = explain(harness, tokens_of(160) + tokens_of(40, seed=2))
    assert "trimmed" in {missed.reason for missed in told.missed}
    assert any("more states than its budget" in line for line in told.lines())


def all_in_use(harness: CacheHarness) -> list[Running]:
    """Run prompts until their own slots are all there are; return the requests, published."""
    running = []
    for row in range(harness.cfg.max_num_reqs):
        running.append(harness.start(100 + row, tokens_of(100, seed=100 + row)))
        assert harness.extend(running[-1], 100)
    for each in running:
        harness.publish(each)
    return running


def test_no_slot() -> None:
    """Every slot is a running request's: states are planned, and get none."""
    harness = harness_of(rows=2, slots=8)
    all_in_use(harness)
    check(harness)
    told = [explain(harness, tokens_of(90, seed=100 + row)) for row in range(2)]
    reasons = {missed.reason for each in told for missed in each.missed}
    assert reasons & {"no slot", "revoked"}
    assert all(each.why for each in told)


def test_not_worth_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = harness_of(rows=2, slots=9)
    serve(harness, 1, tokens_of(100))
    monkeypatch.setattr(harness.cache.planner, "is_worth_a_slot", lambda *_: False)
    for name in range(2, 5):
        serve(harness, name, tokens_of(100, seed=name))
    told = explain(harness, tokens_of(90, seed=4))
    refused = [missed for missed in told.missed if missed.reason == "not worth a slot"]
    assert refused
    assert refused[0].value > 0.0
    assert f"a state at {refused[0].depth} was planned" in "\n".join(told.lines())


class Server:
    """SGLang's tokenizer manager and its `/tokenize` before one scheduler."""

    def __init__(self, harness: CacheHarness) -> None:
        self.tokenizer = SimpleNamespace(decode=lambda ids: f"<{ids[0]}>")
        self._scheduler = SimpleNamespace(tree_cache=harness.cache)
        self.asked: list[Any] = []

    def auto_create_handle_loop(self) -> None:
        pass

    async def get_internal_state_communicator(self, request: Any) -> list[Any]:
        answer = SimpleNamespace(internal_state={})
        return [endpoint.get_internal_state(answer, self._scheduler, request)]

    async def handle_request(self, request: Any, raw: Any) -> TokenizeResponse:
        self.asked.append(request)
        return TokenizeResponse(tokens=tokens_of(60), count=60, max_model_len=100)


@pytest.fixture
def server() -> Server:
    harness = harness_of()
    serve(harness, 1, tokens_of(100))
    return Server(harness)


def ask(server: Server, **body: Any) -> tuple[int, dict[str, Any]]:
    answer = asyncio.run(endpoint.answer_explain(server, server, json.dumps(body).encode()))
    return answer.status_code, json.loads(bytes(answer.body))


def test_the_server_answers_tokens_texts_and_chats(server: Server) -> None:
    differs = [*tokens_of(50), 7, 8, 9]
    status, told = ask(server, input_ids=differs)
    assert status == HTTPStatus.OK
    assert told["divergence"] == {
        "depth": 50,
        "token": 7,
        "cached": [tokens_of(100)[50]],
        "texts": ["<7>", f"<{tokens_of(100)[50]}>"],
    }
    assert client.read(told).why == told["why"]
    assert ask(server, input_ids=differs, extra_key="other")[1]["overlap"] == 0
    assert ask(server, text="some text")[1]["length"] == 60
    messages = [{"role": "user", "content": "hello"}]
    assert ask(server, messages=messages, chat_template_kwargs={"a": 1})[1]["length"] == 60
    assert server.asked[0].prompt == "some text"
    assert server.asked[1].chat_template_kwargs == {"a": 1}


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"[", "body: got no JSON"),
        (b"[1]", "body: got list"),
        (b"{}", "body: got an object of [];"),
        (b'{"text": "a", "input_ids": [1]}', "body: got an object of ['input_ids', 'text'];"),
        (b'{"text": "a", "salt": "b"}', "salt: got a field that does not exist"),
        (b'{"text": ""}', "text: got '';"),
        (b'{"text": "a\\ud800b"}', "text: got half a letter"),
        (b'{"input_ids": [1, true]}', "input_ids: got"),
        (b'{"input_ids": [-1]}', "input_ids: got"),
        (b'{"text": "a", "extra_key": 5}', "extra_key: got 5;"),
    ],
)
def test_what_asks_nothing_is_answered_with_a_line(server: Server, body: bytes, line: str) -> None:
    answer = asyncio.run(endpoint.answer_explain(server, server, body))
    assert answer.status_code == HTTPStatus.BAD_REQUEST
    assert json.loads(bytes(answer.body))["error"].startswith(line)
    with pytest.raises(QuestionError):
        Question.from_json(body)


def test_other_requests_are_not_told(server: Server) -> None:
    """The answer shows other users' tokens: it goes to who asked, behind the admin key."""
    ask(server, text="some text")
    answer = SimpleNamespace(internal_state={})
    told = endpoint.get_internal_state(answer, server._scheduler, SimpleNamespace(rid=None))
    assert set(told.internal_state) == {endpoint.STATE}


def test_the_client_prints_it(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def post(url: str, *, content: str, headers: dict[str, str], timeout: float) -> httpx.Response:
        assert url == "http://host:1/sparse/explain"
        assert headers == {"Authorization": "Bearer key"}
        status, told = ask(server, **json.loads(content))
        return httpx.Response(status, json=told)

    monkeypatch.setattr(httpx, "post", post)
    prompt = tmp_path / "prompt.json"
    prompt.write_text(json.dumps({"input_ids": [*tokens_of(50), 7]}))
    arguments = ["--url", "http://host:1/", "--prompt", str(prompt), "--admin-key", "key"]
    assert client.main(arguments) == ANSWERED
    printed = capsys.readouterr().out
    assert "first difference: token 50 is 7" in printed
    assert "as text: '<7>'" in printed
    prompt.write_text("{}")
    assert client.main(arguments) == BAD_INPUT
    assert "need exactly one of" in capsys.readouterr().err
    assert client.main(["--prompt", str(tmp_path / "missing")]) == BAD_INPUT


def test_pages_and_grids_of_every_configuration() -> None:
    for cfg in configurations(rows=3, slots=40):
        harness = CacheHarness(cfg, sparse=True)
        if cfg.has_swa:
            continue
        tokens = tokens_of(6 * harness.grid + 1)
        serve(harness, 1, tokens)
        told = explain(harness, [*tokens[: 5 * harness.grid + 3], 1, 2, 3])
        assert told.divergence.depth == 5 * harness.grid + 3
        assert told.overlap == (5 * harness.grid + 3) // cfg.page_size * cfg.page_size
        assert told.state == harness.look(tokens[: told.overlap], None, None).device_prefix_len
