"""Settings on their way from the user to the scheduler, and what cannot work refused before it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from sglang_sparse.options import BACKEND, PREFIX, OptionError, SparseOptions
from sglang_sparse.requirements import unmet_requirement

OPTIONS = "_sparse_options"
FROM_COMMAND_LINE = "_sparse_from_command_line"


def from_command_line(original: Callable[..., Any], cls: Any, args: argparse.Namespace) -> Any:
    """Build SGLang's settings from parsed flags, and carry ours along.

    Exits with one line on a wrong flag, as argparse does.
    """
    given = {name: value for name, value in vars(args).items() if name.startswith(PREFIX)}
    server_args = original(cls, args)
    try:
        _carry(server_args, given)
    except OptionError as error:
        raise SystemExit(f"error: {error}") from None
    setattr(server_args, FROM_COMMAND_LINE, True)
    return server_args


def engine_server_args(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a constructor of SGLang's settings that also takes `sparse_...` keywords."""

    def construct(**keywords: Any) -> Any:
        given = {name: keywords.pop(name) for name in list(keywords) if name.startswith(PREFIX)}
        server_args = original(**keywords)
        _carry(server_args, given)
        return server_args

    return construct


def options_of(server_args: Any) -> SparseOptions:
    """Return the settings that ride with SGLang's; the defaults where none were given."""
    carried = getattr(server_args, OPTIONS, None)
    return carried if isinstance(carried, SparseOptions) else SparseOptions()


def check(server_args: Any) -> None:
    """Stop the start, in the process the user called, where the back end cannot work.

    Raises
    ------
    ValueError
        With one line that says what to change; SystemExit with that line on the command line.
    """
    if server_args.radix_cache_backend != BACKEND:
        return
    unmet = unmet_requirement(server_args)
    if unmet is None:
        return
    if getattr(server_args, FROM_COMMAND_LINE, False):
        raise SystemExit(f"error: {unmet}")
    raise ValueError(unmet)


def _carry(server_args: Any, given: dict[str, object]) -> None:
    if given and server_args.radix_cache_backend != BACKEND:
        name = "--" + next(iter(given)).replace("_", "-")
        raise OptionError(
            f"{name}: got a value; need --radix-cache-backend {BACKEND}; "
            "add that flag or leave this one out"
        )
    if server_args.radix_cache_backend == BACKEND:
        setattr(server_args, OPTIONS, SparseOptions.from_mapping(given))
