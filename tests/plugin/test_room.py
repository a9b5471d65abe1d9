"""A configuration that can never hit says so at start, with what to change."""

from __future__ import annotations

import pytest

from sglang_sparse.room import unmet_room


@pytest.mark.parametrize(
    ("context", "kv_tokens", "flag"),
    [
        (65, 65, None),
        (64, 4096, "--context-length: got 64; need more than 64, the distance"),
        (4096, 63, "--max-total-tokens: got 63; need more than 64, the distance"),
    ],
)
def test_prompts_too_short_for_any_state_are_told(
    context: int, kv_tokens: int, flag: str | None
) -> None:
    told = unmet_room(context=context, kv_tokens=kv_tokens, grid=64)
    if flag is None:
        assert told is None
    else:
        assert told is not None
        assert told.startswith(flag)
        assert "\n" not in told
