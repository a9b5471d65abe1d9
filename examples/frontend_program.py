"""Ask a document several questions at once with SGLang's frontend language.

Start a server, then run this against it:

    python -m sglang.launch_server --model-path MODEL --radix-cache-backend sparse --port 30000
    python examples/frontend_program.py --document README.md

On a CPU the server needs --max-mamba-cache-size 32 --max-total-tokens 131072 as well.
"""

import argparse
from pathlib import Path
from typing import Any

import sglang as sgl

QUESTIONS = ["What is this text about?", "Who is it for?", "What does it leave out?"]


@sgl.function  # type: ignore[untyped-decorator]
def ask_all(s: Any, document: str, questions: list[str], tokens: int) -> None:
    """Read the document once, then fork: every branch goes on from the same state."""
    s += document
    # The fork sends the document ahead of the branches, but only if it was taken up by then.
    s.sync()
    branches = s.fork(len(questions))
    for branch, question in zip(branches, questions, strict=True):
        branch += f"\n\nQuestion: {question}\nAnswer:"
        branch += sgl.gen("answer", max_tokens=tokens, temperature=0)
    for branch, question in zip(branches, questions, strict=True):
        cached = branch.get_meta_info("answer")["cached_tokens"]
        print(f"{cached:6} tokens from cache  {question} {branch['answer']!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:30000", help="the running server")
    parser.add_argument("--document", type=Path, required=True, help="a UTF-8 text file")
    parser.add_argument("--tokens", type=int, default=32, help="length of each answer, in tokens")
    given = parser.parse_args()
    sgl.set_default_backend(sgl.RuntimeEndpoint(given.url))
    ask_all.run(given.document.read_text(encoding="utf-8"), QUESTIONS, given.tokens)


if __name__ == "__main__":
    main()
