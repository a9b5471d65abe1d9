"""The replay that predicts the sparse server's hits, held to the server itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("httpx")
pytest.importorskip("rich")

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from serve_prediction import BLOCK, GRID, Setting, held, predicted
from serve_servers import chunk_of
from sparse_passes import PassReplay
from stock_cache import HELD
from test_stock_cache import forks

from sglang_sparse.demo.server import Server
from support.admin import flush
from support.prompts import words
from tree_placement.policy import PolicySettings, SparsePolicy
from tree_placement.replay.policies.sparse import SparseReplay
from tree_placement.replay.simulator import Served, Simulator

CLOSE = 0.01


def served(prompts: list[list[int]], slots: int, chunk: int) -> list[Served]:
    setting = Setting(slots, 100_000, chunk)
    policy = SparsePolicy(PolicySettings(grid=GRID, states_per_path=64))
    return replayed(prompts, PassReplay(policy, slots, chunk), setting)


def replayed(prompts: list[list[int]], rule: SparseReplay, setting: Setting) -> list[Served]:
    return list(map(Simulator(BLOCK, setting.budget, rule).serve, held(prompts)))


def test_the_end_of_each_pass_is_kept_until_its_slot_is_wanted() -> None:
    (one,) = served([words(1_000, seed=1)], slots=100, chunk=256)
    ends = {256, 512, 768, 960}
    assert ends <= {state.depth for state in one.written}
    rule = SparseReplay(SparsePolicy(PolicySettings(grid=GRID, states_per_path=2)))
    (without,) = replayed([words(1_000, seed=1)], rule, Setting(100, 100_000, 256))
    assert not ends <= {state.depth for state in without.written}, "nobody planned them"
    long, other, again = words(1_000, seed=1), words(1_000, seed=2), words(1_000, seed=1)
    few = served([long, other, again], slots=HELD + 2, chunk=256)
    assert [each.live for each in few] == [3, 3, 3], "the last stands in the request's own slot"
    assert few[2].hit < served([long, other, again], slots=100, chunk=256)[2].hit


def test_the_state_that_a_request_resumed_from_stays_until_its_first_pass_ends() -> None:
    document = words(1_000, seed=3)
    prompts = [document, *(document + words(600, seed=4 + number) for number in range(4))]
    for each in served(prompts, slots=HELD + 2, chunk=512)[1:]:
        assert each.source is not None
        assert each.hit >= 512


@pytest.mark.server
def test_the_share_is_the_server_s(hostile_server: Server) -> None:
    """Not every hit is: of equal states the two may give up different ones, and the replay makes
    room for a prompt's KV at once."""
    info = hostile_server.get("/server_info").raise_for_status().json()
    # Without overlapped passes a request tracks its state in one slot, not two.
    slots = info["max_mamba_cache_size"] + 1
    setting = Setting(slots, info["max_total_tokens"], chunk_of(hostile_server))
    flush(hostile_server)
    earlier = hostile_server.state()["sparse"]["counters"]["prompts"]
    prompts = forks(documents=3, prompts=60, longest=3_000, seed=78)
    hits = [
        hostile_server.complete(prompt, 1, extra_key="passes").cached_tokens for prompt in prompts
    ]
    tokens = sum(map(len, prompts))
    assert sum(hits) > tokens / 10
    foreseen = predicted(prompts, "sparse", ["--sparse-states-per-path", "8"], setting, earlier)
    assert sum(foreseen.hits) == pytest.approx(sum(hits), abs=CLOSE * tokens)
    rule = SparseReplay(SparsePolicy(PolicySettings(grid=GRID, states_per_path=8)))
    without = [each.hit for each in replayed(prompts, rule, setting)]
    apart, without_passes = (
        sum(abs(one - other) for one, other in zip(hits, each, strict=True))
        for each in (foreseen.hits, without)
    )
    print(f"{tokens} tokens, {sum(hits)} served; apart {apart}, without passes {without_passes}")
    assert 2 * apart < without_passes
