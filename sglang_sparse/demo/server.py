"""A SGLang server as a child process: started, waited for, asked, and ended with all it started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx

from sglang_sparse.demo import guard

HOST = "127.0.0.1"

IDLE_SECONDS = 2.0
"""After which a connection is not used again: the server closes it after 5, and a request that it
meets just then is reset."""


class ServerError(RuntimeError):
    """The server did not start, or ended."""


class Likely(NamedTuple):
    """A token and its log-probability."""

    token: int
    logprob: float


class Completion(NamedTuple):
    """What the server answered, and how it got there.

    `top` lists the likeliest tokens of each step. Times are in seconds: `first_token` until the
    first token came back, `total` until the last.
    """

    tokens: tuple[int, ...]
    top: tuple[tuple[Likely, ...], ...]
    prompt_tokens: int
    cached_tokens: int
    first_token: float
    total: float


class Server:
    """A context manager around `python -m sglang.launch_server`.

    The server ends with the process that made this object, however that process ends.

    Parameters
    ----------
    model
        The model's folder.
    flags
        Further flags of the command.
    port
        A free one is chosen where None.
    log
        File for the server's output.
    environment
        Variables to set for the server.
    """

    def __init__(
        self,
        model: Path,
        flags: Sequence[str] = (),
        *,
        log: Path,
        port: int | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.port = free_port() if port is None else port
        require_free_port(self.port)
        self.url = f"http://{HOST}:{self.port}"
        self.log = log
        self._client = httpx.Client(
            base_url=self.url,
            timeout=None,
            trust_env=False,
            limits=httpx.Limits(keepalive_expiry=IDLE_SECONDS),
        )
        command = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(model)]
        command += ["--host", HOST, "--port", str(self.port), *flags]
        with log.open("wb") as output:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", guard.__file__, *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, "HF_HUB_OFFLINE": "1", **(environment or {})},
            )

    @property
    def pid(self) -> int:
        """The process that all of the server's descend from."""
        return self._guard.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def wait_until_ready(self, seconds: float = 600.0) -> None:
        """Return once the server answers.

        Raises
        ------
        ServerError
            With the end of the log, where the server stops first or does not answer in time.
        """
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            if self._guard.poll() is not None:
                raise ServerError(
                    f"server: ended with status {self._guard.returncode}; need a running one; "
                    f"see {self.log}:\n{self.log_end()}"
                )
            try:
                if self._client.get("/health", timeout=5.0).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        raise ServerError(
            f"server: no answer for {seconds:.0f} s; need a start in that time; "
            f"see {self.log}:\n{self.log_end()}"
        )

    def stop(self) -> None:
        """End the server; once this returns, its processes, port and shared memory are free.

        Ends requests that are under way. Takes less than a second on an idle machine.
        """
        self._client.close()
        # Nothing is written to the pipe: that it closes is the sign.
        self._guard.communicate()

    def log_end(self, lines: int = 15) -> str:
        """Return the last lines that the server printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def complete(
        self,
        prompt: Sequence[int] | str,
        new_tokens: int,
        *,
        top: int = 0,
        extra_key: str | None = None,
        cache_salt: str | None = None,
        request_id: str | None = None,
    ) -> Completion:
        """Continue a prompt greedily, past any end token.

        Parameters
        ----------
        prompt
            Token ids, or text.
        new_tokens
            How many tokens to generate, >= 1.
        top
            How many of the likeliest tokens of each step to return.
        extra_key, cache_salt
            The namespace of the prompt in the cache.
        request_id
            A name by which the request can be aborted.
        """
        body: dict[str, Any] = {
            "text" if isinstance(prompt, str) else "input_ids": (
                prompt if isinstance(prompt, str) else list(prompt)
            ),
            "sampling_params": {
                "temperature": 0,
                "max_new_tokens": new_tokens,
                "ignore_eos": True,
            },
            "stream": True,
        }
        if top:
            body |= {"return_logprob": True, "top_logprobs_num": top, "logprob_start_len": -1}
        named = {"extra_key": extra_key, "cache_salt": cache_salt, "rid": request_id}
        body |= {name: value for name, value in named.items() if value is not None}
        return self._stream(body)

    def _stream(self, body: dict[str, Any]) -> Completion:
        start = time.perf_counter()
        first: float | None = None
        last: dict[str, Any] = {}
        with self._client.stream("POST", "/generate", json=body) as response:
            if response.status_code != httpx.codes.OK:
                raise ServerError(f"server: answered {response.status_code}: {response.read()!r}")
            for line in response.iter_lines():
                if not line.startswith("data:") or line.endswith("[DONE]"):
                    continue
                last = json.loads(line.removeprefix("data:"))
                if first is None:
                    first = time.perf_counter() - start
        if first is None or "meta_info" not in last:
            raise ServerError(f"server: ended its answer with {last}; see {self.log}")
        meta = last["meta_info"]
        if meta["finish_reason"]["type"] == "abort":
            raise ServerError(f"server: ended the request: {meta['finish_reason']}")
        return Completion(
            tokens=tuple(last["output_ids"]),
            top=tuple(
                tuple(Likely(token, logprob) for logprob, token, _ in step)
                for step in meta.get("output_top_logprobs") or ()
            ),
            prompt_tokens=meta["prompt_tokens"],
            cached_tokens=meta["cached_tokens"],
            first_token=first,
            total=time.perf_counter() - start,
        )

    def post(self, path: str, **body: Any) -> httpx.Response:
        """Send JSON to one of the server's paths."""
        return self._client.post(path, json=body)

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Ask one of the server's paths."""
        return self._client.get(path, headers=headers)

    def state(self) -> dict[str, Any]:
        """Return what `/server_info` says of the scheduler's internal state."""
        states = self.get("/server_info").raise_for_status().json()["internal_states"]
        return dict(states[0])

    def flush_cache(self) -> None:
        """Empty the server's cache."""
        self.post("/flush_cache").raise_for_status()


def free_port() -> int:
    """Return a port that was free just now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def require_free_port(port: int) -> None:
    """Raise `ServerError` where something listens on `port` already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ServerError(
                f"--port: got {port} ({error.strerror}); need a free port; choose another one"
            ) from None
