"""Ask about several places of a document with plain transformers, resuming from kept states.

python examples/transformers_prefix.py --document README.md
"""

import argparse

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from sglang_sparse.demo.tiny_model import build_tiny_model, default_model_folder
from state_kernels.transformers_cache import capture_states, use_state_kernels
from tree_placement import balanced

QUESTIONS = [(1.0, "What is this about?"), (0.9, "Who is it for?"), (0.4, "What comes next?")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model-path", help="the model's folder (default: the demo's tiny model)")
    utf8 = argparse.FileType(encoding="utf-8")
    parser.add_argument("--document", type=utf8, required=True, help="a UTF-8 text file")
    parser.add_argument("--states", type=int, default=4, help="states to keep in the document")
    parser.add_argument("--tokens", type=int, default=32, help="length of each answer, in tokens")
    given = parser.parse_args()
    folder = given.model_path or build_tiny_model(default_model_folder())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def token_ids(text: str) -> torch.Tensor:
        return torch.tensor([tokenizer(text).input_ids])

    def answer(prompt: torch.Tensor, cache: DynamicCache | None) -> tuple[str, torch.Tensor]:
        settings = {"do_sample": False, "output_logits": True, "return_dict_in_generate": True}
        settings["max_new_tokens"] = given.tokens
        with use_state_kernels(model):  # on a CPU, installed Triton kernels would fail
            output = model.generate(prompt, past_key_values=cache, **settings)
        new = output.sequences[0, prompt.shape[1] :]
        return tokenizer.decode(new), torch.cat(output.logits).log_softmax(dim=-1)

    document = token_ids(given.document.read())
    depths = balanced(document.shape[1], max(0, given.states), grid=64).tolist()
    if not depths:
        parser.error("nowhere to keep a state: give --states 1 or more, and a longer --document")
    with capture_states(model, depths) as captured, torch.no_grad():
        model(document, past_key_values=DynamicCache(config=model.config), logits_to_keep=1)
    for share, question in QUESTIONS:
        overlap = int(share * document.shape[1])
        depth = max((depth for depth in depths if depth <= overlap), default=0)
        prompt = torch.cat([document[:, :overlap], token_ids(f"\nQuestion: {question}\n")], dim=1)
        text, resumed = answer(prompt, captured.cache_at(depth) if depth else None)
        cold_text, cold = answer(prompt, None)
        same = text == cold_text and bool((resumed - cold).abs().max() <= 1e-5)
        print(f"{depth:6} tokens from cache  gap {overlap - depth:5}  ", end="")
        print(f"{'same as cold' if same else 'NOT AS COLD'}  {question} {text!r}")


if __name__ == "__main__":
    main()
