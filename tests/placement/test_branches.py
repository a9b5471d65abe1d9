"""Branches of a prefix tree, against prompts written out token by token."""

from __future__ import annotations

import random

import pytest
from slow_states import Forest, Position

from tree_placement.policy.branches import Branches, PathPart, path_to


def prefix_of(forest: Forest, position: Position) -> list[Position]:
    """Name every token down to a position by the branch that added it, and its depth."""
    tokens: list[Position] = []
    for branch, depth in reversed(forest.path(position)):
        tokens += [(branch, at + 1) for at in range(len(tokens), depth)]
    return tokens


def known_branches(seed: int) -> tuple[Forest, Branches, dict[Position, int]]:
    """Put rows at random positions of a forest."""
    forest, branches = Forest(random.Random(seed), branches=10, steps=6), Branches()
    rows: dict[Position, int] = {}
    for row in range(40):
        position = forest.position()
        if rows.setdefault(position, row) == row:
            branches.enter(forest.path(position)).put(position[1], row)
    return forest, branches, rows


@pytest.mark.parametrize("seed", range(10))
def test_rows_above_and_below_are_those_whose_prompts_are_prefixes(seed: int) -> None:
    forest, branches, rows = known_branches(seed)
    prefixes = {position: prefix_of(forest, position) for position in rows}
    for position, prefix in prefixes.items():
        branch = branches.get(position[0])
        assert branch is not None
        assert branch.row_at(position[1]) == rows[position]
        assert branch.row_at(position[1] + 1) is None
        on = {
            row
            for part in forest.path(position)
            if (above := branches.get(part.branch))
            for row in above.rows_down_to(part.depth)
        }
        assert on == {rows[each] for each, of in prefixes.items() if prefix[: len(of)] == of}
        below = [rows[each] for each, of in prefixes.items() if of[: len(prefix)] == prefix]
        assert sorted(branch.rows_below(position[1])) == sorted(set(below) - {rows[position]})
        stop = set(random.Random(seed).sample(below, len(below) // 2)) - {rows[position]}
        hidden = {
            rows[each]
            for each, of in prefixes.items()
            for other, shorter in prefixes.items()
            if rows[other] in stop and len(shorter) < len(of) and of[: len(shorter)] == shorter
        }
        expected = set(below) - {rows[position]} - hidden
        assert sorted(branch.rows_below(position[1], stop)) == sorted(expected)


@pytest.mark.parametrize("seed", range(10))
def test_a_path_cut_is_the_path_of_the_shorter_prompt(seed: int) -> None:
    forest = Forest(random.Random(seed), branches=10)
    for _ in range(20):
        position = forest.position()
        path, prefix = forest.path(position), prefix_of(forest, position)
        for depth in range(1, len(prefix) + 1, 7):
            assert path_to(path, depth) == forest.path(prefix[depth - 1])
        assert path_to(path, len(prefix) + 1) == path
    assert path_to((), 5) == ()


@pytest.mark.parametrize("seed", range(10))
def test_branches_without_a_row_on_or_below_them_are_forgotten(seed: int) -> None:
    forest, branches, rows = known_branches(seed)
    order = sorted(rows)
    random.Random(seed).shuffle(order)
    while order:
        needed = {part.branch for position in order for part in forest.path(position)}
        assert {each for each in range(10) if branches.get(each)} == needed
        assert len(branches) == len(needed)
        branch_id, depth = order.pop()
        branch = branches.get(branch_id)
        assert branch is not None
        branch.take(depth)
        branches.leave(branch)
    assert len(branches) == 0


def test_a_branch_above_a_known_one_keeps_what_hangs_from_it() -> None:
    """Rows come to a lower branch first, to one beside it, then to the branch between."""
    branches = Branches()
    root = PathPart(1, 100)
    branches.enter((PathPart(3, 400), PathPart(2, 250), root)).put(400, 0)
    branches.enter((PathPart(4, 350), PathPart(2, 300), root)).put(350, 1)
    middle = branches.enter((PathPart(2, 200), root))
    middle.put(200, 2)
    assert sorted(middle.rows_below(200)) == [0, 1]
    assert list(middle.rows_below(251)) == [1]
    assert list(middle.rows_below(301)) == []
    root_branch = branches.get(1)
    assert root_branch is not None
    assert sorted(root_branch.rows_below(100)) == [0, 1, 2]
    assert list(root_branch.rows_below(101)) == []
