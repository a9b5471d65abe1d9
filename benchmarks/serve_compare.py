"""The same prompts to stock SGLang, on either tree core, and to the sparse server, over HTTP.

    python benchmarks/serve_compare.py --trace quality_blk16.jsonl.gz --slots 32
    python benchmarks/serve_compare.py --book book.txt --tokens 40000 --questions 12 --slots 12

A trace's line is a request: {"input_length": tokens, "h": [block ids and inclusive runs]}; equal
ids at equal positions mean equal prefixes. Each id becomes `--block` seeded tokens, the rest of a
prompt belongs to it alone. All servers run at once, with the same slots, and take turns, so that
noise of the machine falls on all; an idle one does not compute. Beside the sparse server stands
what the replay predicts of it, whose slots are those of the pool less what one running request
holds, and beside stock what a model of its tree does (`stock_cache.py`). Times are worth something
on a quiet machine only; where few requests take most of the time, as the first on a book does,
`--repeats` serves all of them anew from empty caches, each time with another server first, and
medians are told.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from serve_prediction import Setting, fitted, oracle_tokens, predicted
from serve_prompts import Prompt, book_prompts, document_prompts, trace_prompts
from serve_report import Comparison, print_report
from serve_servers import (
    VARIANTS,
    Measured,
    Timed,
    Variant,
    calibrate,
    chunk_of,
    served,
    started,
    typical,
)

from sglang_sparse.demo.document import context_length
from sglang_sparse.demo.tiny_model import build_tiny_model, default_model_folder
from tree_placement.cli.prompts import tokenizer_named

SPARE_CONTEXT = 16
"""Positions beyond a prompt and its answer that SGLang wants of a context, and a few more."""

LEAST_GAIN = -0.001
"""Share of the tokens by which the sparse server may be behind."""


def main() -> int:
    """Run the comparison; return 1 where outputs differ or the sparse server is behind."""
    given = _arguments()
    if given.figures is not None:
        import matplotlib  # noqa: F401  # Missing, it stops here and not after the work.
    model = given.model_path or build_tiny_model(default_model_folder())
    try:
        prompts = _prompts(given, model)
        flags = _flags(given, model, max(map(len, prompts)) + given.new_tokens)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    variants = [each for each in VARIANTS if each.name in given.servers]
    with (
        tempfile.TemporaryDirectory() as logs,
        started(_with_flags(variants, given.sparse_flags), model, flags, Path(logs)) as servers,
    ):
        decodes = given.new_tokens > 1
        setting = Setting(given.slots, given.kv_tokens, chunk_of(servers[0]), decodes)
        whole = calibrate(servers[0], max(prompts, key=len))
        runs = [
            served(servers, variants, prompts, given.new_tokens, repeat)
            for repeat in range(given.repeats)
        ]
    measured = list(map(typical, zip(*runs, strict=True)))
    whole += _whole_prefills(measured[0])
    comparison = Comparison(
        lengths=[len(prompt) for prompt in prompts],
        measured=measured,
        predicted=[
            predicted(prompts, each.variant.policy, given.sparse_flags, setting, each.earlier)
            for each in measured
        ],
        prefill=fitted(whole),
    )
    print_report(comparison, oracle_tokens(prompts))
    if given.figures is not None:
        from serve_figures import write_figure

        write_figure(given.figures, comparison, whole)
    return 0 if _is_good(comparison) else 1


def _is_good(comparison: Comparison) -> bool:
    reference = comparison.measured[0]
    return not any(each.differing for each in comparison.measured) and all(
        each.cached - reference.cached >= LEAST_GAIN * comparison.tokens
        for each in comparison.measured
        if each.variant.policy == "sparse"
    )


def _whole_prefills(measured: Measured) -> list[Timed]:
    return [
        Timed(answer.prompt_tokens, answer.first_token)
        for answer in measured.answers
        if not answer.cached_tokens
    ]


def _prompts(given: argparse.Namespace, model: Path) -> list[Prompt]:
    if given.trace is not None:
        return list(trace_prompts(given.trace, given.block, given.limit))
    tokenizer = tokenizer_named(str(model))
    if given.documents is not None:
        return list(document_prompts(given.documents, tokenizer, given.limit))
    return list(book_prompts(given.book, given.tokens, given.questions, tokenizer))[: given.limit]


def _flags(given: argparse.Namespace, model: Path, longest: int) -> list[str]:
    """Return the flags of all servers; the tiny model's context is as long as is asked for."""
    flags = ["--max-mamba-cache-size", str(given.slots), "--max-total-tokens", str(given.kv_tokens)]
    context = context_length(model)
    longest += SPARE_CONTEXT
    if longest <= context:
        return flags
    if given.model_path is not None:
        raise ValueError(f"prompts: got {longest} positions; need at most {context}; cut them")
    return [*flags, "--json-model-override-args", f'{{"max_position_embeddings": {longest}}}']


def _with_flags(variants: Sequence[Variant], sparse_flags: Sequence[str]) -> list[Variant]:
    return [
        each._replace(flags=(*each.flags, *sparse_flags)) if each.policy == "sparse" else each
        for each in variants
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--trace", type=Path, metavar="FILE", help="JSON lines, .gz or plain")
    source.add_argument(
        "--documents",
        type=Path,
        metavar="FILE",
        help='JSON lines {"input": text, "instructions": [question, ...]}, asked in turns',
    )
    source.add_argument(
        "--book", type=Path, metavar="FILE", help="a text, with questions.jsonl beside it"
    )
    add = parser.add_argument
    add("--tokens", type=int, default=40_000, help="of the book (default: %(default)s)")
    add("--questions", type=int, default=12, help="on the book (default: %(default)s)")
    add("--block", type=int, default=16, help="tokens of a trace's block (default: %(default)s)")
    add("--limit", type=int, help="first requests only")
    add("--slots", type=int, default=32, help="slots of the whole pool (default: %(default)s)")
    add("--kv-tokens", type=int, default=1_000_000, help="tokens of KV (default: %(default)s)")
    add("--repeats", type=int, default=1, help="of all requests (default: %(default)s)")
    add("--new-tokens", type=int, default=4, help="to generate (default: %(default)s)")
    add("--model-path", type=Path, help="default: the tiny model")
    names = [each.name for each in VARIANTS]
    add(
        "--servers",
        nargs="+",
        choices=names,
        default=names,
        help="others are held to the first of them in this order (default: all)",
    )
    add("--figures", type=Path, metavar="DIR", help="draw prefill time over recomputed tokens")
    add("sparse_flags", nargs="*", help="further flags of the sparse server, after --")
    given = parser.parse_args()
    if given.repeats < 1:
        parser.error(f"--repeats: got {given.repeats}; need at least 1; leave it out for one")
    return given


if __name__ == "__main__":
    sys.exit(main())
