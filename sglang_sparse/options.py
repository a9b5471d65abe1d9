"""The plugin's settings: one record, read from flags, keyword arguments or a JSON file."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

BACKEND = "sparse"
PREFIX = "sparse_"
CONFIG = "sparse_config"

_KINDS: dict[type, str] = {int: "whole number", float: "number", str: "text"}


class OptionError(ValueError):
    """A setting is unknown, of the wrong type or out of range; the message says which and why."""


@dataclass(frozen=True, kw_only=True)
class SparseOptions:
    """Settings of `--radix-cache-backend sparse`.

    Raises
    ------
    OptionError
        On a value of the wrong type or outside its range.
    """

    states_per_path: int = field(
        default=16,
        metadata={
            "help": "states along one path at most, 2 to 1024; one of them is at its end, where "
            "a prompt that leaves the path earlier cannot resume; those that running requests "
            "hold do not count"
        },
    )
    decay: float = field(
        default=0.99,
        metadata={"help": "weight of an observed overlap after each newer one, in (0, 1]"},
    )
    bin: int = field(
        default=64,
        metadata={"help": "width of the bins in which overlaps are counted, in tokens"},
    )
    tail: int = field(
        default=192,
        metadata={"help": "distance of the tail state from the prompt's end, in tokens"},
    )
    subtrees: int = field(
        default=4096,
        metadata={"help": "subtrees with statistics of their own, at most, in each namespace"},
    )
    statistics: str = field(
        default="",
        metadata={
            "help": "file that keeps what was learned of overlaps and returns over a restart: read "
            "at start where it exists, written while serving and at the end"
        },
    )

    def __post_init__(self) -> None:
        for option in dataclasses.fields(self):
            _check_type(option.name, getattr(self, option.name), type(option.default))
        _check_range("states_per_path", self.states_per_path, 2, 1024)
        _check_range("bin", self.bin, 1, 65536)
        _check_range("tail", self.tail, 0, 1 << 20)
        _check_range("subtrees", self.subtrees, 1, 1 << 20)
        if not 0.0 < self.decay <= 1.0:
            raise OptionError(
                f"{flag('decay')}: got {self.decay}; need a number in (0, 1]; the default is 0.99"
            )

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> SparseOptions:
        """Build from names with the prefix `sparse_`; `sparse_config` names a JSON file.

        The file holds an object of the same names without the prefix. A name given here wins over
        the file's.

        Raises
        ------
        OptionError
            On a name that is not a setting, a file that cannot be read, or a wrong value.
        """
        given = {name.removeprefix(PREFIX): value for name, value in values.items()}
        path = given.pop(CONFIG.removeprefix(PREFIX), None)
        in_file = _read_file(path) if path is not None else {}
        try:
            cls._of_known(in_file)
        except OptionError as error:
            raise OptionError(f"{flag(CONFIG.removeprefix(PREFIX))} {path}: {error}") from None
        return cls._of_known({**in_file, **given})

    @classmethod
    def _of_known(cls, values: Mapping[str, object]) -> SparseOptions:
        known = [option.name for option in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise OptionError(
                    f"{flag(name)}: got a setting that does not exist; "
                    f"need one of {', '.join(map(flag, known))}; correct the name"
                )
        return cls(**values)  # type: ignore[arg-type]


def flag(name: str) -> str:
    """Return the command-line flag of a setting."""
    return "--" + (PREFIX + name).replace("_", "-")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each setting to SGLang's parser, in a group of their own."""
    group = parser.add_argument_group(f"--radix-cache-backend {BACKEND}")
    for option in dataclasses.fields(SparseOptions):
        group.add_argument(
            flag(option.name),
            type=type(option.default),
            default=argparse.SUPPRESS,
            metavar="FILE" if isinstance(option.default, str) else None,
            help=f"{option.metadata['help']} (default: {option.default or 'none'})",
        )
    group.add_argument(
        flag(CONFIG.removeprefix(PREFIX)),
        default=argparse.SUPPRESS,
        metavar="FILE",
        help="JSON object of these settings, by their names without 'sparse'; a flag wins over it",
    )


def _read_file(path: object) -> dict[str, object]:
    name = flag(CONFIG.removeprefix(PREFIX))
    try:
        text = Path(str(path)).read_text(encoding="utf-8")
        values = json.loads(text, object_pairs_hook=_settings_once)
    except (OSError, ValueError, RecursionError) as error:
        raise OptionError(
            f"{name}: got {path} ({error}); need a readable JSON file; correct the path or the file"
        ) from error
    if not isinstance(values, dict):
        raise OptionError(
            f"{name}: got a JSON {type(values).__name__} in {path}; need an object of settings; "
            'write {"states_per_path": 8} for example'
        )
    return values


def _settings_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object's settings by name; ValueError where one is given twice."""
    names = [name.replace("-", "_") for name, _ in pairs]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"{twice[0]} is there twice")
    return dict(zip(names, (value for _, value in pairs), strict=True))


def _check_type(name: str, value: object, kind: type) -> None:
    accepted = (int, float) if kind is float else (kind,)
    if isinstance(value, bool) or not isinstance(value, accepted):
        raise OptionError(f"{flag(name)}: got {value!r}; need a {_KINDS[kind]}; correct the value")


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise OptionError(
            f"{flag(name)}: got {value}; need a whole number from {low} to {high}; change it"
        )
