"""How the command line is parsed: errors are one line."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn, TypeAlias

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Commands: TypeAlias = "_SubParsersAction[OneLineParser]"
else:
    Commands = object

BAD_INPUT = 2
"""Exit status."""


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Print `message` and exit with status 2."""
        self.exit(BAD_INPUT, f"error: {message}; see {self.prog} --help\n")
