"""The main job: prompts that leave a cached document resume near where they leave it."""

from __future__ import annotations

import pytest

from sglang_sparse.demo.server import Server
from support.apart import Apart
from support.comparison import TOLERANCE, largest_difference
from support.prompts import words

pytestmark = pytest.mark.server

GRID = 64


@pytest.fixture
def stock(stock_server: Server, request: pytest.FixtureRequest) -> Apart:
    """The stock server, to which this test is the first."""
    return Apart(stock_server, request.node.name)


@pytest.fixture
def sparse(sparse_server: Server, request: pytest.FixtureRequest) -> Apart:
    """The sparse server, to which this test is the first."""
    return Apart(sparse_server, request.node.name)


def test_a_prompt_that_shares_half_of_a_document(stock: Apart, sparse: Apart) -> None:
    document = words(6000, seed=2)
    cached = {}
    for name, server in (("stock", stock), ("sparse", sparse)):
        server.flush_cache()
        server.complete(document, 1)
        cached[name] = [
            server.complete(document[:3000] + words(50, seed=seed), 1).cached_tokens
            for seed in (1, 2)
        ]
    print(f"tokens from cache, first and second prompt: {cached}")
    assert cached["stock"][0] == 0
    assert cached["sparse"][0] >= 2200
    assert cached["sparse"][1] >= 2944


@pytest.mark.parametrize("length", [65, 100, 527, 528, 1946, 4096, 4097])
def test_the_same_prompt_twice(sparse: Apart, length: int) -> None:
    """Served to the last grid depth below its length; a last token is left to compute."""
    prompt = words(length, seed=3000 + length)
    first, second = (
        sparse.complete(prompt, 3, top=5),
        sparse.complete(prompt, 3, top=5),
    )
    assert second.cached_tokens == (length - 1) // GRID * GRID
    assert largest_difference(first, second) <= TOLERANCE


@pytest.mark.parametrize("length", [1, 2, 63, 64])
def test_shorter_than_a_grid_step(sparse: Apart, length: int) -> None:
    before = sparse.state()["sparse"]
    prompt = words(length, seed=4000 + length)
    answers = [sparse.complete(prompt, 3) for _ in range(2)]
    assert [answer.cached_tokens for answer in answers] == [0, 0]
    after = sparse.state()["sparse"]
    assert after["counters"]["planned"] == before["counters"]["planned"]


def test_probes_of_a_server_s_health_are_no_prompts(sparse_server: Server) -> None:
    """They would age every state, and teach that nothing is used."""
    before = sparse_server.state()["sparse"]["counters"]
    for route in ("/health", "/health_generate"):
        assert sparse_server.get(route).status_code == 200
    assert sparse_server.state()["sparse"]["counters"] == before
    sparse_server.complete(words(70, seed=30), 1)
    assert sparse_server.state()["sparse"]["counters"]["prompts"] == before["prompts"] + 1


def test_a_prompt_that_ends_inside_a_node(sparse: Apart) -> None:
    sparse.flush_cache()
    document = words(6000, seed=5)
    sparse.complete(document, 1)
    states = sparse.state()["sparse"]["states"]
    inside = sparse.complete(document[:4500], 1)
    assert inside.cached_tokens >= 4500 - 1000
    assert sparse.state()["sparse"]["states"] >= states
    assert sparse.complete(document, 1).cached_tokens == 5999 // GRID * GRID


def test_one_shared_prefix_of_560(stock: Apart, sparse: Apart) -> None:
    """Stock's second prompt resumes from nothing."""
    prefix = words(560, seed=6)
    cached = {}
    for name, server in (("stock", stock), ("sparse", sparse)):
        server.flush_cache()
        cached[name] = [
            server.complete(prefix + words(1946 - 560, seed=600 + turn), 1).cached_tokens
            for turn in range(5)
        ]
    print(f"tokens from cache, by prompt: {cached}")
    assert cached["stock"][1] == 0
    assert cached["sparse"][1] >= 560 - 1946 // 6
    assert cached["sparse"][2:] == [512, 512, 512]


def test_the_shared_part_shifts(stock: Apart, sparse: Apart) -> None:
    """Hits follow a shared part that gets 100 tokens longer or shorter from run to run.

    The first prompt of each turn is the one that stock computes from the start. A path that is full
    need not keep two states a grid step apart: the second finds one within the shift.
    """
    document = words(3000, seed=8)
    first: dict[str, list[int]] = {}
    for name, server in (("stock", stock), ("sparse", sparse)):
        server.flush_cache()
        server.complete(document, 1)
        first[name] = []
        for turn, shared in enumerate((1500, 1600, 1500, 1400, 1500, 1600)):
            new = server.complete(document[:shared] + words(80, seed=800 + turn), 1)
            again = server.complete(document[:shared] + words(80, seed=900 + turn), 1)
            first[name].append(shared - new.cached_tokens)
            assert shared - again.cached_tokens < 100 + GRID or name == "stock"
    print(f"gaps of the first prompts: {first}")
    assert max(first["sparse"]) < 3000 // 6
    assert max(first["stock"]) >= 1400


def test_one_changed_token_near_the_end(sparse: Apart) -> None:
    """It costs the tokens after it and less than one gap of the path."""
    sparse.flush_cache()
    prompt = words(12000, seed=9)
    sparse.complete(prompt, 1)
    changed = prompt.copy()
    changed[11700] = ord("#")
    answer = sparse.complete(changed, 1)
    largest_gap = 12000 // 7 + GRID
    assert 11700 - answer.cached_tokens < largest_gap
    assert 11700 - sparse.complete([*changed[:11701], 65, 66], 1).cached_tokens < GRID


def test_append_only_chat(sparse: Apart) -> None:
    """Each turn recomputes its new tokens and less than one grid step."""
    sparse.flush_cache()
    history = words(400, seed=10)
    sparse.complete(history, 8)
    for turn in range(8):
        earlier = len(history)
        history = history + words(150 + 13 * turn, seed=100 + turn)
        answer = sparse.complete(history, 8)
        assert earlier - answer.cached_tokens < GRID


def test_divergences_keep_the_states_above_them(sparse: Apart) -> None:
    """Depths that prompts come back to have a state each, though none of them is the last one
    met, and the path is full: it has room for them because others go."""
    sparse.flush_cache()
    document = words(4000, seed=12)
    sparse.complete(document, 1)
    gaps = [
        [
            depth
            - sparse.complete(document[:depth] + words(60, seed=depth + turn), 1).cached_tokens
            for depth in (3000, 2000, 1000)
        ]
        for turn in range(4)
    ]
    print(f"gaps by turn: {gaps}")
    assert max(gaps[-1]) < GRID
    assert sparse.complete(document, 1).cached_tokens == 3999 // GRID * GRID


def test_namespaces_share_nothing(sparse: Apart) -> None:
    sparse.flush_cache()
    document = words(2000, seed=14)
    for turn in range(4):
        sparse.complete(document[:1000] + words(50, seed=turn), 1, extra_key="a")
    first_of_b = sparse.complete(document, 1, extra_key="b")
    assert first_of_b.cached_tokens == 0
    salted = sparse.complete(document, 1, extra_key="a", cache_salt="salt")
    assert salted.cached_tokens == 0
    assert sparse.complete(document, 1, extra_key="b").cached_tokens == 1999 // GRID * GRID


def test_the_last_token_is_computed_once(sparse: Apart) -> None:
    """After the longest possible hit one token is computed, and outputs stay the same."""
    prompt = words(64 * 20 + 1, seed=15)
    first, second = (sparse.complete(prompt, 6, top=5) for _ in range(2))
    assert second.prompt_tokens - second.cached_tokens == 1
    assert largest_difference(first, second) <= TOLERANCE
