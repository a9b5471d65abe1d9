"""What stock SGLang 0.5.23 keeps of prompts that it serves one after another.

A model of its radix tree for hybrid models: nodes that are split where prompts leave and where
states end, one state a forward pass, states unused longest go first. It differs in two ways from
the replay's rule `stock`, which keeps all KV. Of a prompt, the tree gets KV down to its last state
only; and a leaf goes whole when its state is evicted, while the node above it stays even where it
has none (`UnifiedTreeCore.evict_device_leaf`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HELD = 3
"""Slots that one running request holds: its state, and two that track it."""

Tokens = NDArray[np.int64]


class ForwardPass(NamedTuple):
    """Tokens `start` to `stop` of a prompt, computed at once; `last` is the last depth a multiple
    of the grid from `start`, and `goes_on` tells that the request runs on after it."""

    start: int
    stop: int
    last: int
    goes_on: bool


def forward_passes(
    start: int, length: int, chunk: int, grid: int, *, decodes: bool
) -> Iterator[ForwardPass]:
    """Yield the passes, of `chunk` tokens at most, that compute a prompt from `start` on."""
    for begin in range(start, length, chunk):
        stop = min(begin + chunk, length)
        last = begin + (stop - begin) // grid * grid
        yield ForwardPass(begin, stop, last, stop < length or decodes)


@dataclass(eq=False, slots=True)
class Node:
    """Tokens `begin` to `end` of a path, passed last at a moment of the cache's clock."""

    parent: Node | None
    tokens: Tokens
    begin: int
    end: int
    passed: int
    children: dict[int, Node] = field(default_factory=dict)

    def path(self) -> Iterator[Node]:
        """Yield the node and those above it, but for the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


class StockCache:
    """Serves prompts as a server would, one at a time.

    Parameters
    ----------
    slots
        Of the whole pool.
    kv_tokens
        Tokens of KV.
    chunk
        Tokens of a forward pass.
    grid
        A pass tracks the state a multiple of so many tokens from where it begins.
    decodes
        Whether more than one token is generated: then a request runs on after its last pass, and
        takes a slot in return for the state that it publishes. What is generated is not kept here,
        nor the state that SGLang tracks where it crosses a multiple of 256 tokens.

    Examples
    --------
    >>> cache = StockCache(slots=8, kv_tokens=10_000, chunk=8_192, grid=64)
    >>> first, second = [1] * 650, [*[1] * 320, *[2] * 330]
    >>> [cache.serve(prompt) for prompt in (first, second, second)]
    [0, 0, 320]
    """

    def __init__(
        self, slots: int, kv_tokens: int, chunk: int, grid: int, *, decodes: bool = False
    ) -> None:
        self._slots, self._kv_tokens, self._chunk, self._grid = slots, kv_tokens, chunk, grid
        self._decodes = decodes
        self._root = Node(None, np.empty(0, np.int64), 0, 0, 0)
        self._in_use = self._root
        self._states: dict[Node, None] = {}
        self._leaves: dict[Node, None] = {}
        self._slots_held = 0
        self._kv_kept = self._kv_held = 0
        self._clock = 0

    @property
    def states(self) -> int:
        """States that live."""
        return len(self._states)

    def serve(self, prompt: Sequence[int]) -> int:
        """Serve a prompt, and return the depth it resumes from.

        Raises
        ------
        RuntimeError
            If it has no room.
        """
        tokens = np.asarray(prompt, np.int64)
        found = self._walk(tokens, len(tokens) - 1)
        source = next((node for node in found.path() if node in self._states), self._root)
        self._in_use = source
        if source is not self._root:
            self._use(source)
        self._pass(source)
        for _ in range(HELD):
            self._take_slot()
        self._compute(tokens, source.end, found.end // self._grid * self._grid)
        self._in_use, self._slots_held, self._kv_held = self._root, 0, 0
        return source.end

    def _compute(self, tokens: Tokens, start: int, junction: int) -> None:
        """Compute a prompt pass by pass.

        A pass tracks the state at its last grid depth, or at the junction where it computes that
        (`ScheduleBatch._mamba_radix_cache_v2_req_prepare_for_extend`).
        """
        for begin, stop, tracked, goes_on in forward_passes(
            start, len(tokens), self._chunk, self._grid, decodes=self._decodes
        ):
            self._take_kv(stop - begin)
            if tracked == begin:
                continue
            if begin < junction < stop and (junction - begin) % self._grid == 0:
                tracked = junction
            if goes_on:
                self._take_slot()
            self._publish(tokens, tracked)
            self._kv_held = stop - tracked

    def _publish(self, tokens: Tokens, depth: int) -> None:
        """Add a prompt down to its state at `depth`."""
        node = self._walk(tokens, depth)
        self._pass(node)
        if node.end < depth:
            parent = node
            node = Node(parent, tokens, parent.end, depth, self._tick())
            parent.children[int(tokens[parent.end])] = node
            self._leaves.pop(parent, None)
            self._leaves[node] = None
            self._kv_kept += depth - parent.end
        self._use(node)
        self._slots_held -= 1
        self._in_use = node

    def _walk(self, tokens: Tokens, end: int) -> Node:
        """Return the node where the tree ceases to hold `tokens[:end]`, splitting one there."""
        node = self._root
        while node.end < end:
            child = node.children.get(int(tokens[node.end]))
            if child is None:
                return node
            stop = min(child.end, end)
            unlike = child.tokens[child.begin : stop] != tokens[child.begin : stop]
            same = child.begin + int(unlike.argmax()) if unlike.any() else stop
            if same < child.end:
                return self._split(node, child, same)
            node = child
        return node

    def _split(self, parent: Node, child: Node, depth: int) -> Node:
        """Give the part of a node down to `depth`, which has no state, a node of its own."""
        upper = Node(parent, child.tokens, child.begin, depth, self._tick())
        parent.children[int(child.tokens[child.begin])] = upper
        upper.children[int(child.tokens[depth])] = child
        child.parent, child.begin, child.passed = upper, depth, self._tick()
        return upper

    def _use(self, node: Node) -> None:
        self._states.pop(node, None)
        self._states[node] = None

    def _pass(self, node: Node) -> None:
        """Note that a request passes a path, its end after its beginning."""
        for each in reversed(list(node.path())):
            each.passed = self._tick()

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _take_slot(self) -> None:
        while len(self._states) + self._slots_held >= self._slots:
            unused = next((node for node in self._states if node is not self._in_use), None)
            if unused is None:
                raise RuntimeError(f"slots: got {self._slots}; need more; raise them")
            if unused.children:
                del self._states[unused]
            else:
                self._drop_leaf(unused)
        self._slots_held += 1

    def _take_kv(self, tokens: int) -> None:
        while self._kv_kept + self._kv_held + tokens > self._kv_tokens:
            leaves = [node for node in self._leaves if node is not self._in_use]
            if not leaves:
                raise RuntimeError(f"KV: got {self._kv_tokens} tokens; need more; raise them")
            self._drop_leaf(min(leaves, key=lambda node: node.passed))
        self._kv_held += tokens

    def _drop_leaf(self, leaf: Node) -> None:
        assert leaf.parent is not None
        del self._leaves[leaf]
        self._states.pop(leaf, None)
        del leaf.parent.children[int(leaf.tokens[leaf.begin])]
        self._kv_kept -= leaf.end - leaf.begin
        if not leaf.parent.children and leaf.parent is not self._root:
            self._leaves[leaf.parent] = None
