"""Ask a document several questions through the server's OpenAI-compatible interface.

Start a server, then run this against it:

    python -m sglang.launch_server --model-path MODEL --radix-cache-backend sparse --port 30000
    python examples/openai_client.py --document README.md

On a CPU the server needs --max-mamba-cache-size 32 --max-total-tokens 131072 as well.
"""

import argparse
from pathlib import Path

from openai import OpenAI

QUESTIONS = ["What is this text about?", "Who is it for?", "What does it leave out?"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:30000", help="the running server")
    parser.add_argument("--document", type=Path, required=True, help="a UTF-8 text file")
    parser.add_argument("--tokens", type=int, default=32, help="length of each answer, in tokens")
    given = parser.parse_args()
    document = given.document.read_text(encoding="utf-8")
    client = OpenAI(base_url=f"{given.url}/v1", api_key="none")
    model = client.models.list().data[0].id
    for question in QUESTIONS:
        answer = client.chat.completions.create(
            model=model,
            messages=[
                {"role": "system", "content": document},
                {"role": "user", "content": question},
            ],
            max_tokens=given.tokens,
            temperature=0,
            extra_body={"return_cached_tokens_details": True},
        )
        # SGLang leaves the details out where nothing came from the cache.
        extension = (answer.model_extra or {}).get("sglext") or {}
        cached = extension.get("cached_tokens_details", {}).get("device", 0)
        text = answer.choices[0].message.content
        print(f"{cached:6} tokens from cache  {question} {text!r}")


if __name__ == "__main__":
    main()
