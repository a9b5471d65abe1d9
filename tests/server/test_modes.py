"""Outputs do not depend on chunks, scheduling or who shares a batch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sglang_sparse.demo.server import Completion, Server
from support.comparison import TOLERANCE, largest_difference
from support.prompts import words
from support.truth import TransformersTruth

pytestmark = pytest.mark.server

NEW_TOKENS = 4
SLOTS_FOR_EIGHT = 40
COMMON = ["--max-mamba-cache-size", str(SLOTS_FOR_EIGHT), "--max-total-tokens", "60000"]
MODES = {
    "chunks of 8192, overlap": ["--chunked-prefill-size", "8192"],
    "chunks of 512, overlap": ["--chunked-prefill-size", "512"],
    "chunks of 8192, no overlap": ["--chunked-prefill-size", "8192", "--disable-overlap-schedule"],
    "chunks of 512, no overlap": ["--chunked-prefill-size", "512", "--disable-overlap-schedule"],
}


@pytest.fixture(scope="module", params=MODES.values(), ids=MODES.keys())
def server(
    request: pytest.FixtureRequest, model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A sparse server in one of the modes."""
    flags = [*COMMON, *request.param, "--radix-cache-backend", "sparse"]
    log = tmp_path_factory.mktemp("mode") / "log"
    with Server(model_folder, flags, log=log) as server:
        server.wait_until_ready()
        yield server


def ask(server: Server, prompt: list[int]) -> Completion:
    return server.complete(prompt, NEW_TOKENS, top=5)


def test_prompts_longer_than_a_chunk(server: Server, truth: TransformersTruth) -> None:
    document = words(9000, seed=13)
    for prompt in (document, document):
        assert (
            largest_difference(truth.greedy(prompt, NEW_TOKENS), ask(server, prompt)) <= TOLERANCE
        )
    resumed = 0
    for depth in (300, 513, 1111, 4095, 8191, 8500):
        prompt = document[:depth] + words(700, seed=depth)
        expected = truth.greedy(prompt, NEW_TOKENS)
        for _ in range(2):
            answer = ask(server, prompt)
            assert largest_difference(expected, answer) <= TOLERANCE
        resumed += answer.cached_tokens >= depth // 64 * 64
    assert resumed == 6


def test_batches_of_one_to_eight(server: Server, stock_server: Server) -> None:
    document = words(2000, seed=11)
    for batch in range(1, 9):
        prompts = [
            document[: 2000 - 230 * row] + words(30 + 7 * row, seed=60 + 10 * batch + row)
            for row in range(batch)
        ]
        alone = [ask(stock_server, prompt) for prompt in prompts]
        with ThreadPoolExecutor(batch) as pool:
            for _ in range(2):
                together = list(pool.map(lambda prompt: ask(server, prompt), prompts))
                for one, other in zip(alone, together, strict=True):
                    assert largest_difference(one, other) <= TOLERANCE
    assert largest_batch(server) == 8


def largest_batch(server: Server) -> int:
    """Return how many requests a prefill brought together with those that ran already, at most."""
    prefills = re.findall(
        r"#new-seq: (\d+),.*#running-req: (\d+)", server.log.read_text(errors="replace")
    )
    return max(int(new) + int(running) for new, running in prefills)
