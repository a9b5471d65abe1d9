"""The files that the commands read and write.

A reader raises ValueError, in one line that names the file, where it cannot be read or holds
something else.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from tree_placement._check import invalid
from tree_placement.cost import SparseWeights, Weights
from tree_placement.tree import PrefixTree

TREE_KEYS = ("parents", "lengths", "weights")


def read_weights(path: Path) -> Weights:
    """Return the weights in a .json, .csv or .npy file: one a depth, or (depth, weight) pairs."""
    table = _read_table(path)
    if table.ndim == 1:
        return table
    if table.ndim != 2 or table.shape[1] != 2:
        need = "a flat list of weights, or pairs of depth and weight"
        raise invalid(str(path), f"numbers of shape {table.shape}", need, "see --help")
    depths = table[:, 0]
    whole = np.isfinite(depths) & (depths == np.rint(depths)) & (np.abs(depths) < 2.0**53)
    if not whole.all():
        row = int(np.argmin(whole))
        raise invalid(f"{path}: depth {row + 1}", depths[row], "whole tokens", "round it")
    try:
        return SparseWeights(depths.astype(np.int64), table[:, 1])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_pairs(path: Path) -> list[tuple[float, float]]:
    """Return the pairs in a .json, .csv or .npy file."""
    table = _read_table(path)
    if table.ndim != 2 or table.shape[1] != 2:
        got = f"numbers of shape {table.shape}"
        raise invalid(str(path), got, "pairs of tokens and seconds", "see --help")
    return [(tokens, seconds) for tokens, seconds in table.tolist()]


def read_tree(path: Path) -> PrefixTree:
    """Return the tree in a JSON file ``{"parents": [...], "lengths": [...], "weights": [...]}``."""
    read = _parse_json(path)
    if not isinstance(read, dict) or sorted(read) != sorted(TREE_KEYS):
        got = f"keys {sorted(read)}" if isinstance(read, dict) else type(read).__name__
        need = "an object of parents, lengths and weights"
        raise invalid(str(path), got, need, "write a list of numbers for each")
    parents, lengths, weights = (np.array(_numbers(path, read[key])) for key in TREE_KEYS)
    return PrefixTree(parents, lengths, weights)


def check_folder(what: str, folder: Path) -> None:
    """Raise ValueError, before the work, where `folder` is none or cannot be written to."""
    present = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        # Permissions do not tell: nobody can write to /proc, and root to more than they say.
        TemporaryFile(dir=present).close()
    except OSError:
        raise invalid(what, folder, "a folder to write to", f"look at {present}") from None


def check_file(what: str, path: Path, inputs: Iterable[Path]) -> None:
    """Raise ValueError, before the work, where `path` cannot be written or is one of `inputs`."""
    if path.exists() and not path.is_file():
        raise invalid(what, path, "a file to write", "name another")
    if path.exists() and any(each.exists() and path.samefile(each) for each in inputs):
        raise invalid(what, f"{path}, which is read", "another file", "name another")
    if not path.parent.is_dir():
        raise invalid(what, path, "a file in a folder that is there", "make the folder first")
    check_folder(what, path.parent)


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write each file whole or not at all, into a folder that is made where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        partial = folder / f".{name}.partial"
        try:
            partial.write_bytes(content)
            os.replace(partial, folder / name)
        finally:
            partial.unlink(missing_ok=True)


def _read_table(path: Path) -> NDArray[np.float64]:
    if path.suffix == ".json":
        try:
            return np.array(_numbers(path, _parse_json(path)), dtype=np.float64)
        except OverflowError as error:
            raise invalid(str(path), error, "numbers below 1e308", "scale them down") from None
    if path.suffix == ".csv":
        return _parse_csv(path)
    if path.suffix == ".npy":
        return _parse_npy(path)
    raise invalid(str(path), f"the ending {path.suffix!r}", ".json, .csv or .npy", "rename it")


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise invalid(
            str(path), error.strerror, "a file that can be read", "correct the path"
        ) from None


def _parse_json(path: Path) -> object:
    try:
        read: object = json.loads(_read_bytes(path))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(str(path), error, "JSON", "mend the file") from None
    return read


def _numbers(path: Path, read: object) -> list[object]:
    """Return `read` as it is if it is a list of numbers, or of lists of numbers of one size."""
    if isinstance(read, list):
        rows = [row if isinstance(row, list) else [row] for row in read]
        flat = [number for row in rows for number in row]
        sizes = {len(row) if isinstance(row, list) else -1 for row in read}
        if len(sizes) <= 1 and all(type(number) in (int, float) for number in flat):
            return read
    raise invalid(str(path), "other values", "a list of numbers, or of pairs", "see --help")


def _parse_csv(path: Path) -> NDArray[np.float64]:
    """Return the rows of numbers, at least one; the first row may hold the columns' names, without
    digits."""
    try:
        text = _read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise invalid(str(path), error, "UTF-8 text", "save it as UTF-8") from None
    rows = [row for row in csv.reader(text.splitlines()) if row]
    parsed, widths = [], {len(row) for row in rows}
    if rows and [name.strip().lower() for name in rows[0]] == ["weight", "depth"]:
        raise invalid(f"{path}: row 1", "weight,depth", "depth,weight", "swap the columns")
    for line, row in enumerate(rows, start=1):
        try:
            parsed.append([float(cell) for cell in row])
        except ValueError:
            if line == 1 and not any(map(str.isdigit, "".join(row))):
                continue
            fix = "mend or drop the row"
            raise invalid(f"{path}: row {line}", ",".join(row), "numbers", fix) from None
    if not parsed:
        raise invalid(str(path), "no numbers", "a row at least", "see --help")
    if len(widths) > 1:
        raise invalid(str(path), "rows of different sizes", "as many in each", "mend the rows")
    table: NDArray[np.float64] = np.array(parsed, dtype=np.float64)
    return table[:, 0] if table.ndim == 2 and table.shape[1] == 1 else table


def _parse_npy(path: Path) -> NDArray[np.float64]:
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise invalid(
            str(path), error.strerror, "a file that can be read", "correct the path"
        ) from None
    except (ValueError, EOFError):
        fix = "save it with numpy.save"
        raise invalid(str(path), "other bytes", "an array of numbers", fix) from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iuf":
        raise invalid(str(path), "other values", "an array of numbers", "convert it")
    return np.asarray(array, dtype=np.float64)
