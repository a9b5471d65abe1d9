"""A small RWKV-7 language model, as published, whose recurrence runs through state_kernels.

Peng et al., "RWKV-7 Goose with Expressive Dynamic State Evolution", arXiv 2503.14456. Weights
carry their published names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from cases import cumulative, poisoned
from torch.nn.functional import group_norm, layer_norm, normalize, pad

from state_kernels import Captures, rwkv7
from state_kernels.passes import Implementation


@dataclass(frozen=True)
class ModelState:
    """What the model remembers after some tokens.

    Attributes
    ----------
    matrices : Tensor ``[layers, H, V, K]``
        States of the recurrences.
    shifts : Tensor ``[layers, 2, width]``
        The last inputs of time mixing and of channel mixing, which the next token is mixed with.
    """

    matrices: torch.Tensor
    shifts: torch.Tensor


class Pass(NamedTuple):
    """Logits ``[T, vocabulary]`` of all tokens, and the states after each depth asked for."""

    logits: torch.Tensor
    states: dict[int, ModelState]


@dataclass(frozen=True)
class RWKV7Model:
    """The whole model in one precision, which is that of its weights."""

    weights: Mapping[str, torch.Tensor]

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], dtype: torch.dtype) -> RWKV7Model:
        weights = {name: torch.from_numpy(array).to(dtype) for name, array in arrays.items()}
        return cls({name: x[0, 0] if x.shape[:2] == (1, 1) else x for name, x in weights.items()})

    @property
    def layers(self) -> int:
        return sum(name.endswith(".att.r_k") for name in self.weights)

    def empty_state(self) -> ModelState:
        heads, size = self.weights["blocks.0.att.r_k"].shape
        like = self.weights["emb.weight"]
        return ModelState(
            like.new_zeros(self.layers, heads, size, size),
            like.new_zeros(self.layers, 2, heads * size),
        )

    def run(
        self,
        text: bytes,
        state: ModelState | None = None,
        *,
        depths: tuple[int, ...] = (),
        implementation: Implementation,
    ) -> Pass:
        """Read a text after `state`, keeping the states after some of its bytes."""
        state = self.empty_state() if state is None else state
        x = self._norm(self.weights["emb.weight"][list(text)], "blocks.0.ln0")
        matrices, shifts = [], []
        first_values = None
        for index in range(self.layers):
            layer = Layer(self, f"blocks.{index}.")
            mixed_in = self._norm(x, layer.prefix + "ln1")
            out, first_values, captured = layer.mix_time(
                mixed_in,
                state.shifts[index, 0],
                first_values,
                state.matrices[index],
                depths,
                implementation,
            )
            x = x + out
            channel_in = self._norm(x, layer.prefix + "ln2")
            x = x + layer.mix_channels(channel_in, state.shifts[index, 1])
            matrices.append(captured)
            shifts.append(torch.stack([mixed_in, channel_in], dim=1))
        logits = self._norm(x, "ln_out") @ self.weights["head.weight"].T
        states = {
            depth: ModelState(
                torch.stack([captured[slot] for captured in matrices]),
                torch.stack([inputs[depth - 1] for inputs in shifts]),
            )
            for slot, depth in enumerate(depths)
        }
        return Pass(logits, states)

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = self.weights[name + ".weight"], self.weights[name + ".bias"]
        return layer_norm(x, weight.shape, weight, bias)


@dataclass(frozen=True)
class Layer:
    """One block's time mixing and channel mixing."""

    model: RWKV7Model
    prefix: str

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.model.weights[self.prefix + name]

    def mix_time(
        self,
        x: torch.Tensor,
        shift: torch.Tensor,
        first_values: torch.Tensor | None,
        matrix: torch.Tensor,
        depths: tuple[int, ...],
        implementation: Implementation,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the output, the values of the first layer, and the captured states."""
        mixed = x + (_before(x, shift) - x) * self["att.x_rwkvag"]
        for_r, for_w, for_k, for_v, for_a, for_g = mixed
        r = for_r @ self["att.receptance.weight"].T
        k = for_k @ self["att.key.weight"].T
        v = for_v @ self["att.value.weight"].T
        if first_values is None:
            first_values = v
        else:
            share = torch.sigmoid(self["att.v0"] + self._low_rank("v", for_v))
            v = v + (first_values - v) * share
        w = self["att.w0"] + self._low_rank("w", for_w, torch.tanh)
        log_decay = -math.exp(-0.5) * torch.sigmoid(w)
        rate = torch.sigmoid(self["att.a0"] + self._low_rank("a", for_a))
        gate = self._low_rank("g", for_g, torch.sigmoid)
        removed = k * self["att.k_k"]
        k = k * (1 + (rate - 1) * self["att.k_a"])

        r, log_decay, k, v, rate, removed = (
            each.view(len(x), *self["att.r_k"].shape)
            for each in (r, log_decay, k, v, rate, removed)
        )
        removed = normalize(removed, dim=-1)
        pool = poisoned(len(depths), *matrix.shape, dtype=x.dtype)
        result = rwkv7(
            r,
            log_decay,
            k,
            v,
            -removed,
            removed * rate,
            cu_seqlens=cumulative((len(x),)),
            initial_state=matrix[None],
            captures=Captures(
                torch.zeros(len(depths), dtype=torch.int64),
                torch.tensor(depths, dtype=torch.int64),
                torch.arange(len(depths)),
            ),
            pool=pool,
            implementation=implementation,
        )
        bonus = (r * k * self["att.r_k"]).sum(dim=-1, keepdim=True) * v
        out = self._norm_heads(result.output) + bonus.flatten(1)
        return (out * gate) @ self["att.output.weight"].T, first_values, pool

    def mix_channels(self, x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        mixed = x + (_before(x, shift) - x) * self["ffn.x_k"]
        hidden = torch.relu(mixed @ self["ffn.key.weight"].T).square()
        return hidden @ self["ffn.value.weight"].T

    def _low_rank(
        self,
        kind: str,
        x: torch.Tensor,
        activation: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> torch.Tensor:
        narrow = x @ self[f"att.{kind}1"].T
        return (narrow if activation is None else activation(narrow)) @ self[f"att.{kind}2"].T

    def _norm_heads(self, x: torch.Tensor) -> torch.Tensor:
        _, heads, size = x.shape
        weight, bias = self["att.ln_x.weight"], self["att.ln_x.bias"]
        return group_norm(x.flatten(1), heads, weight, bias, eps=size * 1e-5)


def _before(x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Return each token's predecessor, `shift` for the first."""
    before = pad(x[:-1], (0, 0, 1, 0))
    before[0] = shift
    return before
