"""What `solve` prints."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tree_placement.tree.prefix_tree import State


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is printed; costs are sums over the weights as given.

    Parameters
    ----------
    states
        States on the tree, and their depths from the root; None on a path.
    depths
        Depths of the new states in tokens.
    cost
        With the new and the fixed states.
    cost_without
        With the fixed ones alone.
    cost_evenly_spaced
        With as many new states, evenly spaced; None where they are not free to stand so.
    weight
        Sum of the weights.
    unit
        Of the cost of one overlap.
    """

    states: tuple[State, ...] | None
    depths: tuple[int, ...]
    cost: float
    cost_without: float
    cost_evenly_spaced: float | None
    weight: float
    unit: str


def as_lines(answer: Answer) -> str:
    """Return the answer for a reader: the places, then the costs."""
    each = f"{answer.unit} an overlap"
    lines = []
    if answer.states is None:
        lines.append(f"states          {len(answer.depths)}, at depths in tokens:")
        lines += [f"                {depth}" for depth in answer.depths]
    else:
        lines.append(
            f"states          {len(answer.depths)}, at node:depth in its edge (from root):"
        )
        placed = zip(answer.states, answer.depths, strict=True)
        lines += [f"                {node}:{within} ({depth})" for (node, within), depth in placed]
    costs = [("cost", answer.cost)]
    if answer.cost_evenly_spaced is not None:
        costs.append(("evenly spaced", answer.cost_evenly_spaced))
    costs.append(("no new states", answer.cost_without))
    for name, cost in costs:
        mean = f", {cost / answer.weight:.6g} {each}" if answer.weight else ""
        lines.append(f"{name:16}{cost:.10g} in all{mean}")
    return "\n".join(lines)


def as_json(answer: Answer) -> str:
    """Return the answer as one JSON object."""
    return json.dumps(
        {
            "depths": answer.depths,
            "states": answer.states,
            "cost": answer.cost,
            "cost_evenly_spaced": answer.cost_evenly_spaced,
            "cost_without_new_states": answer.cost_without,
            "weight": answer.weight,
            "unit": answer.unit,
        }
    )
