"""Prefill speed of a Qwen3.5 layer group, by transformers' torch code and by state_kernels.

A group is three GatedDeltaNet layers and one of attention, here with the sizes of Qwen3.5-0.8B.
The same modules run in turns: as transformers has them, with the recurrence and convolution of
`state_kernels` put in, and so with states captured on the grid at equal distances. The recurrence
alone is timed on inputs of the same shape. Outputs and final states of both are compared.

Printed are tokens a second from median times, and medians of the ratios of neighbouring runs with
the smallest and largest in brackets. Exit status 1 if anything differs by more than 1e-5.

    python benchmarks/bench_layer_group.py --tokens 512 4096
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

import torch

from state_kernels import Captures, gated_delta_rule
from state_kernels.transformers_cache import capture_states, use_state_kernels

# transformers would take its Triton kernels, which cannot run on a CPU.
sys.modules["fla"] = None  # type: ignore[assignment]

BOUND = 1e-5
GRID = 64
Tensors: TypeAlias = tuple[torch.Tensor, ...]
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Comparison:
    """Seconds of the rounds by both ways and with captures, and how far results are apart."""

    theirs: list[float]
    ours: list[float]
    captured: list[float]
    difference: float


def build_model() -> Any:
    """Return a causal language model of one layer group that remembers thousands of tokens."""
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    torch.manual_seed(0)
    config = Qwen3_5TextConfig(
        vocab_size=512,
        hidden_size=1024,
        intermediate_size=3584,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=256,
        linear_num_key_heads=16,
        linear_num_value_heads=16,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
    )
    model = Qwen3_5ForCausalLM(config).eval()
    for layer in model.model.layers[:3]:
        heads = len(layer.linear_attn.A_log)
        with torch.no_grad():
            layer.linear_attn.A_log.copy_(torch.linspace(-9, -6, heads))
    return model


def in_turns(
    functions: Sequence[Callable[[], object]], repetitions: int, clock: Callable[[], float]
) -> list[list[float]]:
    """Return the seconds of every repetition of each function, after one run of each."""
    for function in functions:
        function()
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(repetitions):
        for function, times in zip(functions, seconds, strict=True):
            start = clock()
            function()
            times.append(clock() - start)
    return seconds


def compare_recurrence(tokens: int, given: argparse.Namespace) -> Comparison:
    """Time the recurrence alone."""
    from transformers.models.qwen3_5 import modeling_qwen3_5

    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, tokens, 16, 128, generator=generator)
    g = -torch.rand(tokens, 16, generator=generator) / 100
    beta = torch.rand(tokens, 16, generator=generator)
    cu_seqlens = torch.tensor([0, tokens])
    depth = torch.tensor(capture_depths(tokens, given.captures))
    captures = Captures(torch.zeros_like(depth), depth, torch.arange(len(depth)))
    pool = torch.empty(len(depth), 16, 128, 128)
    chunk_rule = inspect.unwrap(modeling_qwen3_5.torch_chunk_gated_delta_rule)

    def theirs() -> tuple[torch.Tensor, torch.Tensor]:
        output, state = chunk_rule(
            *(x[None] for x in (q, k, v, g, beta)),
            output_final_state=True,
            use_qk_l2norm_in_kernel=True,
        )
        return output[0], state.mT

    def ours() -> tuple[torch.Tensor, torch.Tensor]:
        return gated_delta_rule(q, k, v, g, beta, cu_seqlens=cu_seqlens, qk_l2norm=True)

    def captured() -> tuple[torch.Tensor, torch.Tensor]:
        return gated_delta_rule(
            *(q, k, v, g, beta),
            cu_seqlens=cu_seqlens,
            qk_l2norm=True,
            captures=captures,
            pool=pool,
        )

    return compare(theirs, ours, captured, given)


def compare_group(model: Any, tokens: int, given: argparse.Namespace) -> Comparison:
    """Time the group."""
    from transformers import DynamicCache

    generator = torch.Generator().manual_seed(1)
    input_ids = torch.randint(512, (1, tokens), generator=generator)
    depths = capture_depths(tokens, given.captures)

    def run(context: AbstractContextManager[object]) -> tuple[torch.Tensor, ...]:
        cache = DynamicCache(config=model.config)
        with context, torch.no_grad():
            output = model.model(input_ids=input_ids, past_key_values=cache).last_hidden_state
        return output, *(layer.recurrent_states[0] for layer in cache.layers[:3])

    def theirs() -> tuple[torch.Tensor, ...]:
        return run(nullcontext())

    def ours() -> tuple[torch.Tensor, ...]:
        return run(use_state_kernels(model))

    def captured() -> tuple[torch.Tensor, ...]:
        return run(capture_states(model, depths))

    return compare(theirs, ours, captured, given)


def compare(
    theirs: Callable[[], Tensors],
    ours: Callable[[], Tensors],
    captured: Callable[[], Tensors],
    given: argparse.Namespace,
) -> Comparison:
    """Compare results, then run the three in turns."""
    expected = theirs()
    pairs = [pair for run in (ours, captured) for pair in zip(run(), expected, strict=True)]
    seconds = in_turns([theirs, ours, captured], given.repetitions, CLOCKS[given.clock])
    first, second, third = seconds
    return Comparison(first, second, third, max(relative_difference(*pair) for pair in pairs))


def capture_depths(tokens: int, captures: int) -> list[int]:
    """Return depths on the grid at equal distances, the last at the end."""
    count = min(captures, tokens // GRID)
    return [tokens * place // count // GRID * GRID for place in range(1, count + 1)]


def relative_difference(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the norm of the difference over that of the expected value."""
    return float((got - expected).norm() / expected.norm())


def ratios(upper: list[float], lower: list[float]) -> str:
    """Return the median ratio of neighbouring runs, and its range."""
    each = [a / b for a, b in zip(upper, lower, strict=True)]
    return f"{median(each):5.2f} ({min(each):.2f}..{max(each):.2f})"


def added(more: list[float], less: list[float]) -> str:
    """Return the median share that neighbouring runs add, and its range."""
    each = [a / b - 1 for a, b in zip(more, less, strict=True)]
    return f"{median(each):+6.1%} ({min(each):+.1%}..{max(each):+.1%})"


def main() -> int:
    """Print a line for each length, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--captures", type=int, default=16, help="where the grid has as many")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--clock",
        choices=sorted(CLOCKS),
        default="wall",
        help="cpu: the process's own time, for a machine that does other work too",
    )
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model = build_model()
    print(
        f"{'tokens':>6}  {'':<11}{'tokens/s':>8} {'transformers':>13}  {'ratio':<19} "
        f"{f'{given.captures} captures add':<25} difference"
    )
    largest = 0.0
    for tokens in given.tokens:
        for name, measured in (
            ("recurrence", compare_recurrence(tokens, given)),
            ("group", compare_group(model, tokens, given)),
        ):
            largest = max(largest, measured.difference)
            print(
                f"{tokens:6}  {name:<11}{tokens / median(measured.ours):8,.0f} "
                f"{tokens / median(measured.theirs):13,.0f}  "
                f"{ratios(measured.theirs, measured.ours):<19} "
                f"{added(measured.captured, measured.ours):<25} {measured.difference:.1e}",
                flush=True,
            )
    if not largest <= BOUND:
        print(f"difference: got {largest:.1e}; need at most {BOUND:.0e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
