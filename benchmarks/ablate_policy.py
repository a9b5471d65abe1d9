"""What does each ingredient of the policy give? Replayed traces, with one taken away at a time.

    python benchmarks/ablate_policy.py --traces ../shared/data/traces/*.jsonl.gz

Prints the share of what a state at every grid depth would save, a mean over the slots for each
trace and over all. The product has no switch for any of this: ingredients are patched away here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tree_placement.policy import PolicySettings, SparsePolicy, _hazard_kernels, sparse_policy
from tree_placement.policy.columns import Columns, Reals, StateKind
from tree_placement.policy.hazard import HazardModel, Origin
from tree_placement.policy.known_states import KnownStates
from tree_placement.policy.placement import forecast_depths, given_depths
from tree_placement.policy.visits import next_to_admit
from tree_placement.replay import Budget, Trace, read_trace, replay
from tree_placement.replay.policies import sparse
from tree_placement.replay.policies.sparse import SparseReplay
from tree_placement.replay.summary import total_saving

Ablation = Callable[[], AbstractContextManager[object]]


@contextmanager
def without_weights(begin: int, end: int) -> Iterator[None]:
    """Take some of the hazard's weights back to 0 whenever they were updated."""
    learn = _hazard_kernels.update

    def update(weights: Reals, evidence: Reals, gradient: Reals, records: Reals) -> None:
        learn(weights, evidence, gradient, records)
        weights[:, begin:end] = 0.0

    with patch.object(_hazard_kernels, "update", update):
        yield


def without_origin(field: int) -> AbstractContextManager[object]:
    """Take away one of the quantities that describe the prompt a state is of."""
    size = 3 * _hazard_kernels.ORIGIN_STEPS
    begin = _hazard_kernels._ORIGINS + field * size
    return without_weights(begin, begin + size)


def even_start() -> AbstractContextManager[object]:
    """Begin every weight at 0, where a state is worth its gap over its age."""
    return patch.object(_hazard_kernels, "first_weights", lambda: np.zeros(_hazard_kernels.WEIGHTS))


@contextmanager
def one_hazard(odds: float) -> Iterator[None]:
    """Keep the odds between the aging and the steady hazard where they are put."""
    begin, learn = HazardModel.begin, _hazard_kernels.update
    odds_of = slice(_hazard_kernels._KIND_USES)

    def put(model: HazardModel, row: int) -> None:
        begin(model, row)
        model._records[row, odds_of] = odds

    def update(weights: Reals, evidence: Reals, gradient: Reals, records: Reals) -> None:
        learn(weights, evidence, gradient, records)
        records[:, odds_of] = odds

    with (
        patch.object(HazardModel, "begin", put),
        patch.object(_hazard_kernels, "update", update),
    ):
        yield


def untaught() -> AbstractContextManager[object]:
    """Leave every weight where it begins."""
    return patch.object(HazardModel, "observe", lambda *_: None)


@contextmanager
def no_spill() -> Iterator[None]:
    """Count for a state what resumes from it alone, and nothing that falls to it."""

    def weigh(_: HazardModel, columns: Columns, rates: Reals, values: Reals) -> None:
        values[:] = rates * columns.gap * columns.live

    with patch.object(HazardModel, "weigh", weigh), patch.object(KnownStates, "spill", _nothing):
        yield


def _nothing(*_: object) -> float:
    return 0.0


def no_missed_states() -> AbstractContextManager[object]:
    """Know of no state that does not live, but for the one planned last."""
    begin = KnownStates.__init__

    def begin_with_one(states: KnownStates, hazard: HazardModel, missed: int) -> None:
        begin(states, hazard, missed=1)

    return patch.object(KnownStates, "__init__", begin_with_one)


def no_second_plan() -> AbstractContextManager[object]:
    """Watch missed states, and do not plan them again."""
    return patch.object(SparsePolicy, "_add_missed", lambda *_: None)


def deepest_first() -> AbstractContextManager[object]:
    """Admit planned states from the end upwards, not the one that saves most first."""

    def admit(waiting: Sequence[Any], taken: Sequence[int], start: int) -> tuple[Any, int]:
        return next_to_admit([waiting[-1]], taken, start)

    return patch.object(sparse, "next_to_admit", admit)


def all_admitted() -> AbstractContextManager[object]:
    """Admit every planned state, whatever it displaces."""
    return patch.object(SparsePolicy, "is_worth_a_slot", lambda *_: True)


def no_price() -> AbstractContextManager[object]:
    """Let the forecast fill the path's budget, whatever a slot costs."""
    room = SparsePolicy._room

    def free(*arguments: Any) -> Any:
        return room(*arguments)._replace(price=0.0)

    return patch.object(SparsePolicy, "_room", free)


def no_share() -> AbstractContextManager[object]:
    """Begin a forecast state's hazard as if all overlaps of its path were its own."""

    def without_shares(*arguments: Any) -> dict[int, float]:
        return dict.fromkeys(forecast_depths(*arguments), 1.0)

    return patch.object(sparse_policy, "forecast_depths", without_shares)


def no_forecast() -> AbstractContextManager[object]:
    """Keep the given depths alone."""
    return patch.object(sparse_policy, "forecast_depths", lambda *_: {})


def without_given(kind: StateKind) -> AbstractContextManager[object]:
    """Leave out one of the given depths."""

    def others(*arguments: Any) -> dict[int, StateKind]:
        given = given_depths(*arguments)
        return {depth: each for depth, each in given.items() if each is not kind}

    return patch.object(sparse_policy, "given_depths", others)


_FAMILIES = (
    ("kind by uses and skips", _hazard_kernels._KIND_USES_SKIPS, _hazard_kernels._USES_AGE),
    ("uses by age", _hazard_kernels._USES_AGE, _hazard_kernels._USES_SKIPS_RATE),
    ("uses by skips and rate", _hazard_kernels._USES_SKIPS_RATE, _hazard_kernels._USES_INTERVAL),
    ("age over interval", _hazard_kernels._USES_INTERVAL, _hazard_kernels._ORIGINS),
    ("all of the origin", _hazard_kernels._ORIGINS, _hazard_kernels._CONSTANT),
)

ABLATIONS: Mapping[str, Ablation] = {
    "nothing": nullcontext,
    "learned hazard": untaught,
    "hazard: the steady one": partial(one_hazard, -1e9),
    "hazard: the aging one": partial(one_hazard, 1e9),
    "hazard: rule of succession at the start": even_start,
    **{f"hazard: {name}": partial(without_weights, *span) for name, *span in _FAMILIES},
    **{
        f"hazard: origin's {name.replace('_', ' ')}": partial(without_origin, field)
        for field, name in enumerate(Origin._fields)
    },
    "spill": no_spill,
    "watching missed states": no_missed_states,
    "planning missed states again": no_second_plan,
    "best-first admission": deepest_first,
    "admission by value": all_admitted,
    "price in the forecast": no_price,
    "prior share": no_share,
    "forecast": no_forecast,
    "tail": partial(without_given, StateKind.TAIL),
    "junction": partial(without_given, StateKind.JUNCTION),
}


def main() -> None:
    """Print a row for each ingredient taken away."""
    given = _arguments()
    try:
        traces = {path.name.split("_blk")[0]: _trace(path, given.requests) for path in given.traces}
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    table = Table("without", *traces, "mean", "less by")
    whole = 0.0
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("replaying", total=len(ABLATIONS) * len(traces) * len(given.slots))
        for name, ablation in ABLATIONS.items():
            with ablation():
                shares = [
                    mean(_each(trace, given.slots, lambda: progress.advance(task)))
                    for trace in traces.values()
                ]
            whole = whole or mean(shares)
            lost = f"{whole - mean(shares):+.3f}"
            table.add_row(name, *(f"{share:.3f}" for share in (*shares, mean(shares))), lost)
            progress.console.print(name, *(f"{share:.3f}" for share in shares), lost)
    Console().print(table)


def _each(trace: Trace, slots: Sequence[int], advance: Callable[[], None]) -> Iterator[float]:
    for count in slots:
        yield _share_of_dense_oracle(trace, count)
        advance()


def _share_of_dense_oracle(trace: Trace, slots: int) -> float:
    budget = Budget(slots=slots, grid=max(64, trace.block))
    policy = SparseReplay(SparsePolicy(PolicySettings(grid=budget.grid)))
    served = replay(trace, policy, budget)
    return total_saving(served, budget.grid).share_of_dense_oracle


def _trace(path: Path, requests: int | None) -> Trace:
    block = path.name.partition("_blk")[2].partition(".")[0]
    if not block.isdecimal():
        raise ValueError(f"--traces: got {path.name}; need NAME_blkTOKENS.jsonl; rename it")
    trace = read_trace(path, block=int(block))
    return Trace(trace.block, trace.requests[:requests])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--traces", type=Path, nargs="+", required=True, help="NAME_blkTOKENS.jsonl[.gz]"
    )
    parser.add_argument(
        "--slots", type=int, nargs="+", default=[16, 32, 64, 128, 256], help="states (default: all)"
    )
    parser.add_argument("--requests", type=int, help="of each trace at most (default: all)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
