"""What SGLang calls at start: the back end `sparse`, its flags, and nothing else.

Without `--radix-cache-backend sparse` these hooks add flags to `--help` and pass everything else
through. All other hooks are installed by the back end's own factory (`backend.py`).
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from sglang.srt.mem_cache.registry import register_radix_cache_backend
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from sglang_sparse import options, startup
from sglang_sparse.endpoint import serve_http, shutdown_engine

_SERVER_ARGS = "sglang.srt.server_args.ServerArgs"
_ENGINE_MODULE = "sglang.srt.entrypoints.engine"


def register() -> None:
    """Register the back end and its settings."""
    register_radix_cache_backend(options.BACKEND, _build)
    HookRegistry.register(f"{_SERVER_ARGS}.add_cli_args", _add_cli_args, HookType.AFTER)
    HookRegistry.register(
        f"{_SERVER_ARGS}.from_cli_args", startup.from_command_line, HookType.AROUND
    )
    HookRegistry.register(f"{_SERVER_ARGS}.resolve_once", startup.resolve, HookType.AROUND)
    HookRegistry.register(
        "sglang.srt.entrypoints.http_server._setup_and_run_http_server",
        serve_http,
        HookType.BEFORE,
    )
    HookRegistry.register(f"{_ENGINE_MODULE}.Engine.shutdown", shutdown_engine, HookType.BEFORE)
    engine_module = sys.modules.get(_ENGINE_MODULE)
    if engine_module is not None:
        engine_module.Engine.server_args_class = staticmethod(
            startup.engine_server_args(engine_module.Engine.server_args_class)
        )


def _build(context: Any) -> Any:
    from sglang_sparse.backend import build

    return build(context)


def _add_cli_args(result: Any, parser: argparse.ArgumentParser) -> None:
    options.add_arguments(parser)
