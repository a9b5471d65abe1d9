"""Prompts drawn from a star, a comb and a general tree whose weights are known."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from serve_prompts import random_tokens

from tree_placement.tree import PrefixTree

GRID = 64
FIRST_BRANCH = 128
"""Tokens from here on open the edges into a node's children, so that no two begin alike."""

SHORT = (16, GRID - 1)
"""Tails that hold no grid depth, so that all states lie on the very tree that is drawn from."""

LONG = (GRID, 6 * GRID)

Prompt = Sequence[int]


@dataclass(frozen=True, eq=False)
class TreeWorkload:
    """A prefix tree of tokens, and how often prompts leave it where.

    Parameters
    ----------
    name, seed
        What it is called, and the seed of its tokens.
    tree
        Weights are the probabilities that the next prompt leaves the tree at each node's end.
    tails
        Fewest and most tokens that a prompt has to itself, below where it leaves.
    """

    name: str
    seed: int
    tree: PrefixTree
    tails: tuple[int, int]

    def prompts(self, count: int, seed: int) -> Iterator[Prompt]:
        """Yield prompts, each drawn by the weights, independently of all others."""
        draw = random.Random(f"{self.name} {seed}")
        nodes = draw.choices(range(len(self.tree)), self.tree.weights.tolist(), k=count)
        for node in nodes:
            tail = draw.randint(*self.tails)
            yield [*self.path(node), *random_tokens(draw, tail)]

    def path(self, node: int) -> Prompt:
        """Return the tokens from the root to a node's end."""
        return self._paths[node]

    @cached_property
    def _paths(self) -> list[Prompt]:
        draw = random.Random(f"{self.name} {self.seed}")
        children = [0] * len(self.tree)
        paths: list[Prompt] = [()]
        edges = zip(self.tree.parents.tolist(), self.tree.lengths.tolist(), strict=True)
        for parent, length in list(edges)[1:]:
            opening = FIRST_BRANCH + children[parent]
            children[parent] += 1
            paths.append((*paths[parent], opening, *random_tokens(draw, length - 1)))
        return paths


class _Growing:
    """A tree that is put together node by node."""

    def __init__(self) -> None:
        self.parents, self.lengths, self.weights = [-1], [0], [0.0]

    def add(self, parent: int, length: int, weight: float) -> int:
        self.parents.append(parent)
        self.lengths.append(length)
        self.weights.append(weight)
        return len(self.parents) - 1

    def grown(self) -> PrefixTree:
        weights = np.array(self.weights) / sum(self.weights)
        return PrefixTree(np.array(self.parents), np.array(self.lengths), weights)


def star(seed: int) -> TreeWorkload:
    """Return one document with questions; prompts leave inside it, and along the questions too."""
    draw, tree = random.Random(f"star {seed}"), _Growing()
    above = 0
    for weight in (0.5, 1.0, 1.5, 4.0):
        above = tree.add(above, _steps(draw, 4, 8), weight)
    for rank in range(1, 21):
        first = tree.add(above, _steps(draw, 2, 8), 4.0 / rank)
        tree.add(first, _steps(draw, 2, 8), 4.0 / rank)
    return TreeWorkload("star", seed, tree.grown(), SHORT)


def comb(seed: int) -> TreeWorkload:
    """Return a long spine with a tooth at each joint; prompts leave along both."""
    draw, tree = random.Random(f"comb {seed}"), _Growing()
    spine = tree.add(0, _steps(draw, 4, 8), draw.random())
    for _ in range(14):
        tooth = tree.add(spine, _steps(draw, 2, 6), 2.0 * draw.random() ** 2)
        tree.add(tooth, _steps(draw, 2, 6), 2.0 * draw.random() ** 2)
        spine = tree.add(spine, _steps(draw, 1, 3), draw.random())
    return TreeWorkload("comb", seed, tree.grown(), SHORT)


def general(seed: int, name: str, tails: tuple[int, int]) -> TreeWorkload:
    """Return system prompts, with documents below each, with questions on each of them."""
    draw, tree = random.Random(f"general {seed}"), _Growing()
    for system in range(1, 4):
        prompt = tree.add(0, _steps(draw, 4, 10), 0.3 / system)
        for document in range(1, 5):
            text = tree.add(prompt, _steps(draw, 8, 20), 1.0 / system / document)
            for question in range(1, 4):
                weight = 1.0 / system / document / question
                tree.add(text, _steps(draw, 2, 8), weight)
    return TreeWorkload(name, seed, tree.grown(), tails)


def workloads(seed: int) -> tuple[TreeWorkload, ...]:
    """Return one workload of each shape, and a general one whose prompts have long tails, which
    states are planned on too."""
    with_tails = general(seed, "general-with-tails", LONG)
    return star(seed), comb(seed), general(seed, "general", SHORT), with_tails


def _steps(draw: random.Random, fewest: int, most: int) -> int:
    return GRID * draw.randint(fewest, most)
