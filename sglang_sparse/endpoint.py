"""What a running server tells of its states: counters to all, integrity behind the admin key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

from sglang_sparse.options import BACKEND
from sglang_sparse.question import Question, QuestionError
from sglang_sparse.startup import options_of

INTEGRITY = "sparse_integrity"
EXPLAIN = "sparse_explain"
PLACEMENT = "sparse_placement"
# SGLang makes both by their names at run time, where no check at start can see them.
COMMUNICATOR = "get_internal_state_communicator"
TOKENIZE = "openai_serving_tokenize"
SAVE = "sparse_save_statistics"
SAVE_SECONDS = 10.0
STATE = "sparse"


def serve_http(server_args: Any, *args: Any, **kwargs: Any) -> None:
    """Add `/sparse/integrity`, `/sparse/placement` and `/sparse/explain` to SGLang's HTTP server,
    where the back end is ours."""
    if server_args.radix_cache_backend != BACKEND:
        return
    from sglang.srt.entrypoints import http_server
    from sglang.srt.utils.auth import AuthLevel, auth_level

    @auth_level(AuthLevel.ADMIN_OPTIONAL)  # type: ignore[untyped-decorator]
    async def integrity() -> JSONResponse:
        return await answer_integrity(http_server._global_state.tokenizer_manager)

    @auth_level(AuthLevel.ADMIN_OPTIONAL)  # type: ignore[untyped-decorator]
    async def placement() -> JSONResponse:
        return await answer_placement(http_server._global_state.tokenizer_manager)

    @auth_level(AuthLevel.ADMIN_OPTIONAL)  # type: ignore[untyped-decorator]
    async def explain(request: Request) -> JSONResponse:
        manager = http_server._global_state.tokenizer_manager
        return await answer_explain(
            manager, getattr(http_server.app.state, TOKENIZE), await request.body()
        )

    http_server.app.add_api_route("/sparse/integrity", integrity, methods=["GET"])
    http_server.app.add_api_route("/sparse/placement", placement, methods=["GET"])
    http_server.app.add_api_route("/sparse/explain", explain, methods=["POST"])


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


async def answer_placement(manager: Any) -> JSONResponse:
    """Have each scheduler tell which states it keeps, and for what.

    Returns
    -------
    JSONResponse
        A list with what `read_placement` reads of each scheduler; status 500 where its policy
        fails, which its log tells more of.
    """
    placements = [state[PLACEMENT] for state in await _internal_states(manager, PLACEMENT)]
    if None in placements:
        error = {"error": "policy: got no forecast; need one; see the server's log"}
        return JSONResponse(error, HTTPStatus.INTERNAL_SERVER_ERROR)
    return JSONResponse(placements)


async def answer_explain(manager: Any, tokenizer: Any, body: bytes) -> JSONResponse:
    """Have the scheduler explain where a prompt would resume.

    Parameters
    ----------
    manager
        SGLang's tokenizer manager.
    tokenizer
        What serves SGLang's `/tokenize`, chat templates included.
    body
        A JSON object, see `Question`.

    Returns
    -------
    JSONResponse
        An `Explanation`, with `why` in words and the texts of the tokens that differ; status 400
        and a line on a body that asks nothing.
    """
    try:
        question = Question.from_json(body)
        tokens = await _tokens(tokenizer, question)
    except QuestionError as error:
        return JSONResponse({"error": str(error)}, HTTPStatus.BAD_REQUEST)
    if not tokens:
        return JSONResponse({"error": "prompt: got no token; need one"}, HTTPStatus.BAD_REQUEST)
    asked = json.dumps([tokens, question.extra_key, question.cache_salt])
    (state,) = await _internal_states(manager, f"{EXPLAIN}:{asked}")
    told = state[EXPLAIN]
    divergence = told["divergence"]
    divergence["texts"] = [
        manager.tokenizer.decode([token]) if manager.tokenizer is not None else None
        for token in (divergence["token"], *divergence["cached"])
        if token is not None
    ]
    return JSONResponse(told)


async def _internal_states(manager: Any, asked: str) -> list[dict[str, Any]]:
    """Return each scheduler's internal state, with the answer to what only this request asks."""
    from sglang.srt.managers.io_struct import GetInternalStateReq

    manager.auto_create_handle_loop()
    answers = await getattr(manager, COMMUNICATOR)(GetInternalStateReq(rid=asked))
    return [answer.internal_state for answer in answers]


async def _tokens(tokenizer: Any, question: Question) -> Sequence[int]:
    """Return a question's tokens, as a request with its text or messages would have them."""
    if question.input_ids is not None:
        return question.input_ids
    from sglang.srt.entrypoints.openai.protocol import TokenizeRequest, TokenizeResponse

    asked = {"prompt": question.text, "messages": question.messages, **question.chat}
    what = "messages" if question.text is None else "text"
    try:
        request = TokenizeRequest(**{k: v for k, v in asked.items() if v is not None})
    except ValueError as error:
        problem = " ".join(str(error).split())
        raise QuestionError(f"{what}: got {problem}; need what SGLang's /tokenize takes") from None
    answer = await tokenizer.handle_request(request, None)
    if not isinstance(answer, TokenizeResponse):
        problem = bytes(answer.body).decode()
        raise QuestionError(f"{what}: got {problem}; need what SGLang's /tokenize takes")
    return tuple(answer.tokens)


def get_internal_state(result: Any, scheduler: Any, request: Any = None, **kwargs: Any) -> Any:
    """Add the cache's report to the scheduler's, which `/server_info` shows.

    The report of the last integrity check stands beside it, once there was one. A request for a
    prompt's explanation or for the placement carries that as its id, and its answer, which tells
    of others' prompts, goes nowhere else.
    """
    asked = getattr(request, "rid", None) or ""
    if asked.startswith(f"{EXPLAIN}:"):
        tokens, extra_key, cache_salt = json.loads(asked.partition(":")[2])
        told = scheduler.tree_cache.explain(tokens, extra_key, cache_salt)
        result.internal_state[EXPLAIN] = {**asdict(told), "why": told.why}
    if asked == PLACEMENT:
        result.internal_state[PLACEMENT] = scheduler.tree_cache.placement()
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
