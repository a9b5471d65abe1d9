"""Files that hold traces."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from tree_placement._check import invalid
from tree_placement.replay.trace import Request, Trace

BLOCK_IDS, MOONCAKE = "h", "hash_ids"
"""The key that tells a format: ids and inclusive runs of ids, or plain ids with timestamps."""


def read_trace(path: Path, block: int) -> Trace:
    """Return the trace in a file of JSON lines, gzipped where its name ends in .gz.

    Parameters
    ----------
    path
        A line is ``{"input_length": tokens, "h": [id, [first, last], ...]}`` with inclusive runs of
        ids; or, as Mooncake publishes its traces, ``{"timestamp": milliseconds, "input_length":
        tokens, "output_length": tokens, "hash_ids": [id, ...]}``, where the block that a prompt
        does not fill has an id as well.
    block
        Tokens of a block.

    Raises
    ------
    ValueError
        If the file cannot be read or a line is something else.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "trace.jsonl"
    ...     _ = path.write_text('{"input_length": 70, "h": [4, [7, 9]]}')
    ...     read_trace(path, block=16).requests
    (Request(length=70, blocks=(4, 7, 8, 9), time=None),)
    """
    return Trace(block, tuple(_requests(path, block)))


def _requests(path: Path, block: int) -> Iterator[Request]:
    for number, line in enumerate(read_lines(path), start=1):
        try:
            read = json.loads(line)
            yield _request(read, block)
        except (ValueError, KeyError, TypeError, IndexError):
            got = line if len(line) <= 60 else f"{line[:57]}..."
            need = "a request of block ids or of Mooncake's"
            raise invalid(f"{path}: line {number}", got, need, "see --help") from None


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file that are not blank, unpacked where it is gzipped."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as lines:
            yield from (line.strip() for line in lines if line.strip())
    except (OSError, EOFError) as error:
        got = getattr(error, "strerror", None) or error
        raise invalid(str(path), got, "a file that can be read", "correct the path") from None
    except UnicodeDecodeError as error:
        raise invalid(str(path), error, "UTF-8 text", "save it as UTF-8") from None


def _request(read: dict[str, object], block: int) -> Request:
    length = _whole(read["input_length"])
    if BLOCK_IDS in read:
        return Request(length, tuple(_unfolded(_listed(read[BLOCK_IDS]))))
    ids = [_whole(each) for each in _listed(read[MOONCAKE])]
    full, filled = divmod(length, block)
    if len(ids) not in (full, full + bool(filled)):
        raise ValueError
    return Request(length, tuple(ids[:full]), float(_whole(read["timestamp"])) / 1000.0)


def _unfolded(ids: Iterable[object]) -> Iterator[int]:
    for each in ids:
        if isinstance(each, list):
            first, last = map(_whole, each)
            yield from range(first, last + 1)
        else:
            yield _whole(each)


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _listed(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError
    return value
