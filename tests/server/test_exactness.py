"""Served outputs are the model's own: from nothing, from cache, stock and sparse."""

from __future__ import annotations

import pytest

from sglang_sparse.demo.server import Completion, Server
from support import sabotage
from support.admin import flush
from support.comparison import TOLERANCE, largest_difference
from support.prompts import words
from support.truth import TransformersTruth

pytestmark = pytest.mark.server

LENGTHS = (1, 2, 63, 64, 65, 127, 128, 129, 500, 2049, 6000, 12000)
FORK_BASE = 1000
NEW_TOKENS = 4


def ask(server: Server, prompt: list[int], extra_key: str | None = None) -> Completion:
    return server.complete(prompt, NEW_TOKENS, top=5, extra_key=extra_key)


@pytest.mark.parametrize("length", LENGTHS)
def test_lengths(
    stock_server: Server, sparse_server: Server, truth: TransformersTruth, length: int
) -> None:
    prompt = words(length, seed=length)
    expected = truth.greedy(prompt, NEW_TOKENS)
    for server in (stock_server, sparse_server):
        cold, warm = ask(server, prompt), ask(server, prompt)
        assert cold.cached_tokens == 0
        assert warm.cached_tokens == (length - 1) // 64 * 64 or server is stock_server
        assert largest_difference(expected, cold) <= TOLERANCE
        assert largest_difference(expected, warm) <= TOLERANCE


def test_forks_at_every_residue(
    stock_server: Server, sparse_server: Server, truth: TransformersTruth
) -> None:
    document = words(1500, seed=7)
    for server in (stock_server, sparse_server):
        # In a pool full of other tests' states the document's own need not be worth their slots.
        server.flush_cache()
        ask(server, document)
    cold: list[int] = []
    equal, worst = 0, 0.0
    for residue in range(64):
        depth = FORK_BASE + residue
        prompt = document[:depth] + words(40, seed=1000 + residue)
        expected = truth.greedy(prompt, NEW_TOKENS)
        answers = [ask(server, prompt) for server in (stock_server, sparse_server)]
        answers += [ask(server, prompt) for server in (stock_server, sparse_server)]
        differences = [largest_difference(expected, answer) for answer in answers]
        worst = max(worst, *differences)
        equal += answers[0].top == answers[1].top == answers[3].top
        if answers[1].cached_tokens == 0:
            cold.append(residue)
        assert max(differences) <= TOLERANCE, (residue, differences)
        assert answers[1].cached_tokens <= depth
    print(f"64 forks: not resumed {cold}; worst difference {worst:.1e}, {equal} equal to the bit")
    assert not cold


@pytest.mark.parametrize("namespace", [*sabotage.NAMESPACES, "untouched"])
def test_a_wrong_state_is_caught(
    hostile_server: Server, truth: TransformersTruth, namespace: str
) -> None:
    # In a pool full of other tests' states a prompt may find only SGLang's own, which are right.
    flush(hostile_server)
    document = words(1500, seed=17)
    prompts = [document[:1200] + words(20, seed=seed) for seed in (1, 2)]
    for prompt in (document, prompts[0]):
        hostile_server.complete(prompt, 1, extra_key=namespace)
    answer = hostile_server.complete(prompts[1], 1, top=5, extra_key=namespace)
    assert answer.cached_tokens > 0
    expected = [truth.next_log_probabilities(prompts[1])]
    difference = largest_difference(expected, answer, same_tokens=False)
    print(f"{namespace}: log-probabilities differ by {difference:.1e}")
    assert (difference <= TOLERANCE) == (namespace == "untouched")
