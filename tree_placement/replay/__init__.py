"""Traces served in simulation: which states each policy keeps, and what its hits save."""

from tree_placement.replay.formats import read_trace
from tree_placement.replay.simulator import (
    Arrival,
    Budget,
    Cache,
    ReplayPolicy,
    Served,
    Simulator,
    replay,
)
from tree_placement.replay.summary import Saving, Summary, summarise
from tree_placement.replay.trace import Request, Trace, trace_of_prompts

__all__ = [
    "Arrival",
    "Budget",
    "Cache",
    "ReplayPolicy",
    "Request",
    "Saving",
    "Served",
    "Simulator",
    "Summary",
    "Trace",
    "read_trace",
    "replay",
    "summarise",
    "trace_of_prompts",
]
