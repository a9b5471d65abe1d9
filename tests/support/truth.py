"""What a model answers according to transformers: the truth that served outputs are held against.

transformers runs in a child process, on the CPU, in float32 and on its plain torch path, with
flash-linear-attention and causal-conv1d hidden: where these are installed transformers would
take their GPU kernels. The two processes exchange one JSON line a request and one a reply. The
child ends at once when its standard input closes, as it does when the other process is killed.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any, NamedTuple, Self


class Step(NamedTuple):
    """One predicted position: the most likely token, and the `top` likeliest with it."""

    token: int
    logprob: float
    top: list[tuple[int, float]]


class TransformersTruth:
    """A model held by transformers in a child process; a context manager.

    Parameters
    ----------
    model_folder
        A Hugging Face folder.
    threads
        Torch threads of the child.
    """

    def __init__(self, model_folder: Path, *, threads: int = 1) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-P", __file__, str(model_folder), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child process."""
        self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def greedy(self, prompt_ids: list[int], new_tokens: int, top: int = 5) -> list[Step]:
        """Continue `prompt_ids` by `new_tokens` likeliest tokens, past any end token.

        One prefill, then one step a token on the model's own cache.
        """
        return self._ask(prompt_ids=prompt_ids, new_tokens=new_tokens, top=top)

    def next_log_probabilities(self, prompt_ids: list[int], top: int = 5) -> Step:
        """Return the prediction of the token after `prompt_ids`."""
        return self.greedy(prompt_ids, 1, top)[0]

    def with_wrong_state(
        self,
        prompt_ids: list[int],
        depth: int,
        state_of: list[int],
        new_tokens: int,
        top: int = 5,
    ) -> list[Step]:
        """Continue `prompt_ids` as `greedy` does, with wrong recurrent states in place at `depth`.

        Attention KV and convolution windows stay those of `prompt_ids[:depth]`; the recurrent
        states become those after the tokens `state_of`, or zeros when it is empty. This is the
        control: how far a cache's output moves when it restores a wrong state.
        """
        return self._ask(
            prompt_ids=prompt_ids, new_tokens=new_tokens, top=top, depth=depth, state_of=state_of
        )

    def _ask(
        self,
        *,
        prompt_ids: list[int],
        new_tokens: int,
        top: int,
        depth: int = 0,
        state_of: list[int] | None = None,
    ) -> list[Step]:
        if not prompt_ids or new_tokens < 1:
            raise ValueError(
                f"prompt: got {len(prompt_ids)} tokens and {new_tokens} new ones; need at least "
                "one of each; pass a longer prompt"
            )
        if state_of is not None and not 0 < depth < len(prompt_ids):
            raise ValueError(
                f"depth: got {depth}; need 0 < depth < {len(prompt_ids)}; stay inside the prompt"
            )
        request = _Request(prompt_ids, new_tokens, top, depth, state_of)
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with suppress(BrokenPipeError):  # a child that has ended sends no reply either
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
        reply = self._child.stdout.readline()
        if not reply:
            raise RuntimeError(
                f"transformers: its process ended with status {self._child.wait()}; need a reply; "
                "see its standard error above"
            )
        return [
            Step(token, logprob, [(other, value) for other, value in likeliest])
            for token, logprob, likeliest in json.loads(reply)
        ]


class _Request(NamedTuple):
    prompt_ids: list[int]
    new_tokens: int
    top: int
    depth: int
    state_of: list[int] | None


class _Model:
    """The child's side: the transformers model, and its caches."""

    def __init__(self, model_folder: str, threads: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self._torch = torch
        self._model: Any
        self._model, loading = AutoModelForCausalLM.from_pretrained(
            model_folder,
            dtype=torch.float32,
            attn_implementation="sdpa",
            output_loading_info=True,
        )
        failures = {name: keys for name, keys in loading.items() if keys}
        if failures:
            raise RuntimeError(
                f"weights: got {failures}; need every weight in the model and no other; "
                "compare their names with transformers' own"
            )
        self._model.eval()

    def answer(self, request: _Request) -> list[Step]:
        cache: Any = None
        if request.state_of is not None:
            cache = self._forward(request.prompt_ids[: request.depth], None).past_key_values
            self._replace_states(cache, request.state_of)
        output = self._forward(request.prompt_ids[request.depth :], cache)
        steps = [self._step(output, request.top)]
        while len(steps) < request.new_tokens:
            output = self._forward([steps[-1].token], output.past_key_values)
            steps.append(self._step(output, request.top))
        return steps

    def _forward(self, token_ids: list[int], cache: Any) -> Any:
        return self._model(
            input_ids=self._torch.tensor([token_ids]),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )

    def _replace_states(self, cache: Any, state_of: list[int]) -> None:
        source = self._forward(state_of, None).past_key_values if state_of else None
        for index, layer in enumerate(cache.layers):
            if not hasattr(layer, "recurrent_states"):
                continue
            if source is None:
                layer.recurrent_states[0].zero_()
            else:
                layer.recurrent_states[0].copy_(source.layers[index].recurrent_states[0])

    def _step(self, output: Any, top: int) -> Step:
        logprobs = output.logits[0, -1].float().log_softmax(-1)
        values, tokens = logprobs.topk(top)
        likeliest = list(zip(tokens.tolist(), values.tolist(), strict=True))
        return Step(*likeliest[0], likeliest)


def _serve() -> None:
    """Answer requests on standard input until it closes; the child's main function."""
    requests: SimpleQueue[str] = SimpleQueue()
    Thread(target=_read, args=(requests,), daemon=True).start()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not end up among the replies
    for package in ("fla", "causal_conv1d"):
        sys.modules[package] = None  # type: ignore[assignment]
    model = _Model(sys.argv[1], int(sys.argv[2]))
    while True:
        request = _Request(*json.loads(requests.get()))
        print(json.dumps(model.answer(request)), file=replies, flush=True)


def _read(requests: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


if __name__ == "__main__":
    _serve()
