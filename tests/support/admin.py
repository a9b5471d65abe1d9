"""What a server with an admin key is asked for."""

from __future__ import annotations

import httpx

from sglang_sparse.demo.server import Server

ADMIN_KEY = "an-admin-key"


def flush(server: Server) -> None:
    """Empty the server's cache."""
    httpx.post(
        f"{server.url}/flush_cache", headers={"Authorization": f"Bearer {ADMIN_KEY}"}, timeout=60
    ).raise_for_status()
