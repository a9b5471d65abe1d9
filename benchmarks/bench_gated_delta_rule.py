"""Prefill speed of the chunked gated delta rule beside transformers' torch version.

Both run in one process on the same inputs, in turns; medians of the repetitions are compared.

    PYTHONPATH=kernels python benchmarks/bench_gated_delta_rule.py --tokens 512 2048
"""

from __future__ import annotations

import argparse
import inspect
import time
from collections.abc import Callable
from statistics import median

import torch
from transformers.models.qwen3_5 import modeling_qwen3_5

from state_kernels import gated_delta_rule


def seconds(function: Callable[[], object]) -> float:
    """Return the wall-clock time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def compare(tokens: int, heads: int, size: int, repetitions: int) -> tuple[float, float]:
    """Return the median seconds of ours and of transformers' version."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(tokens, heads, size, generator=generator) for _ in range(3))
    g = -torch.rand(tokens, heads, generator=generator)
    beta = torch.rand(tokens, heads, generator=generator)
    cu_seqlens = torch.tensor([0, tokens])
    # Unwrapped: with flash-linear-attention installed the name calls its Triton kernels.
    theirs = inspect.unwrap(modeling_qwen3_5.torch_chunk_gated_delta_rule)

    def run_ours() -> object:
        return gated_delta_rule(q, k, v, g, beta, cu_seqlens=cu_seqlens, qk_l2norm=True)

    def run_theirs() -> object:
        return theirs(
            *(x[None] for x in (q, k, v, g, beta)),
            output_final_state=True,
            use_qk_l2norm_in_kernel=True,
        )

    run_ours()
    run_theirs()
    pairs = [(seconds(run_ours), seconds(run_theirs)) for _ in range(repetitions)]
    return median(p[0] for p in pairs), median(p[1] for p in pairs)


def main() -> None:
    """Print tokens per second of both, and their ratio, for each size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print("heads  size  tokens  chunked tok/s  transformers tok/s  ratio")
    for heads, size in ((16, 128), (4, 32)):
        for tokens in arguments.tokens:
            ours, theirs = compare(tokens, heads, size, arguments.repetitions)
            print(
                f"{heads:5} {size:5} {tokens:7} {tokens / ours:14,.0f} {tokens / theirs:19,.0f}"
                f" {theirs / ours:6.2f}"
            )


if __name__ == "__main__":
    main()
