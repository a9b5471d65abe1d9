"""A server with the fewest slots that SGLang takes serves on, and explains what it misses."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from sglang_sparse import explain as client
from sglang_sparse.asking import ANSWERED
from sglang_sparse.demo.server import Server
from support.prompts import words

pytestmark = pytest.mark.server

FLAGS = ["--max-total-tokens", "20000", "--radix-cache-backend", "sparse"]
FLAGS += ["--max-mamba-cache-size"]
FEWEST_SLOTS = 5


@pytest.fixture(scope="module")
def server(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(
        model_folder, [*FLAGS, str(FEWEST_SLOTS)], log=tmp_path_factory.mktemp("full") / "log"
    ) as server:
        server.wait_until_ready()
        yield server


def test_every_request_is_served(server: Server) -> None:
    prompts = [words(700, seed=30 + row) for row in range(6)]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda prompt: server.complete(prompt, 20), prompts))
    assert all(len(answer.tokens) == 20 for answer in answers)
    (report,) = server.get("/sparse/integrity").raise_for_status().json()
    assert report["integrity"]["holds"]
    assert report["counters"]["captured"] < report["counters"]["planned"]


def test_a_miss_is_explained_to_a_client(
    server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without being counted or changing what the same prompt then finds."""
    server.flush_cache()
    document = words(1000, seed=60)
    server.complete(document, 1)
    prompt = document[:500] + words(100, seed=61)
    for _ in range(2):
        told = server.post("/sparse/explain", input_ids=prompt).raise_for_status().json()
        assert told["overlap"] >= 500
        assert told["divergence"]["depth"] >= 500
        assert told["divergence"]["texts"]
        assert told["why"]
    before = server.state()["sparse"]["counters"]
    assert server.complete(prompt, 1).cached_tokens == told["state"]
    assert before["prompts"] + 1 == server.state()["sparse"]["counters"]["prompts"]
    wrong = server.post("/sparse/explain", text="a", input_ids=[1])
    assert wrong.status_code == httpx.codes.BAD_REQUEST
    file = tmp_path / "prompt.txt"
    file.write_text("one two three")
    assert client.main(["--url", server.url, "--prompt", str(file)]) == ANSWERED
    assert capsys.readouterr().out.startswith("prompt: ")
    chat = server.post("/sparse/explain", messages=[{"role": "user", "content": "one two"}])
    assert chat.status_code == httpx.codes.OK
