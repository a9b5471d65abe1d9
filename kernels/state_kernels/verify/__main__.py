"""Check every kernel against the truth on this machine's device, and print errors and times.

The truth is each recurrence token by token in float64. Beside every comparison stands the same
one with something deliberately wrong, which has to be caught. Exit status: 0 where every error is
within its bound and everything wrong was caught, 1 where not, 2 for arguments that do not fit.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

import torch

from state_kernels.recurrences import all_recurrences
from state_kernels.verify.costs import (
    CAPTURE_COUNTS,
    copy_bandwidth,
    copy_costs,
    pass_costs,
    scale_of,
)
from state_kernels.verify.records import Check, Cost, Table
from state_kernels.verify.recurrences import check_recurrence
from state_kernels.verify.states import check_convolution, check_copies, check_quantized

CHECK_COLUMNS = (
    ("kernel", -17),
    ("by", -8),
    ("compared", -22),
    ("error", 8),
    ("bound", 8),
    ("if wrong", 8),
    ("what was wrong", -23),
    ("ms", 8),
    ("", -20),
)
COST_COLUMNS = (
    ("kernel", -17),
    ("by", -8),
    ("tokens", 7),
    ("ms", 9),
    ("tokens/s", 11),
    ("GB", 7),
    ("of bandwidth", 12),
    *((f"+{count}", 7) for count in CAPTURE_COUNTS),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks and return the exit status."""
    given = _parse(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    stream = sys.stderr if given.json else sys.stdout
    print(f"device: {_device_name(device)}, torch {torch.__version__}", file=stream)
    try:
        checks = _check(given, device, Table(CHECK_COLUMNS, stream))
        bandwidth = copy_bandwidth(device, quick=given.quick)
        print(f"\na plain copy moves {bandwidth / 1e9:,.1f} GB/s; in full shapes:", file=stream)
        costs = _measure(given, device, bandwidth, Table(COST_COLUMNS, stream))
    except KeyboardInterrupt:
        print("interrupted: not everything was checked", file=sys.stderr)
        return 130
    wrong = [check for check in checks if not check.is_right]
    missed = [check for check in checks if not check.caught]
    print(
        f"\n{len(checks) - len(wrong)} of {len(checks)} errors are within their bounds; of "
        f"{len(checks)} deliberately wrong results {len(checks) - len(missed)} were caught",
        file=stream,
    )
    if given.json:
        report = {
            "device": _device_name(device),
            "copy_bandwidth": bandwidth,
            "checks": [asdict(check) for check in checks],
            "costs": [asdict(cost) for cost in costs],
        }
        print(json.dumps(report, indent=2))
    return 1 if wrong or missed else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m state_kernels.verify",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--recurrence",
        choices=[recurrence.name for recurrence in all_recurrences()],
        help="check this one only, and no convolution or copy",
    )
    parser.add_argument("--quick", action="store_true", help="shorter sequences, smaller shapes")
    parser.add_argument(
        "--json", action="store_true", help="print JSON, and the tables to standard error"
    )
    return parser.parse_args(arguments)


def _check(given: argparse.Namespace, device: torch.device, table: Table) -> list[Check]:
    """Return all checks, each printed when it is done."""
    checks = []

    def add(check: Check) -> None:
        checks.append(check)
        _print_check(check, table)

    for recurrence in all_recurrences():
        if given.recurrence in (None, recurrence.name):
            for check in check_recurrence(recurrence, device, quick=given.quick):
                add(check)
    if given.recurrence is None:
        for other in (check_convolution, check_copies, check_quantized):
            for check in other(device):
                add(check)
    return checks


def _measure(
    given: argparse.Namespace, device: torch.device, bandwidth: float, table: Table
) -> list[Cost]:
    """Return all costs, each printed when it is known."""
    costs = []

    def add(cost: Cost) -> None:
        costs.append(cost)
        _print_cost(cost, table)

    scale = scale_of(device, quick=given.quick)
    for recurrence in all_recurrences():
        if given.recurrence in (None, recurrence.name):
            for cost in pass_costs(recurrence, device, bandwidth, scale):
                add(cost)
    if given.recurrence is None:
        for cost in copy_costs(device, bandwidth, scale):
            add(cost)
    return costs


def _print_check(check: Check, table: Table) -> None:
    remarks = ["" if check.is_right else "WRONG", "" if check.caught else "NOT CAUGHT"]
    table.row(
        check.kernel,
        check.implementation,
        check.compared,
        f"{check.error:.1e}",
        f"{check.bound:.1e}",
        f"{check.wrong_error:.1e}",
        check.wrong,
        f"{1e3 * check.seconds:.2f}",
        " ".join(remarks).strip(),
    )


def _print_cost(cost: Cost, table: Table) -> None:
    table.row(
        cost.kernel,
        cost.implementation,
        f"{cost.tokens:,}" if cost.tokens else "",
        f"{1e3 * cost.seconds:.2f}",
        f"{cost.tokens / cost.seconds:,.0f}" if cost.tokens else "",
        f"{cost.bytes_moved / 1e9:.3f}",
        f"{cost.share_of_bandwidth:.1%}",
        *(f"{overhead:+.1%}" for overhead in cost.overheads or ()),
        *("" for _ in CAPTURE_COUNTS if not cost.overheads),
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


if __name__ == "__main__":
    sys.exit(main())
