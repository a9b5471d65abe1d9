"""Settings on their way from the user to the scheduler, and what cannot work refused before it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from sglang.srt.mem_cache.registry import registered_radix_cache_backends

from sglang_sparse.options import BACKEND, PREFIX, OptionError, SparseOptions
from sglang_sparse.requirements import unmet_requirement, unmet_setting
from sglang_sparse.statistics import unmet_statistics

OPTIONS = "_sparse_options"
FROM_COMMAND_LINE = "_sparse_from_command_line"
CHECKED = "_sparse_checked"


def from_command_line(original: Callable[..., Any], cls: Any, args: argparse.Namespace) -> Any:
    """Build SGLang's settings from parsed flags, and carry ours along.

    Exits with one line on a wrong flag of ours.
    """
    given = {name: value for name, value in vars(args).items() if name.startswith(PREFIX)}
    try:
        options = _options(args.radix_cache_backend, given)
    except OptionError as error:
        raise SystemExit(f"error: {error}") from None
    server_args = original(cls, args)
    setattr(server_args, OPTIONS, options)
    setattr(server_args, FROM_COMMAND_LINE, True)
    return server_args


def engine_server_args(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a constructor of SGLang's settings that also takes `sparse_...` keywords."""

    def construct(**keywords: Any) -> Any:
        given = {name: keywords.pop(name) for name in list(keywords) if name.startswith(PREFIX)}
        options = _options(keywords.get("radix_cache_backend"), given)
        server_args = original(**keywords)
        setattr(server_args, OPTIONS, options)
        return server_args

    return construct


def options_of(server_args: Any) -> SparseOptions:
    """Return the settings that ride with SGLang's; the defaults where none were given."""
    carried = getattr(server_args, OPTIONS, None)
    return carried if isinstance(carried, SparseOptions) else SparseOptions()


def resolve(original: Callable[..., Any], server_args: Any) -> Any:
    """Let SGLang resolve its settings; stop, in the process the user called, what cannot work.

    The settings are looked at as the user gave them, since SGLang may fail on them first with a
    remedy that does not fit, and once more as resolved, since SGLang may have changed them.

    Raises
    ------
    ValueError
        With one line that says what to change; SystemExit with that line on the command line.
    """
    backend = server_args.radix_cache_backend
    if backend != BACKEND:
        _refuse(server_args, _misspelt(backend))
        return original(server_args)
    if getattr(server_args, CHECKED, False):
        return original(server_args)
    _refuse(server_args, unmet_setting(server_args))
    statistics = options_of(server_args).statistics
    _refuse(server_args, unmet_statistics(statistics) if statistics else None)
    result = original(server_args)
    _refuse(server_args, unmet_requirement(server_args))
    setattr(server_args, CHECKED, True)
    return result


def _refuse(server_args: Any, unmet: str | None) -> None:
    if unmet is None:
        return
    if getattr(server_args, FROM_COMMAND_LINE, False):
        raise SystemExit(f"error: {unmet}")
    raise ValueError(unmet)


def _misspelt(backend: str | None) -> str | None:
    """Return one line on a name that is almost ours; SGLang would load the model first."""
    if backend is None or backend in registered_radix_cache_backends():
        return None
    if not get_close_matches(backend.lower(), [BACKEND]):
        return None
    return (
        f"--radix-cache-backend: got {backend}; need {BACKEND}, or another registered name; "
        "correct the name"
    )


def _options(backend: str | None, given: dict[str, object]) -> SparseOptions | None:
    """Read the settings given for our back end; None where another one is chosen."""
    if backend == BACKEND:
        return SparseOptions.from_mapping(given)
    if given:
        name = "--" + next(iter(given)).replace("_", "-")
        raise OptionError(
            f"{name}: got a value; need --radix-cache-backend {BACKEND}; "
            "add that flag or leave this one out"
        )
    return None
