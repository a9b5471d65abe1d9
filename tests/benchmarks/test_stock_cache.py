"""The model of stock SGLang that predicts its hits, held to the server itself."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

pytest.importorskip("httpx")
pytest.importorskip("rich")

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from serve_prediction import BLOCK, GRID
from serve_servers import chunk_of
from stock_cache import HELD, StockCache

from sglang_sparse.demo.server import Server
from support.prompts import words
from tree_placement.replay import Budget, replay, trace_of_prompts
from tree_placement.replay.policies import policy_named

ROOM = 100_000
TRACKED = 256
"""Tokens between the depths of states that SGLang tracks while it decodes."""


def hits(
    slots: int, kv_tokens: int, *prompts: list[int], chunk: int = 8_192, decodes: bool = False
) -> list[int]:
    return list(map(StockCache(slots, kv_tokens, chunk, GRID, decodes=decodes).serve, prompts))


def forks(documents: int, prompts: int, longest: int, seed: int) -> list[list[int]]:
    """Prompts that leave one of some documents, or an earlier prompt, at any depth but inside a
    block of the replay. They end where SGLang tracks no state while it decodes."""
    draw = random.Random(seed)
    sent = [words(draw.randrange(longest // 2, longest), seed=seed + i) for i in range(documents)]
    for number in range(prompts - documents):
        earlier = draw.choice(sent[:documents] if number % 3 else sent)
        kept = earlier[: draw.randrange(len(earlier)) // BLOCK * BLOCK]
        sent.append(kept + words(draw.randrange(1, longest // 4), seed=seed + 1_000 + number))
    return [prompt[: len(prompt) - 8 * (len(prompt) % TRACKED > TRACKED - 8)] for prompt in sent]


def test_no_tokens_beyond_the_junction_that_is_kept() -> None:
    """The second prompt keeps its junction, so the third finds none beyond, and keeps its end."""
    first, second = [1] * 650, [*[1] * 320, *[2] * 330]
    third = [*second[:480], *[3] * 170]
    sent = [first, second, third, third]
    assert hits(8, ROOM, *sent) == [0, 0, 320, 640]
    trace, budget = trace_of_prompts(sent, block=GRID), Budget(slots=8, grid=GRID)
    with_all_tokens = replay(trace, policy_named("stock", trace, budget), budget)
    assert [each.hit for each in with_all_tokens] == [0, 0, 320, 448]


def test_a_leaf_goes_with_its_state() -> None:
    """Where one state has room, a fork of the first document finds it gone, and no junction."""
    document, *others = ([number] * 650 for number in (1, 2, 3))
    fork = [*document[:320], *[4] * 330]
    assert hits(HELD + 8, ROOM, document, *others, fork, fork) == [0, 0, 0, 0, 320]
    assert hits(HELD + 1, ROOM, document, *others, fork, fork) == [0, 0, 0, 0, 640]


def test_the_leaf_passed_longest_ago_makes_room() -> None:
    document, other = [1] * 641, [2] * 641
    assert hits(16, ROOM, document, other, document) == [0, 0, 640]
    assert hits(16, 1_000, document, other, document) == [0, 0, 0]


def test_kv_that_the_tree_holds_already_is_not_held_twice() -> None:
    """The third prompt's first passes compute what the tree holds, whose states are gone."""
    document = [1] * 650
    sent = [[*document, *[2] * 40], [*document[:130], *[3] * 130], [*document, *[4] * 40]]
    assert hits(6, 750, *sent, chunk=128) == [0, 0, 512]


def test_a_request_that_runs_on_takes_a_slot_for_the_state_that_it_publishes() -> None:
    prompts = [[number] * 130 for number in range(1, 7)]
    assert hits(HELD + 5, ROOM, *prompts, prompts[0])[-1] == 128
    assert hits(HELD + 5, ROOM, *prompts, prompts[0], decodes=True)[-1] == 0


@pytest.mark.parametrize(
    ("slots", "kv_tokens", "what"), [(HELD - 1, ROOM, "slots"), (16, 600, "KV")]
)
def test_a_prompt_without_room(slots: int, kv_tokens: int, what: str) -> None:
    with pytest.raises(RuntimeError, match=f"{what}: got "):
        hits(slots, kv_tokens, [1] * 640, [2] * 640)


@pytest.mark.server
@pytest.mark.parametrize("new_tokens", [1, 4])
def test_every_hit_is_the_server_s(stock_server: Server, new_tokens: int) -> None:
    info = stock_server.get("/server_info").raise_for_status().json()
    slots, kv_tokens = info["max_mamba_cache_size"], info["max_total_tokens"]
    chunk = chunk_of(stock_server)
    stock_server.flush_cache()
    prompts = forks(documents=3, prompts=32, longest=4_600, seed=94)
    served = [stock_server.complete(prompt, new_tokens).cached_tokens for prompt in prompts]
    assert hits(slots, kv_tokens, *prompts, chunk=chunk, decodes=new_tokens > 1) == served
    assert hits(2 * slots, kv_tokens, *prompts, chunk=chunk) != served, "the slots matter"
    assert hits(slots, kv_tokens, *prompts, chunk=chunk, decodes=new_tokens == 1) != served
