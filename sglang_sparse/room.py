"""Whether there is room for a prompt with a state, told at start: a cache that never hits says so.

Too few slots are SGLang's own to refuse: it wants five for each request that runs, of which that
holds three.
"""

from __future__ import annotations


def unmet_room(*, context: int, kv_tokens: int, grid: int) -> str | None:
    """Return one line that says why no prompt can ever hit, None where some can.

    Parameters
    ----------
    context
        Tokens of a prompt and its answer, at most.
    kv_tokens
        Tokens that the KV pool holds.
    grid
        Distance in tokens between depths where a state can exist.
    """
    for flag, tokens in (("--context-length", context), ("--max-total-tokens", kv_tokens)):
        if tokens <= grid:
            return (
                f"{flag}: got {tokens}; need more than {grid}, the distance between states, or no "
                "prompt has one; raise it or leave out --radix-cache-backend sparse"
            )
    return None
