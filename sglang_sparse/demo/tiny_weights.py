"""Random weights of a small Qwen3.5 text model that remembers thousands of tokens.

Freshly initialised GatedDeltaNet weights are a weak witness: the model forgets within about ten
tokens, so a wrong state taken from a cache changes no output. The weights here are random too,
but drawn so that a wrong state shows. With key k (unit length, `HEAD_SIZE` wide), value v, query
q, decay g and write strength beta, one token updates the state S of one head and reads it:

    S <- exp(g) S (I - beta k k^T) + beta v k^T          o = RMSNorm(S q) * silu(z)
    g = -exp(A_log) softplus(a + dt_bias)                beta = sigmoid(b)

Two things make S forget, and both are set:

- The decay. `dt_bias` makes softplus(a + dt_bias) about 1, and exp(A_log) is spread
  geometrically over `log_decays`, 1e-4 to 2e-3 by default: heads remember 500 to 10,000 tokens.
- The delta rule. A write along k erases what stood there, which for spread-out keys costs a
  share beta / HEAD_SIZE a token: with b near 0 half is gone within 90 tokens, whatever the
  decay. b has no bias, so every embedding carries one constant channel which no layer writes to,
  and the projection to b reads it with a negative weight: beta is 0.005 to 0.03.

The norm before the gate makes the size of S irrelevant and its direction decisive. Queries, keys
and values enter their SiLU small, where it is nearly linear: a mean that all tokens share would
drown what tells one prefix from another. Embeddings are small beside what the layers add, so the
logits depend on the context more than on the last token. Output rows of tokens that are not
printable ASCII are zero: such tokens practically never win, and generated text encodes back to
the very tokens it came from.
"""

import math

import torch

ATTENTION_INTERVAL = 4
HEAD_SIZE = 64
ATTENTION_HEADS, KEY_VALUE_HEADS = 4, 2
STATE_KEY_HEADS, STATE_VALUE_HEADS = 2, 4
CONVOLUTION_WIDTH = 4

_EMBEDDING_SCALE = 0.5
_CONSTANT_CHANNEL, _CONSTANT = 0, 4.0
_VARIANCE_OF_A_LAYER = 3.2
_MEAN_WRITE_LOGIT = -4.0


def is_attention(layer: int) -> bool:
    """Return whether a layer is attention; the others are GatedDeltaNet."""
    return (layer + 1) % ATTENTION_INTERVAL == 0


class _Draw:
    """Random float32 matrices [outputs, inputs] from one seeded stream."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        return scale * torch.randn(*shape, generator=self._generator)

    def reader(self, outputs: int, inputs: int, gain: float = 1.0) -> torch.Tensor:
        """A projection which maps inputs of unit variance to outputs of deviation `gain`."""
        return self.normal(outputs, inputs, scale=gain / math.sqrt(inputs))

    def writer(self, outputs: int, inputs: int, gain: float) -> torch.Tensor:
        """A `reader` into the residual stream which leaves the constant channel alone."""
        weight = self.reader(outputs, inputs, gain)
        weight[_CONSTANT_CHANNEL] = 0
        return weight


def random_weights(
    *, seed: int, vocabulary: int, width: int, layers: int, log_decays: tuple[float, float]
) -> dict[str, torch.Tensor]:
    """Return the weights by the names that a checkpoint gives them, float32.

    Parameters
    ----------
    seed
        The same one gives the same weights.
    vocabulary
        Number of tokens.
    width
        Width of the residual stream, a multiple of 64.
    layers
        Number of layers, a multiple of `ATTENTION_INTERVAL`.
    log_decays
        Smallest and largest -g a token at a = 0, over the heads of each GatedDeltaNet layer.
    """
    draw = _Draw(seed)
    embeddings = draw.normal(vocabulary, width, scale=_EMBEDDING_SCALE)
    embeddings[:, _CONSTANT_CHANNEL] = _CONSTANT
    head = draw.reader(vocabulary, width)
    head[:, _CONSTANT_CHANNEL] = 0
    readable = {ord("\n"), *range(0x20, 0x7F)}
    head[[token for token in range(vocabulary) if token not in readable]] = 0
    weights = {
        "model.embed_tokens.weight": embeddings,
        "model.norm.weight": draw.normal(width, scale=0.1),
        "lm_head.weight": head,
    }
    for layer in range(layers):
        mixer = (
            _attention(draw, width)
            if is_attention(layer)
            else _gated_delta_net(draw, width, layer, log_decays)
        )
        block = {
            "input_layernorm.weight": draw.normal(width, scale=0.1),
            "post_attention_layernorm.weight": draw.normal(width, scale=0.1),
            **mixer,
            "mlp.gate_proj.weight": draw.reader(2 * width, width),
            "mlp.up_proj.weight": draw.reader(2 * width, width),
            "mlp.down_proj.weight": draw.writer(width, 2 * width, gain=1.0),
        }
        weights |= {f"model.layers.{layer}.{name}": value for name, value in block.items()}
    return weights


def _attention(draw: _Draw, width: int) -> dict[str, torch.Tensor]:
    queries, keys = ATTENTION_HEADS * HEAD_SIZE, KEY_VALUE_HEADS * HEAD_SIZE
    return {
        "self_attn.q_proj.weight": draw.reader(2 * queries, width),
        "self_attn.k_proj.weight": draw.reader(keys, width),
        "self_attn.v_proj.weight": draw.reader(keys, width),
        "self_attn.o_proj.weight": draw.writer(width, queries, gain=2.0),
        "self_attn.q_norm.weight": draw.normal(HEAD_SIZE, scale=0.1),
        "self_attn.k_norm.weight": draw.normal(HEAD_SIZE, scale=0.1),
    }


def _gated_delta_net(
    draw: _Draw, width: int, layer: int, log_decays: tuple[float, float]
) -> dict[str, torch.Tensor]:
    keys, values = STATE_KEY_HEADS * HEAD_SIZE, STATE_VALUE_HEADS * HEAD_SIZE
    smallest, largest = (math.log(decay) for decay in log_decays)
    write_strength = draw.reader(STATE_VALUE_HEADS, width, gain=0.5)
    # The layer's norm divides the constant by the stream's size; each layer adds to its square.
    size = math.sqrt(_EMBEDDING_SCALE**2 + _VARIANCE_OF_A_LAYER * layer)
    write_strength[:, _CONSTANT_CHANNEL] = _MEAN_WRITE_LOGIT * size / _CONSTANT
    return {
        "linear_attn.in_proj_qkv.weight": draw.reader(2 * keys + values, width, gain=0.4),
        "linear_attn.in_proj_z.weight": draw.reader(values, width),
        "linear_attn.in_proj_b.weight": write_strength,
        "linear_attn.in_proj_a.weight": draw.reader(STATE_VALUE_HEADS, width, gain=0.5),
        "linear_attn.conv1d.weight": draw.normal(2 * keys + values, 1, CONVOLUTION_WIDTH),
        "linear_attn.A_log": torch.linspace(smallest, largest, STATE_VALUE_HEADS),
        "linear_attn.dt_bias": torch.full((STATE_VALUE_HEADS,), math.log(math.e - 1)),
        "linear_attn.norm.weight": 1 + draw.normal(HEAD_SIZE, scale=0.1),
        "linear_attn.out_proj.weight": draw.writer(width, values, gain=3.0),
    }
