"""What a certificate claims, checked from the trace alone, slowly and in the plainest way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from tree_placement.replay import Trace

StateName = tuple[int, int]
"""The request that wrote a state, and its depth."""


def shared_tokens(trace: Trace, one: int, other: int) -> int:
    """Tokens in full blocks that two prompts have in common from their beginning."""
    pairs = zip(trace.requests[one].blocks, trace.requests[other].blocks, strict=False)
    count = 0
    for first, second in pairs:
        if first != second:
            break
        count += 1
    return count * trace.block


def checked_hits(trace: Trace, grid: int, slots: int | None, lines: Iterable[str]) -> list[int]:
    """Return each request's hit; AssertionError at the first line that does not hold."""
    live: set[StateName] = set()
    hits = []
    for index, line in enumerate(lines):
        claim = json.loads(line)
        assert set(claim) == {"hit", "from", "written", "evicted"}
        usable = usable_states(trace, index, live)
        _check_hit(claim["hit"], claim["from"], usable, f"request {index}")
        for name in map(tuple, claim["evicted"]):
            assert name in live, f"request {index}: {name} is evicted, and was not live"
            live.discard(name)
        length = trace.requests[index].length
        taken = {depth for _, depth in usable_states(trace, index, live, length)}
        for depth in claim["written"]:
            assert depth % grid == 0, f"request {index}: {depth} is off the grid"
            assert claim["hit"] < depth <= length, f"request {index}: {depth} is not computed"
            assert depth not in taken, f"request {index}: a state lives at {depth} already"
            taken.add(depth)
            live.add((index, depth))
        assert slots is None or len(live) <= slots, f"request {index}: {len(live)} live states"
        hits.append(claim["hit"])
    assert len(hits) == len(trace.requests)
    return hits


def usable_states(
    trace: Trace, index: int, live: Iterable[StateName], deepest: int | None = None
) -> list[StateName]:
    """States on a request's path, down to its last token but one unless told otherwise."""
    if deepest is None:
        deepest = trace.requests[index].length - 1
    return [
        (writer, depth)
        for writer, depth in live
        if depth <= min(shared_tokens(trace, writer, index), deepest)
    ]


def _check_hit(
    hit: int, source: Sequence[int] | None, usable: Sequence[StateName], where: str
) -> None:
    deepest = max((depth for _, depth in usable), default=0)
    assert hit == deepest, f"{where}: resumed from {hit}, and the deepest state is at {deepest}"
    if source is None:
        assert hit == 0, f"{where}: resumed from {hit} without a state"
        return
    assert tuple(source) in usable, f"{where}: {source} does not live on its path"
    assert source[1] == hit, f"{where}: resumed from {hit} with the state {source}"
