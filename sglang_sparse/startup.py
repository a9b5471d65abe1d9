"""Settings on their way from the user to the scheduler, and what cannot work refused before it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from sglang_sparse.options import BACKEND, PREFIX, OptionError, SparseOptions
from sglang_sparse.requirements import unmet_requirement, unmet_setting

OPTIONS = "_sparse_options"
FROM_COMMAND_LINE = "_sparse_from_command_line"


def from_command_line(original: Callable[..., Any], cls: Any, args: argparse.Namespace) -> Any:
    """Build SGLang's settings from parsed flags, and carry ours along.

    Exits with one line on what cannot work, before SGLang looks at the settings itself.
    """
    given = {name: value for name, value in vars(args).items() if name.startswith(PREFIX)}
    try:
        options = _options(args.radix_cache_backend, given)
    except OptionError as error:
        raise SystemExit(f"error: {error}") from None
    unmet = unmet_setting(args) if options is not None else None
    if unmet is not None:
        raise SystemExit(f"error: {unmet}")
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
