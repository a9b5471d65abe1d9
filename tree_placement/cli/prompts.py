"""Prompts made of documents and questions, and the tokenizers that turn them into tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TypeAlias

from tree_placement._check import invalid
from tree_placement.replay.formats import read_lines

Tokenizer: TypeAlias = Callable[[str], Sequence[int]]

DOCUMENT, QUESTIONS = "input", "instructions"
"""Keys of a line, as L-Eval names them."""


def read_prompts(path: Path) -> Iterator[str]:
    """Yield each document with each question: all first questions, then all second ones, ...

    Raises
    ------
    ValueError
        If the file cannot be read or a line is no document with questions.
    """
    documents = [_document(path, number, line) for number, line in enumerate(read_lines(path), 1)]
    columns = [[f"{text}\n\n{question}" for question in questions] for text, questions in documents]
    for turn in zip_longest(*columns):
        yield from (prompt for prompt in turn if prompt is not None)


def tokenizer_named(name: str) -> Tokenizer:
    """Return the tokenizer `bytes`, whose tokens are bytes, or the one in a folder.

    The folder holds `tokenizer.json`, as models on Hugging Face do.

    Raises
    ------
    ValueError
        If there is none, or the package to read it is missing.
    """
    if name == "bytes":
        return str.encode
    path = Path(name) / "tokenizer.json"
    if not path.is_file():
        need = "bytes, or a folder with tokenizer.json"
        raise invalid("--tokenizer", name, need, "correct the path")
    try:
        from tokenizers import Tokenizer as HuggingFaceTokenizer
    except ModuleNotFoundError:
        fix = "pip install tokenizers"
        raise invalid("tokenizers", "no such package", "it for --tokenizer", fix) from None
    read = HuggingFaceTokenizer.from_file(str(path))
    return lambda text: list(read.encode(text).ids)


def _document(path: Path, number: int, line: str) -> tuple[str, list[str]]:
    try:
        read = json.loads(line)
        text, questions = read[DOCUMENT], read[QUESTIONS]
        if isinstance(text, str) and all(isinstance(each, str) for each in questions):
            return text, list(questions)
    except (ValueError, KeyError, TypeError):
        pass
    need = f'an object with "{DOCUMENT}", a text, and "{QUESTIONS}", a list of texts'
    raise invalid(f"{path}: line {number}", "something else", need, "mend the line")
