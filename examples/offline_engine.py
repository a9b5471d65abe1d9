"""Ask a document several questions in this process, without a server.

python examples/offline_engine.py --model-path MODEL --document README.md
"""

import argparse
from pathlib import Path

import sglang

QUESTIONS = ["What is this text about?", "Who is it for?", "What does it leave out?"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model-path", required=True, help="the model's folder")
    parser.add_argument("--document", type=Path, required=True, help="a UTF-8 text file")
    parser.add_argument("--tokens", type=int, default=32, help="length of each answer, in tokens")
    given = parser.parse_args()
    document = given.document.read_text(encoding="utf-8")
    engine = sglang.Engine(
        model_path=given.model_path,
        radix_cache_backend="sparse",
        sparse_states_per_path=4,
        max_mamba_cache_size=32,
        max_total_tokens=131_072,
    )
    try:
        for question in QUESTIONS:
            answer = engine.generate(
                f"{document}\n\nQuestion: {question}\nAnswer:",
                {"temperature": 0, "max_new_tokens": given.tokens},
            )
            cached = answer["meta_info"]["cached_tokens"]
            print(f"{cached:6} tokens from cache  {question} {answer['text']!r}")
    finally:
        engine.shutdown()


# SGLang starts its scheduler as a new Python process, which imports this file again.
if __name__ == "__main__":
    main()
