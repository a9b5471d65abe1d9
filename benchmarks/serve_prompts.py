"""Prompts that a benchmark sends, as token ids: of a trace, of documents, or of one book."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from tree_placement.cli.prompts import Tokenizer
from tree_placement.cli.prompts import read_prompts as read_document_prompts
from tree_placement.replay import read_trace

FIRST_TOKEN, TOKENS = 32, 95
QUESTIONS = "questions.jsonl"

Prompt = Sequence[int]


def trace_prompts(trace: Path, block: int, limit: int | None) -> Iterator[Prompt]:
    """Yield the prompts of a trace: each block id stands for `block` seeded tokens.

    What fills no block belongs to its prompt alone.
    """
    for number, request in enumerate(islice(read_trace(trace, block).requests, limit)):
        tokens = [token for each in request.blocks for token in _tokens(f"block {each}", block)]
        yield tokens + _tokens(f"request {number}", request.length - len(tokens))


def document_prompts(documents: Path, tokenizer: Tokenizer, limit: int | None) -> Iterator[Prompt]:
    """Yield documents with questions: all first questions, then all second ones, and so on."""
    yield from map(tokenizer, islice(read_document_prompts(documents), limit))


def book_prompts(book: Path, tokens: int, questions: int, tokenizer: Tokenizer) -> Iterator[Prompt]:
    """Yield the first `tokens` of a book with each question.

    Questions are in the file `QUESTIONS` beside the book, one object a line, with the names of
    their books; those on other books come last.

    Raises
    ------
    ValueError
        If the book is shorter, or there are fewer questions.
    """
    text = tokenizer(book.read_text(encoding="utf-8"))[:tokens]
    if len(text) < tokens:
        raise ValueError(f"--book: got {len(text)} tokens; need {tokens}; lower --tokens")
    lines = (book.parent / QUESTIONS).read_text(encoding="utf-8").splitlines()
    asked = sorted(map(json.loads, lines), key=lambda each: bool(each["book"] != book.name))
    if len(asked) < questions:
        raise ValueError(f"--questions: got {questions}; need at most {len(asked)}; lower it")
    for each in asked[:questions]:
        yield [*text, *tokenizer(f"\n\nQuestion: {each['question']}\nAnswer:")]


def random_tokens(draw: random.Random, count: int) -> list[int]:
    """Return printable bytes, which the tiny model's tokenizer takes as they are."""
    return [FIRST_TOKEN + draw.randrange(TOKENS) for _ in range(count)]


def _tokens(name: str, count: int) -> list[int]:
    return random_tokens(random.Random(name), count)
