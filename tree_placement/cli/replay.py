"""`replay`: what policies save on a trace, and a certificate of every hit."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tree_placement._check import check_count, invalid
from tree_placement.cli.files import check_file, write_files
from tree_placement.cli.interrupts import held
from tree_placement.cli.parser import Commands, OneLineParser
from tree_placement.cli.progress import Progress
from tree_placement.cli.prompts import read_prompts, tokenizer_named
from tree_placement.cli.replay_report import Run, as_json, as_table
from tree_placement.replay import Budget, Served, Trace, read_trace, replay, trace_of_prompts
from tree_placement.replay.certificate import certificate_line
from tree_placement.replay.foresight import upper_bound
from tree_placement.replay.policies import DENSE, NAMES, is_policy, policy_named
from tree_placement.replay.shapes import shapes
from tree_placement.replay.summary import Saving, summarise
from tree_placement.tree.shape import TreeShape

UPPER_BOUND = "upper_bound"
ROWS = (*NAMES, UPPER_BOUND)
"""What a row of the report can be of."""

DESCRIPTION = f"""\
Serve a trace in simulation from the states that a policy keeps, and print what that saves: the
share of prompt tokens, and of what a state at every grid depth would save; the mean gap of
requests that overlap an earlier one; the states written, and the mean number live.

traces (--trace FILE; .gz is unpacked), a request a line, in order of arrival:
  {{"input_length": tokens, "h": [id, [first, last], ...]}}
      ids of full blocks, and inclusive runs of them; an id stands for its block and all before it
  {{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [id, ...]}}
      Mooncake's; the block that a prompt does not fill may have an id
prompts (--documents FILE with --tokenizer), a document a line:
  {{"input": text, "instructions": [question, ...]}}
      asked the first question of each, then the second of each, and so on

policies: {", ".join(ROWS)}
  {DENSE} keeps a state at every grid depth, whatever the slots; offline_plan knows the future;
  {UPPER_BOUND} is what no policy exceeds

certificate (--certificate FILE), a request a line, evictions before writes:
  {{"hit": depth, "from": [writer request, depth] or null, "written": [depth, ...],
   "evicted": [[writer request, depth], ...]}}
"""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What the user asked for; sizes in tokens."""

    trace: Path | None
    documents: Path | None
    tokenizer: str
    block: int
    grid: int
    slots: Sequence[int]
    kv_tokens: int | None
    chunk: int
    policy: Sequence[str]
    limit: int | None
    json: bool
    certificate: Path | None


def add_parser(commands: Commands) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "replay",
        help="what policies save on a trace, and a certificate of every hit",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--trace", type=Path, metavar="FILE", help="a trace of block ids")
    source.add_argument(
        "--documents", type=Path, metavar="FILE", help="documents and questions, to be tokenized"
    )
    add(
        "--tokenizer",
        default="bytes",
        metavar="NAME",
        help="for --documents: bytes, or a folder with tokenizer.json (default: %(default)s)",
    )
    _add_sizes(parser)
    add("--policy", nargs="+", default=["sparse"], metavar="NAME", help="(default: sparse)")
    add("--json", action="store_true", help="print one JSON object a policy and number of slots")
    add("--certificate", type=Path, metavar="FILE", help="write how each request was served")


def _add_sizes(parser: OneLineParser) -> None:
    def add(flag: str, default: int | None, text: str) -> None:
        shown = " (default: %(default)s)" if default is not None else ""
        parser.add_argument(flag, type=int, metavar="N", default=default, help=text + shown)

    add("--block", 16, "tokens of a block")
    add("--grid", 64, "states stand at multiples of this many tokens")
    parser.add_argument(
        "--slots",
        type=int,
        metavar="N",
        nargs="+",
        default=[64],
        help="live states at most (default: 64)",
    )
    add("--kv-tokens", None, "tokens of KV at most; the least recently used leaves go")
    add("--chunk", 8_192, "tokens of a forward pass, for SGLang's own rules")
    add("--limit", None, "serve the first N requests only")


def run(given: argparse.Namespace) -> None:
    """Replay what `given` asks for, print what it saves, and write the certificate.

    Raises
    ------
    ValueError
        Where a file or an argument is bad.
    """
    values = vars(given)
    asked = Question(**{name: values[name] for name in Question.__dataclass_fields__})
    pairs = _pairs(asked)
    trace = _trace(asked)
    of_requests = shapes(trace)
    runs = []
    for name, budget in pairs:
        if name == UPPER_BOUND:
            runs.append(_bound(trace, budget))
            continue
        served = _served(asked, trace, name, budget)
        runs.append(_run_of(name, budget, served, of_requests))
        if asked.certificate is not None:
            _write(asked.certificate, served)
    print("\n".join(map(as_json, runs)) if asked.json else as_table(runs))


def _pairs(asked: Question) -> list[tuple[str, Budget]]:
    """Return each policy with each budget; ValueError for what would end a later replay."""
    check_count("--chunk", asked.chunk, 1, "pass the tokens of a forward pass")
    if asked.limit is not None:
        check_count("--limit", asked.limit, 1, "serve one request at least")
    for name in asked.policy:
        if name != UPPER_BOUND and not is_policy(name):
            raise invalid("--policy", name, f"one of {', '.join(ROWS)}", "correct the name")

    def budget(slots: int | None) -> Budget:
        return Budget(slots=slots, grid=asked.grid, kv_tokens=asked.kv_tokens)

    bounded, unbounded = [budget(slots) for slots in asked.slots], [budget(None)]
    pairs = [
        (name, each) for name in asked.policy for each in (bounded if name != DENSE else unbounded)
    ]
    if asked.certificate is not None:
        _check_certificate(asked, asked.certificate, len(pairs))
    return pairs


def _check_certificate(asked: Question, certificate: Path, runs: int) -> None:
    if runs > 1:
        need = "one policy and one number of slots"
        raise invalid("--certificate", f"{runs} runs", need, "ask for one at a time")
    if UPPER_BOUND in asked.policy:
        need = "a policy, which serves each request"
        raise invalid("--certificate", UPPER_BOUND, need, "leave it out, or name a policy")
    inputs = [path for path in (asked.trace, asked.documents) if path is not None]
    check_file("--certificate", certificate, inputs)


def _trace(asked: Question) -> Trace:
    if asked.trace is not None:
        trace = read_trace(asked.trace, asked.block)
    else:
        assert asked.documents is not None
        tokenizer = tokenizer_named(asked.tokenizer)
        trace = trace_of_prompts(map(tokenizer, read_prompts(asked.documents)), asked.block)
    return trace if asked.limit is None else trace.first(asked.limit)


def _served(asked: Question, trace: Trace, name: str, budget: Budget) -> tuple[Served, ...]:
    policy = policy_named(name, trace, budget, asked.chunk)
    slots = "any" if budget.slots is None else budget.slots
    with Progress(f"{name}, {slots} slots", len(trace.requests)) as progress:
        return replay(trace, policy, budget, watch=lambda _: progress.step())


def _run_of(
    name: str, budget: Budget, served: Sequence[Served], of_requests: Sequence[TreeShape]
) -> Run:
    summary = summarise(served, budget.grid, of_requests)
    return Run(policy=name, slots=budget.slots, saving=summary.whole, summary=summary)


def _bound(trace: Trace, budget: Budget) -> Run:
    most = upper_bound(trace, budget)
    dense = upper_bound(trace, Budget(grid=budget.grid))
    saving = Saving(requests=len(trace.requests), tokens=trace.tokens, hit=most, dense=dense)
    return Run(policy=UPPER_BOUND, slots=budget.slots, saving=saving, summary=None)


def _write(path: Path, served: Sequence[Served]) -> None:
    content = "".join(_lines(served)).encode()
    try:
        with held():
            write_files(path.parent, {path.name: content})
    except OSError as error:
        got = error.strerror
        raise invalid("--certificate", got, "a file to write", f"look at {path}") from None


def _lines(served: Sequence[Served]) -> Iterator[str]:
    return (f"{certificate_line(each)}\n" for each in served)
