"""Prefix trees to and from networkx, which is imported at the first call."""

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tree_placement._check import invalid
from tree_placement.tree.prefix_tree import PrefixTree

if TYPE_CHECKING:
    import networkx as nx


class LabelledTree(NamedTuple):
    """A prefix tree made of a graph.

    Parameters
    ----------
    tree
        The tree.
    labels
        The graph's node for each node of the tree, the root's first.
    """

    tree: PrefixTree
    labels: tuple[Hashable, ...]


def to_networkx(tree: PrefixTree) -> "nx.DiGraph":
    """Return the tree as a directed graph from the root down.

    Nodes are the tree's numbers with the attribute ``weight``, and edges have the attribute
    ``length`` in tokens. O(n) time and memory.

    Examples
    --------
    >>> graph = to_networkx(PrefixTree(parents=[-1, 0], lengths=[0, 4], weights=[0, 1]))
    >>> list(graph.edges(data=True)), dict(graph.nodes(data="weight"))
    ([(0, 1, {'length': 4})], {0: 0.0, 1: 1.0})
    """
    import networkx as nx

    graph = nx.DiGraph()
    for node, weight in enumerate(tree.weights.tolist()):
        graph.add_node(node, weight=weight)
    edges = zip(tree.parents.tolist(), tree.lengths.tolist(), strict=True)
    for node, (parent, length) in enumerate(edges):
        if parent >= 0:
            graph.add_edge(parent, node, length=length)
    return graph


def from_networkx(
    graph: "nx.DiGraph", *, length: str = "length", weight: str = "weight"
) -> LabelledTree:
    """Return the prefix tree that a directed graph from its root down describes.

    Parameters
    ----------
    graph
        A rooted tree, its edges from parents to children.
    length
        Edge attribute with the tokens of the edge, a whole number >= 1.
    weight
        Node attribute with the weight of the overlaps that end there; 0 where it is missing.

    Returns
    -------
    LabelledTree
        The tree, its nodes level by level in the graph's order, and their labels.

    Raises
    ------
    ValueError
        If the graph is undirected, has no root or a second one, a node with two parents or a
        cycle, an edge without length, or `PrefixTree` refuses a length or weight.

    Notes
    -----
    O(n) time and memory.

    Examples
    --------
    >>> import networkx as nx
    >>> graph = nx.DiGraph()
    >>> graph.add_edge("system prompt", "question", length=30)
    >>> graph.add_edge("start", "system prompt", length=500)
    >>> graph.nodes["question"]["weight"] = 2.0
    >>> from_networkx(graph).labels
    ('start', 'system prompt', 'question')
    """
    labels = [_root(graph)]
    parents, lengths = [-1], [0]
    for parent, label in enumerate(labels):
        for child, attributes in graph.adj[label].items():
            if length not in attributes:
                need = f"the attribute {length!r}"
                raise invalid("edge", (label, child), need, "set its tokens")
            labels.append(child)
            parents.append(parent)
            lengths.append(attributes[length])
    if len(labels) < len(graph):
        reached = set(labels)
        on_cycle = next(node for node in graph if node not in reached)
        raise invalid("graph", f"a cycle above {on_cycle!r}", "no cycle", "break it")
    weights = [graph.nodes[label].get(weight, 0.0) for label in labels]
    tree = PrefixTree(np.array(parents), np.array(lengths), np.array(weights))
    return LabelledTree(tree, tuple(labels))


def _root(graph: "nx.DiGraph") -> Hashable:
    """Return the only node without a parent; ValueError if another is not below one parent."""
    if not graph.is_directed():
        fix = "direct its edges from parents to children"
        raise invalid("graph", "undirected edges", "a directed graph", fix)
    roots = [node for node, degree in graph.in_degree() if degree == 0]
    if len(roots) != 1:
        got = f"{len(roots)} nodes without a parent"
        raise invalid("graph", got, "one root", "join the trees under one root, break cycles")
    for node, degree in graph.in_degree():
        if degree > 1:
            got = f"{degree} parents of {node!r}"
            raise invalid("graph", got, "one parent a node", "split the node")
    root: Hashable = roots[0]
    return root
