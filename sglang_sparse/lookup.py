"""What the tree holds of a prompt, looked at without changing anything."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from sglang.srt.mem_cache.radix_cache import RadixKey

from sglang_sparse.component import depth_of
from sglang_sparse.explanation import Divergence, Explanation, Missed
from sglang_sparse.planner import has_state, path_to_root
from tree_placement.policy import MissedState

if TYPE_CHECKING:
    from sglang_sparse.cache import SparseRadixCache

_MOST_CACHED = 4


def explain(
    cache: SparseRadixCache, tokens: Sequence[int], extra_key: str | None, cache_salt: str | None
) -> Explanation:
    """Explain where a prompt would resume.

    Parameters
    ----------
    cache
        Looked at as it stands: no state is refreshed, no node split, nothing counted.
    tokens
        The prompt, at least one token.
    extra_key, cache_salt
        Its namespace.

    Notes
    -----
    Linear in the tokens, the nodes of the path, and the states planned on it.
    """
    key = RadixKey(array("q", tokens), extra_key=extra_key, cache_salt=cache_salt)
    depth, node_id, end = cache.tree_core.match_full_device_prefix(key)
    node = cache.tree_core.node_by_id(node_id)
    overlap = min(depth, (len(tokens) - 1) // cache.page_size * cache.page_size)
    state = _deepest_state(node, overlap)
    missed = cache.planner.missed(node, overlap, state)
    return Explanation(
        length=len(tokens),
        overlap=overlap,
        state=state,
        gap=overlap - state,
        grid=cache.grid,
        divergence=_divergence(tokens, depth, _continuations(node, end - depth, key)),
        missed=tuple(map(_missed, missed)),
        slots=cache.req_to_token_pool.mamba_allocator.size,
        live=cache.mamba_evictable_size() + cache.mamba_protected_size(),
    )


def _deepest_state(node: Any, overlap: int) -> int:
    """Return the depth of the deepest state down to `overlap` on the path to `node`, 0 for none."""
    for above in path_to_root(node):
        if depth_of(above) <= overlap and has_state(above):
            return depth_of(above)
    return 0


def _continuations(node: Any, left: int, key: RadixKey) -> list[Sequence[int]]:
    """Return what the cached prompts have below a match: the `left` last tokens of its node, or
    the tokens of each node below that is of the same namespace."""
    if left > 0:
        return [node.key.raw_token_ids()[-left:]]
    namespace = key.extra_key, key.cache_salt
    return [
        child.key.raw_token_ids()
        for child in node.children.values()
        if (child.key.extra_key, child.key.cache_salt) == namespace
    ]


def _divergence(
    tokens: Sequence[int], depth: int, continuations: Iterable[Sequence[int]]
) -> Divergence:
    """Return where the prompt leaves the nearest of some continuations of its first `depth`
    tokens, which may be inside a page."""
    same: dict[int, list[Sequence[int]]] = {}
    for continuation in continuations:
        pairs = zip(tokens[depth:], continuation, strict=False)
        equal = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        same.setdefault(equal, []).append(continuation)
    nearest = max(same, default=0)
    at = depth + nearest
    cached = {each[nearest] for each in same.get(nearest, ()) if len(each) > nearest}
    return Divergence(
        at, tokens[at] if at < len(tokens) else None, tuple(sorted(cached)[:_MOST_CACHED])
    )


def _missed(state: MissedState) -> Missed:
    loss = state.loss
    if loss is None:
        return Missed(state.depth, None, 0.0, 0.0, state.age)
    return Missed(state.depth, loss.reason.value, loss.value, loss.price, state.age)
