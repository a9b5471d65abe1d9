"""A part of a running server that no other test has used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sglang_sparse.demo.server import Completion, Server


@dataclass(frozen=True)
class Apart:
    """A server asked in a namespace of its own: what earlier tests taught it counts for nothing."""

    server: Server
    namespace: str

    def complete(
        self,
        prompt: Sequence[int],
        new_tokens: int,
        *,
        top: int = 0,
        extra_key: str = "",
        cache_salt: str | None = None,
    ) -> Completion:
        """Continue a prompt; see `Server.complete`."""
        key = f"{self.namespace} {extra_key}"
        return self.server.complete(
            prompt, new_tokens, top=top, extra_key=key, cache_salt=cache_salt
        )

    def flush_cache(self) -> None:
        """Empty the whole server's cache."""
        self.server.flush_cache()

    def state(self) -> dict[str, Any]:
        """Return what the whole server tells of itself."""
        return self.server.state()
