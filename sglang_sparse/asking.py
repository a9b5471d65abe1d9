"""How the command-line clients ask a running server."""

from __future__ import annotations

import argparse
from typing import Any

ANSWERED, BAD_INPUT, NO_ANSWER = 0, 2, 3
SECONDS = 60.0


class AskError(RuntimeError):
    """The server gave no answer; the message says why, and `status` is the client's exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that every client has."""
    parser.add_argument(
        "--url",
        default="http://127.0.0.1:30000",
        help="the server's address (default: %(default)s)",
    )
    parser.add_argument("--admin-key", help="the server's --admin-api-key, where it has one")
    parser.add_argument("--json", action="store_true", help="print the server's answer as it is")


def ask(given: argparse.Namespace, route: str, content: str | None = None) -> Any:
    """Return the JSON that a route answers to `content`, or to nothing.

    Parameters
    ----------
    given
        Has `url` and `admin_key`, see `add_arguments`.
    route
        Path on the server.
    content
        Sent as the body of a POST; None asks with a GET.

    Raises
    ------
    AskError
        If the server is not there, or answers another status than 200.
    """
    import httpx

    headers = {"Authorization": f"Bearer {given.admin_key}"} if given.admin_key else {}
    url = f"{given.url.rstrip('/')}{route}"
    try:
        if content is None:
            answer = httpx.get(url, headers=headers, timeout=SECONDS)
        else:
            answer = httpx.post(url, content=content, headers=headers, timeout=SECONDS)
    except httpx.HTTPError as error:
        message = f"--url: got {given.url} ({error}); need a running server"
        raise AskError(message, NO_ANSWER) from None
    if answer.status_code != httpx.codes.OK:
        bad = answer.status_code == httpx.codes.BAD_REQUEST
        message = f"the server answered {answer.status_code}: {answer.text}"
        raise AskError(message, BAD_INPUT if bad else NO_ANSWER)
    return answer.json()
