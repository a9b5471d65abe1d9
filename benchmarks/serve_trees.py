"""How near the optimum the states are that a server keeps, on a star, a comb and general trees.

    python benchmarks/serve_trees.py --slots 20 --prompts 1000

Prompts are drawn from trees whose weights are known, each for itself, and sent to the sparse server
over HTTP. At several moments of the second half `GET /sparse/placement` tells the states it keeps,
and what it expects of the next prompt; what a next request would displace by the slots that it
holds itself is not counted as kept. On that forecast, and on the weights that prompts are drawn
by, the expected number of tokens to compute though the tree holds them stands beside that of as
many states placed by the decomposition, by the exact program, and at random, which must be far off.
Where states stand is asked of `POST /sparse/explain` for each node of the tree that is drawn from.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.progress import track
from serve_servers import VARIANTS, started
from stock_cache import HELD
from tree_moments import CLOSE, Moment, Watched, moment_of
from tree_prompts import TreeWorkload, workloads
from tree_report import print_report

from sglang_sparse.demo.server import Server
from sglang_sparse.demo.tiny_model import build_tiny_model, default_model_folder


def main() -> int:
    """Serve all workloads; return 1 where one is not close to the optimum, or the control is."""
    given = _arguments()
    model = given.model_path or build_tiny_model(default_model_folder())
    sparse = next(each for each in VARIANTS if each.policy == "sparse")
    sparse = sparse._replace(flags=(*sparse.flags, *given.sparse_flags))
    flags = ["--max-mamba-cache-size", str(given.slots), "--max-total-tokens", str(given.kv_tokens)]
    chosen = [each for each in workloads(given.seed) if each.name in given.trees]
    with (
        tempfile.TemporaryDirectory() as logs,
        started([sparse], model, flags, Path(logs)) as (server,),
    ):
        watched = [
            Watched(each, _served(server, each, given), given.prompts, given.slots - HELD)
            for each in chosen
        ]
    print_report(watched)
    return 0 if all(each.is_close and each.control_is_far for each in watched) else 1


def _served(server: Server, workload: TreeWorkload, given: argparse.Namespace) -> list[Moment]:
    """Send a workload's prompts to an empty cache, in a namespace of its own, and look at it at
    moments of the second half, evenly apart."""
    server.flush_cache()
    half = given.prompts // 2
    last = {given.prompts - 1 - half * step // given.moments for step in range(given.moments)}
    moments = []
    prompts = list(workload.prompts(given.prompts, given.seed))
    for number, prompt in enumerate(track(prompts, description=workload.name)):
        server.complete(prompt, given.new_tokens, extra_key=workload.name)
        if number in last:
            moments.append(moment_of(server, workload, given.slots - HELD))
    return moments


def _arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"Returns 1 where what is kept costs more than {CLOSE} of the exact placement's on\n"
        "the forecast, summed over the moments, or random states do not.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [each.name for each in workloads(seed=0)]
    add = parser.add_argument
    add("--trees", nargs="+", choices=names, default=names, help="default: all")
    add("--prompts", type=int, default=1000, help="of each tree (default: %(default)s)")
    add("--slots", type=int, default=20, help="slots of the whole pool (default: %(default)s)")
    add("--moments", type=int, default=12, help="to look at each (default: %(default)s)")
    add("--seed", type=int, default=0, help="of trees and prompts (default: %(default)s)")
    add("--kv-tokens", type=int, default=400_000, help="tokens of KV (default: %(default)s)")
    add("--new-tokens", type=int, default=1, help="to generate (default: %(default)s)")
    add("--model-path", type=Path, help="default: the tiny model")
    add("sparse_flags", nargs="*", help="further flags of the server, after --")
    given = parser.parse_args(arguments)
    for name, fewest in (("slots", HELD + 1), ("moments", 1), ("prompts", 2 * given.moments)):
        if getattr(given, name) < fewest:
            parser.error(f"--{name}: got {getattr(given, name)}; need at least {fewest}; pass more")
    return given


if __name__ == "__main__":
    sys.exit(main())
