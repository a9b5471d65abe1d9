"""`python -m tree_placement`: chooses the command, and turns what goes wrong into one line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from tree_placement.cli import figures, pareto, replay, solve
from tree_placement.cli.interrupts import Interrupted, interruptible
from tree_placement.cli.parser import BAD_INPUT, OneLineParser

UNREAD = 128 + signal.SIGPIPE
EPILOG = "exit status: 0 done, 2 bad input (one line says which), 130 interrupted"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; `arguments` are the process's if None."""
    given = _parser().parse_args(arguments)
    try:
        with interruptible():
            given.run(given)
            sys.stdout.flush()
    except Interrupted as interrupted:
        print("interrupted: no file is left half-written", file=sys.stderr)
        return interrupted.status
    except BrokenPipeError:
        # Whoever read the output has gone; what is left of it is not written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    return 0


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog="python -m tree_placement",
        description="Where to keep recurrent states along cached paths and prefix trees.",
        epilog=EPILOG,
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    solve.add_parser(commands)
    figures.add_parser(commands)
    replay.add_parser(commands)
    pareto.add_parser(commands)
    return parser
