"""`figures`: the pictures of the theory, as files fit to print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from tree_placement._check import invalid
from tree_placement.cli.files import check_folder, write_files
from tree_placement.cli.interrupts import held
from tree_placement.cli.parser import Commands, OneLineParser

FORMATS = ("pdf", "png", "svg")
DESCRIPTION = """\
Draw the figures of the theory and write one file for each into a folder:

  placement    overlap density over the saw-tooth of recompute, states marked, four densities
  budget       expected recompute over the number of states, every strategy
  trees        a star, a comb and a general tree with their optimal states
  convergence  what an estimated placement loses over the number of observations, with its bound
  tracking     what decays of the histogram lose while overlaps drift, with the bound

All are one column wide (86 mm). The same version draws the same bytes each time.
"""


def add_parser(commands: Commands) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "figures",
        help="draw the figures of the theory into a folder",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    add_out(parser)


def run(given: argparse.Namespace) -> None:
    """Draw all figures, then write all files.

    Raises
    ------
    ValueError
        Where matplotlib is missing or the folder cannot be written to.
    """
    out: Path = given.out
    check_folder("--out", out)
    figures = figures_package()
    contents = {}
    for number, picture in enumerate(figures.PICTURES, start=1):
        print(f"{number}/{len(figures.PICTURES)} {picture.name}", file=sys.stderr, flush=True)
        contents[f"{picture.name}.{given.format}"] = figures.render(picture, given.format)
    write_out(out, contents)


def figures_package() -> ModuleType:
    """Import what draws; raise ValueError where matplotlib is missing."""
    try:
        from tree_placement import figures
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        fix = "pip install 'sglang-sparse[figures]'"
        raise invalid("matplotlib", "no such package", "matplotlib >= 3.9", fix) from None
    return figures


def write_out(out: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into the folder of `--out`, all or none where a signal comes; print their names.

    Raises
    ------
    ValueError
        Where the folder cannot be written to.
    """
    try:
        with held():
            write_files(out, contents)
    except OSError as error:
        got = error.strerror
        raise invalid("--out", got, "a folder to write to", f"look at {out}") from None
    print(*(out / name for name in contents), sep="\n")


def add_out(parser: OneLineParser) -> None:
    """Add the arguments that say where the files go, and of which format the figures are."""
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder of the files, made if need be; files of the same names are replaced",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="pdf",
        help="pdf and svg are vector graphics, png has 300 dots an inch (default: %(default)s)",
    )
