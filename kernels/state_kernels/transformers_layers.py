"""Recurrent layers of transformers' models, run by this package's recurrences.

A layer's ``forward`` calls its convolution and its recurrence by global names of its module, which
stand for torch functions, or for flash-linear-attention's and causal-conv1d's kernels where these
are installed. One instance at a time, those names get other meanings: the instance receives its
class's ``forward`` over a copy of the module's globals. No module or class changes.

A replacement takes its host's arguments by the host's names, and leaves some unused: sizes of
chunks, and options for which the models here have one value.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any, ClassVar, NamedTuple

import torch

from state_kernels.convolution import Activation, capture_windows, causal_convolution
from state_kernels.numerics import compute_dtype
from state_kernels.passes import Implementation
from state_kernels.records import Captures, RecurrenceResult
from state_kernels.recurrences.gated_delta_rule import gated_delta_rule
from state_kernels.recurrences.kda import kda
from state_kernels.recurrences.simple_decay import ssd


class Span(NamedTuple):
    """The tokens of one call of a model: those after depth `start`, up to depth `end`."""

    start: int
    end: int


class RecurrentLayer(ABC):
    """One recurrent layer of a model, and its states and windows at chosen depths.

    Parameters
    ----------
    module : torch.nn.Module
        The layer's token mixer.
    depths : sequence of int
        Rising; one slot each.

    Attributes
    ----------
    span : Span
        Which tokens the call in progress brings, where `depths` is not empty.
    states : Tensor ``[slots, HV, V, K]``, or None before the first call
    windows : Tensor ``[slots, D, width]``, or None before the first call
        transformers keeps as many inputs as the convolution is wide.
    """

    chunk_rule: ClassVar[str]
    """Global name of the recurrence over many tokens, by which a layer is recognised."""

    def __init__(self, module: Any, depths: Sequence[int]) -> None:
        self._module = module
        self._depths = depths
        self.index: int = module.layer_idx
        self.span = Span(0, 0)
        self.states: torch.Tensor | None = None
        self.windows: torch.Tensor | None = None

    @abstractmethod
    def rules(self) -> dict[str, Callable[..., Any]]:
        """Return the recurrences that stand in for the layer's own, by global name."""

    @staticmethod
    @abstractmethod
    def in_cache_layout(state: torch.Tensor) -> torch.Tensor:
        """Return a state ``[..., V, K]`` with the axes that the layer's cache has."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Run the layer by this package until the context ends."""
        if "forward" in vars(self._module):
            raise ValueError(
                f"layer {self.index}: got a forward that was replaced already; need the class's "
                "own; leave the other context, or load the model without kernels and offloading"
            )
        names = self.rules() | {
            "causal_conv1d_fn": self._convolve,
            "causal_conv1d_update": self._convolve_token,
        }
        forward = _with_globals(_forward_of(self._module), names)
        self._module.forward = MethodType(torch.no_grad()(forward), self._module)
        try:
            yield
        finally:
            del self._module.forward

    def _captures(self, ahead: int = 0) -> Captures:
        """Return the captures within the span, where `ahead` inputs precede its tokens."""
        first, last = (bisect_right(self._depths, depth) for depth in self.span)
        slot = torch.arange(first, last)
        depth = torch.tensor(self._depths[first:last], dtype=torch.int64)
        return Captures(torch.zeros_like(slot), depth - self.span.start + ahead, slot)

    def _state_captures(
        self, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[Captures | None, torch.Tensor | None]:
        """Return captures and pool of a pass with keys ``[T, H, K]``, values ``[T, HV, V]``."""
        if not self._depths:
            return None, None
        if self.states is None:
            shape = (len(self._depths), *v.shape[1:], k.shape[-1])
            self.states = v.new_empty(shape, dtype=compute_dtype(k, v))
        return self._captures(), self.states

    def _convolve(
        self,
        hidden_states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: Activation | None = None,
        **unused: object,
    ) -> torch.Tensor:
        """Convolve ``[B, D, inputs]``: the window, where there is one, and the call's tokens."""
        batch, _, inputs = hidden_states.shape
        x, cu_seqlens = hidden_states.mT.flatten(0, 1), _equal_lengths(batch, inputs)
        if self._depths:
            if self.windows is None:
                self.windows = x.new_empty((len(self._depths), *weight.shape))
            ahead = len(x) - (self.span.end - self.span.start)
            capture_windows(
                x, cu_seqlens=cu_seqlens, captures=self._captures(ahead), pool=self.windows
            )
        output = causal_convolution(
            x, weight, bias, cu_seqlens=cu_seqlens, activation=activation
        ).output
        return output.view(batch, inputs, -1).mT

    def _convolve_token(
        self,
        hidden_states: torch.Tensor,
        conv_state: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: Activation | None = None,
    ) -> torch.Tensor:
        """Convolve one token ``[B, D, 1]``, and shift the windows ``[B, D, width]`` in place."""
        inputs = torch.cat([conv_state, hidden_states], dim=-1)
        conv_state.copy_(inputs[..., 1:])
        return self._convolve(inputs, weight, bias, activation)[..., -1:]


class GatedDeltaLayer(RecurrentLayer):
    """A layer of Qwen3.5, Qwen3-Next, or Olmo-Hybrid."""

    chunk_rule = "torch_chunk_gated_delta_rule"
    _token_rule = "torch_recurrent_gated_delta_rule"
    _recurrence = staticmethod(gated_delta_rule)

    def rules(self) -> dict[str, Callable[..., Any]]:
        return {self.chunk_rule: self._run, self._token_rule: self._run}

    @staticmethod
    def in_cache_layout(state: torch.Tensor) -> torch.Tensor:
        return state.mT.contiguous()

    def _run(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        *,
        initial_state: torch.Tensor | None,
        use_qk_l2norm_in_kernel: bool,
        **unused: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return outputs ``[B, T, HV, V]`` and final states ``[B, HV, K, V]``."""
        q, k, v, g, beta = (x.flatten(0, 1) for x in (query, key, value, g, beta))
        captures, pool = self._state_captures(k, v)
        result = self._recurrence(
            q,
            k,
            v,
            g,
            beta,
            cu_seqlens=_equal_lengths(*value.shape[:2]),
            initial_state=None if initial_state is None else initial_state.mT,
            captures=captures,
            pool=pool,
            qk_l2norm=use_qk_l2norm_in_kernel,
            implementation=_implementation(value.shape[1]),
        )
        return result.output.view(value.shape), self.in_cache_layout(result.final_state)


class KimiDeltaLayer(GatedDeltaLayer):
    """A layer of Kimi-Linear."""

    chunk_rule = "chunk_kimi_delta_attention"
    _token_rule = "recurrent_kimi_delta_attention"
    _recurrence = staticmethod(kda)


class Mamba2Layer(RecurrentLayer):
    """A layer of Falcon-H1, Nemotron-H, or another Mamba2 hybrid."""

    chunk_rule = "mamba2_chunk_scan"

    def rules(self) -> dict[str, Callable[..., Any]]:
        return {self.chunk_rule: self._scan, "mamba2_selective_state_update": self._scan_token}

    @staticmethod
    def in_cache_layout(state: torch.Tensor) -> torch.Tensor:
        return state

    def _scan(
        self,
        hidden_states: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        C: torch.Tensor,
        *,
        D: torch.Tensor,
        dt_bias: torch.Tensor,
        dt_limit: tuple[float, float],
        initial_states: torch.Tensor | None,
        **unused: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return outputs ``[B, T, HV, V]`` and final states ``[B, HV, V, K]``."""
        steps = torch.nn.functional.softplus(dt.float() + dt_bias.float()).clamp(*dt_limit)
        result = self._pass(hidden_states, steps, A, B, C, D, initial_states)
        return result.output.view(hidden_states.shape), result.final_state

    def _scan_token(
        self,
        state: torch.Tensor,
        hidden_states: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        C: torch.Tensor,
        D: torch.Tensor,
        *,
        z: torch.Tensor | None,
        dt_bias: torch.Tensor,
        **unused: object,
    ) -> torch.Tensor:
        """Return outputs ``[B, HV, V]``, and advance the states ``[B, HV, V, K]`` in place.

        dt, A, D and dt_bias come expanded to the size of a head, or of a state.
        """
        steps = torch.nn.functional.softplus(dt[..., 0].float() + dt_bias[:, 0].float())
        x, steps, B, C = (x[:, None] for x in (hidden_states, steps, B, C))
        result = self._pass(x, steps, A[:, 0, 0], B, C, D[:, 0], state)
        state.copy_(result.final_state)
        output = result.output.view(hidden_states.shape)
        return output if z is None else output * torch.nn.functional.silu(z)

    def _pass(
        self,
        x: torch.Tensor,
        steps: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        C: torch.Tensor,
        D: torch.Tensor,
        state: torch.Tensor | None,
    ) -> RecurrenceResult:
        captures, pool = self._state_captures(B.flatten(0, 1), x.flatten(0, 1))
        return ssd(
            x.flatten(0, 1),
            steps.flatten(0, 1),
            A,
            B.flatten(0, 1),
            C.flatten(0, 1),
            D,
            cu_seqlens=_equal_lengths(*x.shape[:2]),
            initial_state=state,
            captures=captures,
            pool=pool,
            implementation=_implementation(x.shape[1]),
        )


def find_layers(model: torch.nn.Module, depths: Sequence[int]) -> list[RecurrentLayer]:
    """Return the model's layers whose recurrence is known here, by index, with slots for depths."""
    kinds = (GatedDeltaLayer, KimiDeltaLayer, Mamba2Layer)
    found = [
        kind(module, depths)
        for module in model.modules()
        for kind in kinds
        if kind.chunk_rule in _global_names(_forward_of(module))
    ]
    return sorted(found, key=lambda layer: layer.index)


def _forward_of(module: torch.nn.Module) -> Any:
    """Return the ``forward`` that the module's class defines, without decorators."""
    return inspect.unwrap(type(module).forward)


def _global_names(function: Any) -> tuple[str, ...]:
    """Return the global names and attributes in a function's body; none if it is no Python."""
    return function.__code__.co_names if isinstance(function, FunctionType) else ()


def _with_globals(function: Any, names: dict[str, Callable[..., Any]]) -> FunctionType:
    """Return a copy of a function for which some global names mean something else."""
    copy = FunctionType(
        function.__code__,
        function.__globals__ | names,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _implementation(tokens: int) -> Implementation:
    """Return the fast implementation for one sequence: a chunk would be mostly empty for one."""
    return "reference" if tokens == 1 else "auto"


def _equal_lengths(sequences: int, tokens: int) -> torch.Tensor:
    """Return the cumulative lengths of a batch without padding."""
    return torch.arange(sequences + 1) * tokens
