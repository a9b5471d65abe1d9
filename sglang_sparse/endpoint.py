"""What a running server tells of its states: counters to all, integrity behind the admin key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang_sparse.options import BACKEND

INTEGRITY = "sparse_integrity"
STATE = "sparse"


def serve_http(server_args: Any, *args: Any, **kwargs: Any) -> None:
    """Add `GET /sparse/integrity` to SGLang's HTTP server, where the back end is ours."""
    if server_args.radix_cache_backend != BACKEND:
        return
    from sglang.srt.entrypoints import http_server
    from sglang.srt.managers.io_struct import SetInternalStateReq
    from sglang.srt.utils.auth import AuthLevel, auth_level

    @auth_level(AuthLevel.ADMIN_OPTIONAL)  # type: ignore[untyped-decorator]
    async def integrity() -> list[Any]:
        manager = http_server._global_state.tokenizer_manager
        await manager.set_internal_state(SetInternalStateReq(server_args={INTEGRITY: 1}))
        return [state[STATE] for state in await manager.get_internal_state()]

    http_server.app.add_api_route("/sparse/integrity", integrity, methods=["GET"])


def get_internal_state(result: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
    """Add the cache's report to the scheduler's, which `/server_info` shows."""
    result.internal_state[STATE] = scheduler.tree_cache.report()
    return result


def set_internal_state(
    original: Callable[..., Any], scheduler: Any, request: Any, *args: Any, **kwargs: Any
) -> Any:
    """Check the cache's integrity where a request asks for that; pass on every other one."""
    if INTEGRITY not in request.server_args:
        return original(scheduler, request, *args, **kwargs)
    from sglang.srt.managers.io_struct import SetInternalStateReqOutput

    running = scheduler.collect_inflight_reqs() | set(scheduler.waiting_queue)
    if scheduler.chunked_req is not None:
        running.add(scheduler.chunked_req)
    report = scheduler.tree_cache.check_integrity(running)
    return SetInternalStateReqOutput(updated=report.holds)
