"""States of a transformers model at chosen depths, and caches that resume from them.

    with capture_states(model, depths=[1_000, 2_000]) as captured:
        model(input_ids=document, past_key_values=DynamicCache(config=model.config))
    model.generate(input_ids=prompt, past_key_values=captured.cache_at(2_000))

where `prompt` begins with the same 2,000 tokens and goes on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from state_kernels.transformers_layers import RecurrentLayer, Span, find_layers

if TYPE_CHECKING:
    from transformers import DynamicCache, PreTrainedModel

_RECURRENT_LAYER_TYPES = {"linear_attention", "hybrid"}
_ATTENTION_LAYER_TYPES = {"full_attention", "hybrid"}
_LAYER_TYPES = _RECURRENT_LAYER_TYPES | _ATTENTION_LAYER_TYPES | {"moe", "mlp"}
"""Layer types whose cache can be cut at any depth, or holds a state, or nothing."""


class _KeysAndValues(NamedTuple):
    keys: torch.Tensor
    values: torch.Tensor


class CapturedStates:
    """What `capture_states` keeps of one sequence, for as many caches as are asked for.

    Attributes
    ----------
    depths : tuple of int
        Depths at which states are kept, rising. Grows with every call of the model.
    """

    def __init__(self, model: PreTrainedModel, depths: tuple[int, ...]) -> None:
        self._config = model.config
        self._wanted = depths
        self._layers = _recurrent_layers(model, depths)
        self._attention: dict[int, _KeysAndValues] = {}
        self.depths: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all states, windows, and of the attention KV, which is kept once."""
        slots = [t for layer in self._layers for t in (layer.states, layer.windows)]
        attention = [t for pair in self._attention.values() for t in pair]
        return sum(t.nbytes for t in [*slots, *attention] if t is not None)

    def cache_at(self, depth: int) -> DynamicCache:
        """Return a cache that holds the sequence's first `depth` tokens.

        Parameters
        ----------
        depth : int
            One of `depths`.

        Returns
        -------
        DynamicCache
            For prompts that begin with the same tokens, and have at least one more. States and
            windows are copies; attention KV is a view, which the cache replaces when it grows.
            So caches do not disturb each other, nor what is kept here.

        Raises
        ------
        ValueError
            If no state is kept at that depth.
        """
        from transformers import DynamicCache

        if depth not in self.depths:
            raise ValueError(
                f"depth: got {depth}; need one of {self.depths}; "
                "ask capture_states for it and let the model read that far"
            )
        cache = DynamicCache(config=self._config)
        for place, pair in self._attention.items():
            layer = cache.layers[place]
            layer.lazy_initialization(pair.keys, pair.values)
            layer.keys, layer.values = pair.keys[..., :depth, :], pair.values[..., :depth, :]
        slot = self._wanted.index(depth)
        for recurrent in self._layers:
            assert recurrent.states is not None
            assert recurrent.windows is not None
            layer = cache.layers[recurrent.index]
            layer.update_conv_state(recurrent.windows[slot : slot + 1])
            layer.update_recurrent_state(
                recurrent.in_cache_layout(recurrent.states[slot : slot + 1])
            )
        return cache

    @contextmanager
    def _following(self, decoder: torch.nn.Module) -> Iterator[None]:
        """Keep states from every call of the model until the context ends."""
        cache: Any = None
        span = coming = Span(0, 0)
        unfinished: Any = None

        def before(given: dict[str, Any]) -> None:
            nonlocal coming, unfinished
            call = _checked_call(given)
            start = call.cache.get_seq_length()
            if call.cache is unfinished:
                raise ValueError(
                    "past_key_values: got the cache of a call that failed, which may be half "
                    "written; need a new one; read the sequence again from its start"
                )
            if cache is None:
                _check_first(self._wanted, start)
            elif call.cache is not cache or start != span.end:
                raise ValueError(
                    f"past_key_values: got a cache of {start} tokens; need the one of {span.end} "
                    "tokens that this context began with; open a context for each sequence"
                )
            unfinished, coming = call.cache, Span(start, start + call.tokens)
            for layer in self._layers:
                layer.span = coming

        def after(*_: object) -> None:
            nonlocal cache, span, unfinished
            cache, span, unfinished = unfinished, coming, None
            self.depths = tuple(depth for depth in self._wanted if depth <= span.end)
            self._attention = {
                place: _KeysAndValues(layer.keys.detach(), layer.values.detach())
                for place, layer in enumerate(cache.layers)
                if getattr(layer, "keys", None) is not None
            }

        with _before_calls(decoder, before), decoder.register_forward_hook(after):
            yield


@contextmanager
def capture_states(
    model: PreTrainedModel, depths: Iterable[int] | torch.Tensor
) -> Iterator[CapturedStates]:
    """Keep a hybrid model's states at chosen depths while it reads a sequence.

    Parameters
    ----------
    model : PreTrainedModel
        A causal language model of attention and recurrent layers: Qwen3.5, Qwen3-Next,
        Kimi-Linear, Falcon-H1, or another that runs a gated delta rule, Kimi delta attention or
        Mamba2. Where it is called in the context, its recurrent layers run this package's
        recurrences, and no other object changes.
    depths : iterable of int, or Tensor ``[C]``, integer
        Tokens after which a state is kept, each at least 1, on no grid.

    Yields
    ------
    CapturedStates

    Raises
    ------
    ValueError
        If the model has layers of other kinds, is in training mode, or has replaced ``forward``
        methods; and, when the model is called, if it is not one sequence without padding, or not
        the continuation of the calls before.

    Notes
    -----
    One sequence of batch size 1, in one call or several: chunks of a prefill, or `generate`. Text
    alone: what an image does to the positions after it is not in a cache. Each
    kept depth holds a recurrent state (float32, or float64 in a float64 model) and a convolution
    window for each recurrent layer. Room for all `depths` is taken at the first call. Attention KV
    is held once for all depths, in the tensors of the cache itself.
    """
    captured = CapturedStates(model, _checked_depths(depths))
    with _installed(model, captured._layers), captured._following(model.get_decoder()):
        yield captured


@contextmanager
def use_state_kernels(model: PreTrainedModel) -> Iterator[None]:
    """Run a hybrid model's recurrent layers by this package's recurrences, capturing nothing.

    transformers calls flash-linear-attention's Triton kernels where that is installed, on a CPU
    too, where they cannot run: there, `generate` inside this context. Elsewhere it is optional:
    a cache works with any implementation.

    Parameters
    ----------
    model : PreTrainedModel
        As for `capture_states`, which also lists the errors.
    """
    with _installed(model, _recurrent_layers(model, ())):
        yield


@contextmanager
def _installed(model: PreTrainedModel, layers: list[RecurrentLayer]) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(_before_calls(model.get_decoder(), _check_new_tokens))
        for layer in layers:
            stack.enter_context(layer.installed())
        yield


@contextmanager
def _before_calls(
    decoder: torch.nn.Module, function: Callable[[dict[str, Any]], None]
) -> Iterator[None]:
    """Call a function with the arguments of every call of the decoder, until the context ends."""
    signature = inspect.signature(decoder.forward)

    def before(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = signature.bind(*args, **kwargs).arguments
        function(given | given.get("kwargs", {}))

    with decoder.register_forward_pre_hook(before, with_kwargs=True):
        yield


def _check_new_tokens(given: dict[str, Any]) -> None:
    """Raise ValueError if a call brings no tokens after those that its cache holds.

    `generate` leaves out a prompt's first tokens, as many as the cache holds; of a prompt that has
    no more than these it brings nothing, or the whole prompt again, at its old positions.
    """
    inputs: Any = given.get("input_ids")
    inputs = given.get("inputs_embeds") if inputs is None else inputs
    cache: Any = given.get("past_key_values")
    positions: Any = given.get("position_ids")
    if inputs is None or cache is None:
        return
    held = cache.get_seq_length()
    # A padded sequence has smaller positions, and images have several.
    one_sequence = inputs.shape[0] == 1 and given.get("attention_mask") is None
    placed = one_sequence and positions is not None and positions.dim() == 2
    if inputs.shape[1] == 0 or (placed and int(positions[0, 0]) < held):
        raise ValueError(
            f"input_ids: got no tokens after the {held} that the cache holds; need a longer "
            "prompt; take a cache at a smaller depth"
        )


def _recurrent_layers(model: PreTrainedModel, depths: tuple[int, ...]) -> list[RecurrentLayer]:
    """Return the model's recurrent layers, or raise ValueError."""
    if model.training:
        raise ValueError(
            "model: got training mode; need evaluation, as no gradient passes; call model.eval()"
        )
    layers = find_layers(model, depths)
    types = getattr(model.config.get_text_config(decoder=True), "layer_types", None) or ()
    recurrent = [place for place, kind in enumerate(types) if kind in _RECURRENT_LAYER_TYPES]
    has_attention = not _ATTENTION_LAYER_TYPES.isdisjoint(types)
    known = has_attention and _LAYER_TYPES.issuperset(types)
    if not known or not layers or recurrent != [layer.index for layer in layers]:
        raise ValueError(
            f"model: got {type(model).__name__} with layers {sorted(set(types))}; need full "
            "attention and layers of a gated delta rule, Kimi delta attention or Mamba2; "
            "use such a hybrid"
        )
    return layers


def _checked_depths(depths: Iterable[int] | torch.Tensor) -> tuple[int, ...]:
    """Return the depths in rising order, each once, or raise ValueError."""
    given = depths.tolist() if isinstance(depths, torch.Tensor) else depths
    try:
        rising = tuple(sorted({index(depth) for depth in given}))
    except TypeError:
        raise ValueError(
            f"depths: got {depths}; need integers; count tokens read, from 1 on"
        ) from None
    if not rising or rising[0] < 1:
        raise ValueError(f"depths: got {rising}; need at least one, from 1 on; count tokens read")
    return rising


def _check_first(depths: tuple[int, ...], start: int) -> None:
    """Raise ValueError unless all depths lie after what the first call's cache holds."""
    if depths[0] <= start:
        raise ValueError(
            f"depths: got {depths[0]}; need more than the {start} tokens that the cache holds "
            "already; leave out what lies before"
        )


class _Call(NamedTuple):
    tokens: int
    cache: Any


def _checked_call(given: dict[str, Any]) -> _Call:
    """Return a call's number of tokens and its cache.

    Raises ValueError unless it brings one sequence without padding, and a cache to resume from.
    """
    from transformers import cache_utils

    inputs: Any = given.get("input_ids")
    mask: Any = given.get("attention_mask")
    cache: Any = given.get("past_key_values")
    inputs = given["inputs_embeds"] if inputs is None else inputs
    if inputs.shape[0] != 1 or given.get("cu_seq_lens_q") is not None:
        raise ValueError(
            f"batch: got {inputs.shape[0]} rows, or packed sequences; need 1 sequence; "
            "read one sequence at a time"
        )
    if mask is not None and not (isinstance(mask, torch.Tensor) and mask.ndim == 2 and mask.all()):
        raise ValueError(
            "attention_mask: got padding, or a mask of another form; need none, or ones [1, T]; "
            "pass the tokens alone"
        )
    known = (
        cache_utils.DynamicLayer,
        cache_utils.LinearAttentionLayer,
        cache_utils.LinearAttentionAndFullAttentionLayer,
    )
    is_plain = isinstance(cache, cache_utils.DynamicCache) and not cache.offloading
    layers = cache.layers if is_plain else []
    if not layers or any(type(layer) not in known for layer in layers):
        raise ValueError(
            f"past_key_values: got {type(cache).__name__}; need a growing cache of the model's "
            "layers; pass transformers.DynamicCache(config=model.config)"
        )
    return _Call(inputs.shape[1], cache)
