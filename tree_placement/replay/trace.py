"""Traces: the prompts that a server saw, in order, as chains of block ids.

A block id stands for its block of tokens and for all tokens before it, so prompts that begin with
the same ids begin with the same tokens. The tail that fills no block belongs to its prompt alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tree_placement._check import check_count, invalid

_RENAMED = "renumber ids so that each stands for its block and all before it"


class Request(NamedTuple):
    """One prompt: `length` tokens, the ids of its full blocks, and when it came (seconds)."""

    length: int
    blocks: tuple[int, ...]
    time: float | None = None


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival.

    Parameters
    ----------
    block
        Tokens of a block, >= 1.
    requests
        At least one; each has `length // block` ids.

    Raises
    ------
    ValueError
        If a request has more or fewer ids than full blocks, an id stands at two places, or times
        are given for some requests only or fall. Time and memory are O(n log n) for n ids.

    Examples
    --------
    >>> trace = Trace(16, (Request(40, (0, 1)), Request(50, (0, 1, 2))))
    >>> trace.tokens
    90
    """

    block: int
    requests: tuple[Request, ...]

    def __post_init__(self) -> None:
        block = check_block(self.block)
        if not self.requests:
            raise invalid("trace", "no request", "at least one", "pass another file")
        requests = []
        for index, request in enumerate(self.requests):
            what = f"request {index}"
            length = check_count(f"{what}: length", request.length, 1, "drop the request")
            check_filled(what, len(request.blocks), length, block)
            requests.append(Request(length, request.blocks, request.time))
        object.__setattr__(self, "block", block)
        object.__setattr__(self, "requests", tuple(requests))
        _check_chained(self.requests)
        _check_times(self.requests)

    @property
    def tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(request.length for request in self.requests)

    def first(self, count: int) -> Trace:
        """Return the trace cut after `count` requests, >= 1."""
        return Trace(self.block, self.requests[:count])


def trace_of_prompts(
    prompts: Iterable[Sequence[int]], block: int, times: Sequence[float] | None = None
) -> Trace:
    """Return the trace of prompts that are given as token ids.

    Parameters
    ----------
    prompts
        Token ids of each prompt, in order of arrival.
    block
        Tokens of a block.
    times
        When each arrived, in seconds; None where that is not known.

    Notes
    -----
    Two blocks get one id only if they and all tokens before them are equal: ids are looked up by
    the tokens themselves, so nothing can collide. Time and memory are linear in the tokens.

    Examples
    --------
    >>> trace_of_prompts(["abcd", "abce", "abxd"], block=2).requests[1]
    Request(length=4, blocks=(0, 2), time=None)
    """
    block = check_block(block)
    ids: dict[tuple[int, tuple[int, ...]], int] = {}
    requests = []
    for index, prompt in enumerate(prompts):
        blocks: list[int] = []
        for begin in range(0, len(prompt) - block + 1, block):
            above = blocks[-1] if blocks else -1
            key = (above, tuple(prompt[begin : begin + block]))
            blocks.append(ids.setdefault(key, len(ids)))
        time = times[index] if times is not None else None
        requests.append(Request(len(prompt), tuple(blocks), time))
    return Trace(block, tuple(requests))


def check_block(block: int) -> int:
    """Return the tokens of a block as an int; ValueError below 1."""
    return check_count("block", block, 1, "pass the tokens of a block")


def check_filled(what: str, ids: int, length: int, block: int) -> None:
    """Raise ValueError unless a prompt of `length` tokens has so many ids of full blocks."""
    full = length // block
    if ids != full:
        got, need = f"{ids} block ids of {block} tokens", f"{full} for {length} tokens"
        raise invalid(what, got, need, "name the trace's own block size")


def _check_chained(requests: Sequence[Request]) -> None:
    """Raise ValueError where one id follows two different ones, or stands at two positions."""
    ids, above = (np.concatenate(columns) for columns in zip(*map(_links, requests), strict=True))
    order = np.argsort(ids, kind="stable")
    ids, above = ids[order], above[order]
    broken = (ids[1:] == ids[:-1]) & (above[1:] != above[:-1])
    if broken.any():
        block = ids[np.flatnonzero(broken)[0]]
        raise invalid(f"block id {block}", "different ids before it", "always the same", _RENAMED)


def _links(request: Request) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ids of a request and the one before each; before the first stands -1."""
    try:
        ids = np.array(request.blocks, dtype=np.int64)
    except OverflowError:
        raise invalid("block id", "one beyond 64 bits", "ids below 2**63", _RENAMED) from None
    if ids.size and ids.min() < 0:
        raise invalid("block id", ids.min(), "ids >= 0", _RENAMED)
    return ids, np.concatenate(([-1], ids[:-1]))[: ids.size]


def _check_times(requests: Sequence[Request]) -> None:
    times = [request.time for request in requests if request.time is not None]
    if not times:
        return
    if len(times) < len(requests):
        got = f"times for {len(times)} of {len(requests)} requests"
        raise invalid("trace", got, "times for all or none", "drop or add them")
    if any(later < earlier for earlier, later in pairwise(times)):
        raise invalid("trace", "times that fall", "requests in order of arrival", "sort them")
