"""Every public module of the package shows how it is used; pytest itself runs the examples."""

import doctest
import importlib
import pkgutil

import pytest

import tree_placement

PUBLIC = [
    module.name
    for module in pkgutil.walk_packages(tree_placement.__path__, "tree_placement.")
    if not module.ispkg and "._" not in module.name and not module.name.endswith("__main__")
]
COMMANDS = ("tree_placement.cli.", "tree_placement.figures.")
STATEFUL = ("tree_placement.policy.sparse_policy", "tree_placement.policy.known_states")
"""A server's state over time, which their tests show."""


@pytest.mark.parametrize(
    "name", [name for name in PUBLIC if not name.startswith(COMMANDS) and name not in STATEFUL]
)
def test_a_public_module_has_an_example(name: str) -> None:
    found = doctest.DocTestFinder().find(importlib.import_module(name))
    assert any(each.examples for each in found)
