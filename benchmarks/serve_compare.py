"""Replay a block-id trace over HTTP against the stock and the sparse server, request by request.

    python benchmarks/serve_compare.py --trace quality_blk16.jsonl.gz --slots 32

A line of a trace is a request: {"input_length": tokens, "h": [block ids and inclusive runs]}; equal
ids at equal positions mean equal prefixes. Each id becomes `--block` seeded tokens, the rest of a
prompt belongs to it alone. Both servers run at once and take turns, so that noise of the machine
falls on both; an idle one does not compute.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from sglang_sparse.demo.comparison import TOLERANCE, largest_difference
from sglang_sparse.demo.server import Completion, Server
from sglang_sparse.demo.tiny_model import build_tiny_model, default_model_folder

GRID = 64
FIRST_TOKEN, TOKENS = 32, 95


@dataclass
class Served:
    """What one server did with the trace."""

    name: str
    cached: int = 0
    first_token: list[float] = field(default_factory=list)
    states: int | None = None

    def add(self, answer: Completion) -> None:
        self.cached += answer.cached_tokens
        self.first_token.append(answer.first_token)


def main() -> int:
    """Run the comparison; return 1 where outputs differ or the sparse server is behind."""
    given = _arguments()
    prompts = list(read_prompts(given.trace, given.block, given.limit))
    total = sum(map(len, prompts))
    stock, sparse = Served("stock"), Served("sparse")
    differing, worst = 0, 0.0
    with ExitStack() as running, tempfile.TemporaryDirectory() as logs:
        servers = _start(running, given, Path(logs))
        for number, prompt in enumerate(track(prompts, description="requests")):
            order = [0, 1] if number % 2 else [1, 0]
            answers: dict[int, Completion] = {}
            for which in order:
                answers[which] = servers[which].complete(prompt, given.new_tokens, top=5)
            stock.add(answers[0])
            sparse.add(answers[1])
            difference = largest_difference(answers[0], answers[1])
            worst = max(worst, difference)
            differing += answers[0].tokens != answers[1].tokens or difference > TOLERANCE
        sparse.states = servers[1].state()["sparse"]["states"]
        counters = servers[1].state()["sparse"]["counters"]
    _print(stock, sparse, total, oracle_tokens(prompts))
    print(f"outputs that differ: {differing} of {len(prompts)}, largest difference {worst:.1e}")
    print(f"counters: {counters}")
    behind = sparse.cached < stock.cached - 0.001 * total
    return 1 if differing or behind else 0


def read_prompts(trace: Path, block: int, limit: int | None) -> Iterator[list[int]]:
    """Yield the prompts of a trace as token ids."""
    opener = gzip.open if trace.suffix == ".gz" else open
    with opener(trace, "rt") as lines:
        for number, line in enumerate(itertools.islice(lines, limit)):
            request = json.loads(line)
            tokens = [
                token
                for identifier in _identifiers(request["h"])
                for token in _tokens(f"block {identifier}", block)
            ]
            rest = request["input_length"] - len(tokens)
            yield tokens + _tokens(f"request {number}", rest)


def oracle_tokens(prompts: Sequence[Sequence[int]]) -> int:
    """Return how many tokens a state at every grid depth would serve."""
    seen: set[int] = set()
    served = 0
    for prompt in prompts:
        keys, key = [], 0
        for depth in range(GRID, len(prompt) + 1, GRID):
            key = hash((key, *prompt[depth - GRID : depth]))
            keys.append(key)
        usable = keys[: (len(prompt) - 1) // GRID]
        served += GRID * next((n for n, key in enumerate(usable) if key not in seen), len(usable))
        seen.update(keys)
    return served


def _identifiers(runs: Sequence[int | Sequence[int]]) -> Iterator[int]:
    for run in runs:
        if isinstance(run, int):
            yield run
        else:
            yield from range(run[0], run[1] + 1)


def _tokens(name: str, count: int) -> list[int]:
    draw = random.Random(name)
    return [FIRST_TOKEN + draw.randrange(TOKENS) for _ in range(count)]


def _start(running: ExitStack, given: argparse.Namespace, logs: Path) -> list[Server]:
    model = given.model_path or build_tiny_model(default_model_folder())
    flags = ["--max-mamba-cache-size", str(given.slots), "--max-total-tokens", str(given.kv_tokens)]
    servers = [
        running.enter_context(Server(model, flags + more, log=logs / f"{name}.log"))
        for name, more in (
            ("stock", []),
            ("sparse", ["--radix-cache-backend", "sparse", *given.sparse_flags]),
        )
    ]
    with Console().status("starting the servers"):
        for server in servers:
            server.wait_until_ready()
    return servers


def _print(stock: Served, sparse: Served, total: int, oracle: int) -> None:
    table = Table("", "stock", "sparse", "ratio", title=f"{len(stock.first_token)} requests")
    rows = [
        ("share of tokens from cache", stock.cached / total, sparse.cached / total),
        ("time to first token, sum (s)", sum(stock.first_token), sum(sparse.first_token)),
        (
            "time to first token, median (ms)",
            1e3 * statistics.median(stock.first_token),
            1e3 * statistics.median(sparse.first_token),
        ),
    ]
    for name, one, other in rows:
        ratio = f"{other / one:.3f}" if one else "-"
        table.add_row(name, f"{one:.4f}", f"{other:.4f}", ratio)
    table.add_row("states live at the end", "", str(sparse.states), "")
    Console().print(table)
    print(f"a state at every grid depth would serve {oracle / total:.4f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", type=Path, required=True, help="JSON lines, gzipped or plain")
    parser.add_argument("--block", type=int, default=16, help="tokens a block (default: 16)")
    parser.add_argument("--limit", type=int, help="first requests only")
    parser.add_argument("--slots", type=int, default=32, help="state slots (default: 32)")
    parser.add_argument(
        "--kv-tokens", type=int, default=1_000_000, help="tokens of KV (default: 1000000)"
    )
    parser.add_argument("--new-tokens", type=int, default=1, help="to generate (default: 1)")
    parser.add_argument("--model-path", type=Path, help="default: the tiny model")
    parser.add_argument(
        "sparse_flags", nargs="*", help="further flags of the sparse server, after --"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
