"""Are states placed where prompts will leave a *new* document? Over HTTP, beside fixed placements.

    python benchmarks/learned_placement.py

Each of 40 generated documents of 4,000 to 9,000 tokens is sent whole, then asked eight times with
prompts that leave it 1,500 +- 64 tokens from its start or 900 +- 64 from its end. With four states
a path at most, the first divergent prompt of each document from the 20th on should find a gap of at
most 192 tokens.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from sglang_sparse.demo.server import Server
from sglang_sparse.demo.tiny_model import build_tiny_model, default_model_folder

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from baseline_placements import PLACEMENTS

from support import plugins
from support.prompts import words

NEAR = 192
LEARNED = "learned"
SHARE = 0.9


class Document(NamedTuple):
    """A generated document and the depths where its eight prompts leave it."""

    tokens: list[int]
    depths: tuple[int, ...]


def main() -> int:
    """Print the gaps of first divergent prompts; return 1 where placement is not learned."""
    given = _arguments()
    documents = [_document(given.seed, number) for number in range(given.documents)]
    model = build_tiny_model(default_model_folder())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        environment = plugins.environment(
            folder, "baselines", "baseline_placements:register", Path(__file__).parent
        )
        flags = ["--radix-cache-backend", "sparse", "--sparse-states-per-path", "4"]
        flags += ["--max-mamba-cache-size", str(given.slots), "--max-total-tokens", "600000"]
        with Server(model, flags, log=folder / "log", environment=environment) as server:
            with Console().status("starting the server"):
                server.wait_until_ready()
            gaps = _run(server, documents, given.learning)
    _print(gaps)
    near = {name: _share_near(found) for name, found in gaps.items()}
    ok = near[LEARNED] >= SHARE and all(near[name] < SHARE / 2 for name in PLACEMENTS)
    return 0 if ok else 1


def _run(server: Server, documents: Sequence[Document], learning: int) -> dict[str, list[int]]:
    """Return the gap of the first divergent prompt of each document after the first `learning`.

    The fixed placements do not learn, so they are asked about those documents alone.
    """
    gaps: dict[str, list[int]] = {}
    with Progress() as progress:
        for name in (LEARNED, *PLACEMENTS):
            server.flush_cache()
            asked = list(enumerate(documents))[0 if name == LEARNED else learning :]
            gaps[name] = []
            captured = _captured(server)
            for number, document in progress.track(asked, description=name):
                server.complete(document.tokens, 1, extra_key=name)
                depths = document.depths if name == LEARNED else document.depths[:1]
                for turn, depth in enumerate(depths):
                    prompt = document.tokens[:depth] + words(60, seed=1000 * number + turn)
                    cached = server.complete(prompt, 1, extra_key=name).cached_tokens
                    if turn == 0 and number >= learning:
                        gaps[name].append(depth - cached)
            if _captured(server) == captured:
                raise SystemExit(f"{name}: got no captured state; need some; see the server's log")
    return gaps


def _captured(server: Server) -> int:
    return int(server.state()["sparse"]["counters"]["captured"])


def _document(seed: int, number: int) -> Document:
    draw = random.Random(f"{seed} {number}")
    length = draw.randrange(4000, 9001)
    near_start = [1500 + draw.randrange(-64, 65) for _ in range(4)]
    near_end = [length - 900 + draw.randrange(-64, 65) for _ in range(4)]
    depths = near_start + near_end
    draw.shuffle(depths)
    return Document(words(length, seed=seed * 1000 + number), tuple(depths))


def _share_near(gaps: Sequence[int]) -> float:
    return sum(gap <= NEAR for gap in gaps) / len(gaps)


def _print(gaps: dict[str, list[int]]) -> None:
    table = Table(
        "placement", f"gap at most {NEAR}", "median gap", "largest gap", title="first prompts"
    )
    for name, found in gaps.items():
        near = f"{sum(gap <= NEAR for gap in found)} of {len(found)}"
        table.add_row(name, near, f"{statistics.median(found):.0f}", str(max(found)))
    Console().print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=40, help="in all (default: 40)")
    parser.add_argument("--learning", type=int, default=20, help="not counted (default: 20)")
    parser.add_argument("--slots", type=int, default=64, help="state slots (default: 64)")
    parser.add_argument("--seed", type=int, default=0, help="of the documents (default: 0)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
