"""The servers that a benchmark compares, and what it measures of each."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.progress import track

from sglang_sparse.demo.comparison import TOLERANCE, TOP, largest_difference, warm_up
from sglang_sparse.demo.server import Completion, Server

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.processes import running

CALIBRATION = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)
"""Shares of the longest prompt whose whole prefill is timed before the comparison."""

SCHEDULER = "sglang::schedul"
"""What the system keeps of the scheduler's name."""


class Variant(NamedTuple):
    """A way to start a server, and the replay's policy that does the same."""

    name: str
    policy: str
    flags: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


VARIANTS = (
    Variant("stock", "stock"),
    Variant(
        "stock_python",
        "stock",
        environment=(("SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND", "python"),),
    ),
    Variant("sparse", "sparse", flags=("--radix-cache-backend", "sparse")),
)


class Timed(NamedTuple):
    """A whole prefill of `tokens`, nothing cached, and the seconds to its first token."""

    tokens: int
    seconds: float


@dataclass
class Measured:
    """What one server did with the prompts; `states` and `counters` only where it tells them.

    `earlier` counts prompts that it observed before. `peak_memory` is the largest resident size of
    its scheduler, in bytes. `differing` counts answers unlike the first server's, and `worst` is
    the largest difference of a log-probability.
    """

    variant: Variant
    answers: list[Completion] = field(default_factory=list)
    earlier: int = 0
    differing: int = 0
    worst: float = 0.0
    peak_memory: int = 0
    states: int | None = None
    counters: dict[str, int] | None = None

    @property
    def cached(self) -> int:
        """Tokens of the prompts that were not computed."""
        return sum(answer.cached_tokens for answer in self.answers)

    @property
    def first_tokens(self) -> list[float]:
        """Seconds to each first token."""
        return [answer.first_token for answer in self.answers]

    def compare(self, reference: Measured) -> None:
        """Hold the last answer to the first server's."""
        mine, other = self.answers[-1], reference.answers[-1]
        difference = largest_difference(mine, other)
        self.worst = max(self.worst, difference)
        self.differing += mine.tokens != other.tokens or difference > TOLERANCE


@contextmanager
def started(
    variants: Sequence[Variant], model: Path, flags: Sequence[str], logs: Path
) -> Iterator[list[Server]]:
    """Yield a running server for each variant; all end with the block."""
    with ExitStack() as all_running:
        servers = [
            all_running.enter_context(
                Server(
                    model,
                    [*flags, *variant.flags],
                    log=logs / f"{variant.name}.log",
                    environment=dict(variant.environment),
                )
            )
            for variant in variants
        ]
        with Console().status("starting the servers"):
            for server in servers:
                server.wait_until_ready()
                warm_up(server, new_tokens=2)
        yield servers


def calibrate(server: Server, longest: Sequence[int]) -> list[Timed]:
    """Time whole prefills of beginnings of a prompt, and empty the cache again."""
    timed = []
    for number, share in enumerate(CALIBRATION):
        tokens = max(round(share * len(longest)), 1)
        prompt = longest[:tokens]
        answer = server.complete(prompt, 1, top=TOP, extra_key=f"calibration {number}")
        timed.append(Timed(tokens, answer.first_token))
    server.flush_cache()
    return timed


def served(
    servers: Sequence[Server],
    variants: Sequence[Variant],
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    repeat: int = 0,
) -> list[Measured]:
    """Send each prompt to all servers, which take turns to be first, so that noise hits all.

    A `repeat` above 0 begins with empty caches, and in a namespace of its own.
    """
    measured = [Measured(variant) for variant in variants]
    pairs = list(zip(servers, measured, strict=True))
    namespace = f"repeat {repeat}" if repeat else None
    for server, own in pairs:
        if repeat:
            server.flush_cache()
        told = server.state().get("sparse")
        own.earlier = told["counters"]["prompts"] if told is not None else 0
    for number, prompt in enumerate(track(prompts, description="requests")):
        first = (number + repeat) % len(pairs)
        for server, own in pairs[first:] + pairs[:first]:
            answer = server.complete(prompt, new_tokens, top=TOP, extra_key=namespace)
            own.answers.append(answer)
        for own in measured[1:]:
            own.compare(measured[0])
    for server, own in pairs:
        own.peak_memory = _peak_memory(server.pid)
        told = server.state().get("sparse")
        if told is not None:
            own.states, own.counters = told["states"], told["counters"]
    return measured


def typical(repeats: Sequence[Measured]) -> Measured:
    """Return what one server did, as the first time, but for medians of the times of each answer,
    and every answer unlike the first server's counted."""
    first = repeats[0]
    return replace(
        first,
        answers=[
            answers[0]._replace(
                first_token=median(each.first_token for each in answers),
                total=median(each.total for each in answers),
            )
            for answers in zip(*(each.answers for each in repeats), strict=True)
        ],
        differing=sum(each.differing for each in repeats),
        worst=max(each.worst for each in repeats),
        peak_memory=repeats[-1].peak_memory,
    )


def chunk_of(server: Server) -> int:
    """Return how many tokens a forward pass computes at most."""
    return int(server.get("/server_info").raise_for_status().json()["chunked_prefill_size"])


def _peak_memory(root: int) -> int:
    """Return the largest resident size so far, in bytes, of the scheduler below a process."""
    parents = {each.number: each.parent for each in running()}
    for number in parents:
        status = Path(f"/proc/{number}/status")
        if _descends(number, root, parents) and status.exists():
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
            if lines["Name"].strip() == SCHEDULER:
                return 1024 * int(lines["VmHWM"].split()[0])
    raise RuntimeError(f"{SCHEDULER}: got no such process; need one; look at the server's log")


def _descends(number: int, root: int, parents: dict[int, int]) -> bool:
    while number in parents and number != root:
        number = parents[number]
    return number == root
