"""A small Qwen3.5 text model with random weights that remembers thousands of tokens.

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
drown what tells one prefix from another. Embeddings
are small beside what the layers add, so the logits depend on the context more than on the last
token. Output rows of tokens that are not printable ASCII are zero: such tokens practically never
win, and generated text encodes back to the very tokens it came from.
"""

import json
import math
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

VERSION = 2
"""Version of the recipe; a change of what `build_tiny_model` writes raises it."""

BYTES = 256
BEGIN, END, PAD = "<|begin|>", "<|end|>", "<|pad|>"
BEGIN_ID, END_ID, PAD_ID = BYTES, BYTES + 1, BYTES + 2
VOCABULARY_SIZE = BYTES + 3
ATTENTION_INTERVAL = 4
HEAD_SIZE = 64
ATTENTION_HEADS, KEY_VALUE_HEADS = 4, 2
STATE_KEY_HEADS, STATE_VALUE_HEADS = 2, 4
CONVOLUTION_WIDTH = 4
MAX_POSITIONS = 65_536

_SPECIFICATION_FILE = "specification.json"
_EMBEDDING_SCALE = 0.5
_CONSTANT_CHANNEL, _CONSTANT = 0, 4.0
_VARIANCE_OF_A_LAYER = 3.2
_MEAN_WRITE_LOGIT = -4.0
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|begin|>' + message['role'] + '\n' + message['content'] + '<|end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|begin|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True)
class _Specification:
    version: int
    seed: int
    layers: int
    hidden_size: int
    log_decays: tuple[float, float]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


def default_model_folder() -> Path:
    """Return where the default model is kept: a folder in the user's cache, with the version.

    Returns
    -------
    Path
        `$XDG_CACHE_HOME` (else `~/.cache`) / `sglang-sparse/models/tiny-qwen3.5-v<VERSION>`.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "sglang-sparse" / "models" / f"tiny-qwen3.5-v{VERSION}"


def build_tiny_model(
    folder: Path,
    *,
    seed: int = 0,
    layers: int = 8,
    hidden_size: int = 256,
    log_decays: tuple[float, float] = (1e-4, 2e-3),
) -> Path:
    """Write a small hybrid model as a Hugging Face folder, unless it is there already.

    Every fourth layer is attention, the others are GatedDeltaNet. The weights are float32. The
    tokenizer turns each UTF-8 byte into one token whose id is the byte's value.

    Parameters
    ----------
    folder
        Where the model shall be. Replaced when it holds a tiny model of another specification.
    seed
        Seed of the weights. The same arguments give the same bytes.
    layers
        Number of layers, a positive multiple of 4.
    hidden_size
        Width of the residual stream, at least 64 and a multiple of 64.
    log_decays
        Smallest and largest -g a token at a = 0, over the heads of each GatedDeltaNet layer.

    Returns
    -------
    Path
        `folder`. It appears complete or not at all.

    Raises
    ------
    ValueError
        When an argument is out of range, or `folder` exists and holds something else.
    """
    if layers <= 0 or layers % ATTENTION_INTERVAL:
        raise ValueError(
            f"layers: got {layers}; need a positive multiple of {ATTENTION_INTERVAL}; "
            f"use {ATTENTION_INTERVAL} or {2 * ATTENTION_INTERVAL}"
        )
    if hidden_size <= 0 or hidden_size % HEAD_SIZE:
        raise ValueError(
            f"hidden_size: got {hidden_size}; need a positive multiple of {HEAD_SIZE}; use 256"
        )
    if not 0 < log_decays[0] <= log_decays[1]:
        raise ValueError(
            f"log_decays: got {log_decays}; need 0 < smallest <= largest; use (1e-4, 2e-3)"
        )
    specification = _Specification(VERSION, seed, layers, hidden_size, log_decays)
    if _holds(folder, specification):
        return folder
    if not _may_be_replaced(folder):
        raise ValueError(
            f"folder: got {folder}; need a new or empty folder, or one that holds a tiny model; "
            "choose another path"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        new = Path(scratch, "new")
        new.mkdir()
        _write(new, specification)
        _put_in_place(new, folder, specification)
    return folder


def _holds(folder: Path, specification: _Specification) -> bool:
    file = folder / _SPECIFICATION_FILE
    return file.is_file() and file.read_text() == specification.to_json()


def _may_be_replaced(folder: Path) -> bool:
    if not folder.exists():
        return True
    is_ours = (folder / _SPECIFICATION_FILE).is_file()
    return is_ours or (folder.is_dir() and not any(folder.iterdir()))


def _put_in_place(new: Path, folder: Path, specification: _Specification) -> None:
    """Rename `new` to `folder`; a process that built the same model first wins."""
    if folder.exists() and not _holds(folder, specification):
        folder.rename(new.with_name("old"))
    try:
        new.rename(folder)
    except OSError:
        if not _holds(folder, specification):
            raise


def _write(folder: Path, specification: _Specification) -> None:
    files = {
        "config.json": _model_config(specification),
        "generation_config.json": {
            "bos_token_id": BEGIN_ID,
            "eos_token_id": END_ID,
            "pad_token_id": PAD_ID,
            "do_sample": False,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BEGIN,
            "eos_token": END,
            "pad_token": PAD,
            "clean_up_tokenization_spaces": False,
            "model_max_length": MAX_POSITIONS,
            "chat_template": _CHAT_TEMPLATE,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
    _byte_tokenizer().save(str(folder / "tokenizer.json"))
    save_file(_weights(specification), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / _SPECIFICATION_FILE).write_text(specification.to_json())


def _model_config(specification: _Specification) -> dict[str, object]:
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "dtype": "float32",
        "mamba_ssm_dtype": "float32",
        "vocab_size": VOCABULARY_SIZE,
        "hidden_size": specification.hidden_size,
        "intermediate_size": 2 * specification.hidden_size,
        "num_hidden_layers": specification.layers,
        "full_attention_interval": ATTENTION_INTERVAL,
        "layer_types": [
            "full_attention" if _is_attention(layer) else "linear_attention"
            for layer in range(specification.layers)
        ],
        "num_attention_heads": ATTENTION_HEADS,
        "num_key_value_heads": KEY_VALUE_HEADS,
        "head_dim": HEAD_SIZE,
        "linear_num_key_heads": STATE_KEY_HEADS,
        "linear_num_value_heads": STATE_VALUE_HEADS,
        "linear_key_head_dim": HEAD_SIZE,
        "linear_value_head_dim": HEAD_SIZE,
        "linear_conv_kernel_dim": CONVOLUTION_WIDTH,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": MAX_POSITIONS,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 0.25,
        },
        "partial_rotary_factor": 0.25,
        "attn_output_gate": True,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": BEGIN_ID,
        "eos_token_id": END_ID,
        "pad_token_id": PAD_ID,
    }


def _is_attention(layer: int) -> bool:
    return (layer + 1) % ATTENTION_INTERVAL == 0


def _byte_tokenizer() -> Tokenizer:
    """Byte-level BPE without merges: the token id of a byte is its value."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(BYTES) if byte not in set(printable)]
    # The byte-level pre-tokenizer writes the n-th byte without a glyph as character 256 + n.
    character = {byte: chr(byte) for byte in printable}
    character |= {byte: chr(BYTES + position) for position, byte in enumerate(others)}
    tokenizer = Tokenizer(models.BPE({character[byte]: byte for byte in range(BYTES)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in (BEGIN, END, PAD)]
    )
    return tokenizer


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


def _weights(specification: _Specification) -> dict[str, torch.Tensor]:
    draw = _Draw(specification.seed)
    width = specification.hidden_size
    embeddings = draw.normal(VOCABULARY_SIZE, width, scale=_EMBEDDING_SCALE)
    embeddings[:, _CONSTANT_CHANNEL] = _CONSTANT
    head = draw.reader(VOCABULARY_SIZE, width)
    head[:, _CONSTANT_CHANNEL] = 0
    readable = {ord("\n"), *range(0x20, 0x7F)}
    head[[token for token in range(VOCABULARY_SIZE) if token not in readable]] = 0
    weights = {
        "model.embed_tokens.weight": embeddings,
        "model.norm.weight": draw.normal(width, scale=0.1),
        "lm_head.weight": head,
    }
    for layer in range(specification.layers):
        mixer = (
            _attention(draw, width)
            if _is_attention(layer)
            else _gated_delta_net(draw, width, layer, specification.log_decays)
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
