"""What a running server tells of its states: counters to all, integrity behind the admin key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from fastapi.responses import JSONResponse

from sglang_sparse.options import BACKEND
from sglang_sparse.startup import options_of

INTEGRITY = "sparse_integrity"
SAVE = "sparse_save_statistics"
SAVE_SECONDS = 10.0
STATE = "sparse"


def serve_http(server_args: Any, *args: Any, **kwargs: Any) -> None:
    """Add `GET /sparse/integrity` to SGLang's HTTP server, where the back end is ours."""
    if server_args.radix_cache_backend != BACKEND:
        return
    from sglang.srt.entrypoints import http_server
    from sglang.srt.utils.auth import AuthLevel, auth_level

    @auth_level(AuthLevel.ADMIN_OPTIONAL)  # type: ignore[untyped-decorator]
    async def integrity() -> JSONResponse:
        return await answer_integrity(http_server._global_state.tokenizer_manager)

    http_server.app.add_api_route("/sparse/integrity", integrity, methods=["GET"])


async def answer_integrity(manager: Any) -> JSONResponse:
    """Have each scheduler check its cache, and answer with what each found.

    Returns
    -------
    JSONResponse
        A list with the cache's report of each scheduler, taken when it was checked; status 500
        where one does not hold.
    """
    from sglang.srt.managers.io_struct import SetInternalStateReq

    await manager.set_internal_state(SetInternalStateReq(server_args={INTEGRITY: 1}))
    reports = [state[INTEGRITY] for state in await manager.get_internal_state()]
    hold = all(report["integrity"]["holds"] for report in reports)
    return JSONResponse(reports, HTTPStatus.OK if hold else HTTPStatus.INTERNAL_SERVER_ERROR)


def get_internal_state(result: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
    """Add the cache's report to the scheduler's, which `/server_info` shows.

    The report of the last integrity check stands beside it, once there was one.
    """
    result.internal_state[STATE] = scheduler.tree_cache.report()
    checked = getattr(scheduler, INTEGRITY, None)
    if checked is not None:
        result.internal_state[INTEGRITY] = checked
    return result


def set_internal_state(
    original: Callable[..., Any], scheduler: Any, request: Any, *args: Any, **kwargs: Any
) -> Any:
    """Check the cache's integrity or save its statistics where a request asks for that; pass on
    every other one.

    A message of SGLang's brings back no more than a flag, so the report waits on the scheduler for
    `get_internal_state`.
    """
    cache = scheduler.tree_cache
    if not {INTEGRITY, SAVE}.intersection(request.server_args):
        return original(scheduler, request, *args, **kwargs)
    from sglang.srt.managers.io_struct import SetInternalStateReqOutput

    if SAVE in request.server_args:
        cache.save_statistics()
        return SetInternalStateReqOutput(updated=True)
    holds = cache.check_integrity(_requests(scheduler)).holds
    setattr(scheduler, INTEGRITY, cache.report())
    return SetInternalStateReqOutput(updated=holds)


def on_idle(scheduler: Any, *args: Any, **kwargs: Any) -> None:
    """Let a scheduler without work write the statistics, if it is time."""
    scheduler.tree_cache.keep_statistics(idle=True)


def shutdown_engine(engine: Any, *args: Any, **kwargs: Any) -> None:
    """Have an engine's scheduler save its statistics, once: SGLang kills it without a word.

    Nothing where the caller's event loop runs already, nor where the scheduler does not answer in
    time; what was written while serving is there all the same.
    """
    manager = engine.tokenizer_manager
    if manager is None or not options_of(manager.server_args).statistics:
        return
    if getattr(engine, SAVE, False):
        return
    setattr(engine, SAVE, True)
    saving = _save_statistics(manager)
    try:
        engine.loop.run_until_complete(saving)
    except (RuntimeError, TimeoutError):
        saving.close()


async def _save_statistics(manager: Any) -> None:
    from sglang.srt.managers.io_struct import SetInternalStateReq

    request = SetInternalStateReq(server_args={SAVE: 1})
    await asyncio.wait_for(manager.set_internal_state(request), SAVE_SECONDS)


def _requests(scheduler: Any) -> Iterable[Any]:
    """Return every request that a scheduler knows of."""
    known = {*scheduler.collect_inflight_reqs(), *scheduler.waiting_queue, scheduler.chunked_req}
    return known - {None}
