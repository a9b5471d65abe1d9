"""Files that hold traces."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tree_placement._check import check_count, invalid
from tree_placement.replay.trace import Request, Trace, check_block, check_filled

BLOCK_IDS, MOONCAKE = "h", "hash_ids"
"""The key that tells a format: ids and inclusive runs of ids, or plain ids with timestamps."""

MOST_IDS = 1 << 24
"""Of one request; a line of a few runs could name more than memory holds."""


class _Line(NamedTuple):
    """A line as it is written: its ids are runs, which may be of any size."""

    length: int
    runs: list[range]
    time: float | None


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
    block = check_block(block)
    return Trace(block, tuple(_requests(path, block)))


def _requests(path: Path, block: int) -> Iterator[Request]:
    for number, line in enumerate(read_lines(path), start=1):
        try:
            read = _line(json.loads(line), block)
        except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError):
            got = line if len(line) <= 60 else f"{line[:57]}..."
            need = "a request of block ids or of Mooncake's"
            raise invalid(f"{path}: line {number}", got, need, "see --help") from None
        yield _request(f"{path}: line {number}", read, block)


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


def _request(what: str, read: _Line, block: int) -> Request:
    length = check_count(f"{what}: input_length", read.length, 1, "drop the line")
    ids = sum(run.stop - run.start for run in read.runs)
    check_filled(what, ids, length, block)
    if ids > MOST_IDS:
        raise invalid(what, f"{ids} block ids", f"at most {MOST_IDS}", "drop the line")
    return Request(length, tuple(chain.from_iterable(read.runs)), read.time)


def _line(read: dict[str, object], block: int) -> _Line:
    length = _whole(read["input_length"])
    if BLOCK_IDS in read:
        return _Line(length, [_run(each) for each in _listed(read[BLOCK_IDS])], None)
    runs = [_run(_whole(each)) for each in _listed(read[MOONCAKE])]
    full, filled = divmod(length, block)
    if len(runs) not in (full, full + bool(filled)):
        raise ValueError
    return _Line(length, runs[:full], float(_whole(read["timestamp"])) / 1000.0)


def _run(read: object) -> range:
    first, last = map(_whole, read) if isinstance(read, list) else (_whole(read), _whole(read))
    if last < first:
        raise ValueError
    return range(first, last + 1)


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _listed(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError
    return value
