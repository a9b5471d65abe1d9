"""A model beside the GPU kernels that are installed, on a CPU, where they do not run.

    python installed_kernels.py MODEL

A process of its own: transformers decides at its first import which kernels it takes.
"""

from __future__ import annotations

import sys

import torch
from cases import TOLERANCE
from hybrids import answer, difference, torch_path
from transformers import AutoModelForCausalLM

from state_kernels.transformers_cache import use_state_kernels


def main(folder: str) -> None:
    """Answer by transformers' torch functions, by what it chooses, and by these recurrences."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt = torch.randint(32, 127, (1, 700), generator=torch.Generator().manual_seed(3))
    with torch_path(model):
        expected = answer(model, prompt)
    try:
        answer(model, prompt)
    except (RuntimeError, ValueError) as error:
        print(f"by the installed kernels: {error!r}"[:200])
    else:
        sys.exit("the installed kernels were not called")
    with use_state_kernels(model):
        moved = difference(answer(model, prompt), expected)
    print(f"largest difference: {moved:.1e}")
    if moved > TOLERANCE:
        sys.exit("by these recurrences the answer is another one")


if __name__ == "__main__":
    main(*sys.argv[1:])
