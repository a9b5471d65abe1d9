"""A small Qwen3.5 text model with random weights, written as a Hugging Face folder.

Its recurrent states matter, other than those of fresh weights: see `tiny_weights`.
"""

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from sglang_sparse.demo.tiny_weights import (
    ATTENTION_HEADS,
    ATTENTION_INTERVAL,
    CONVOLUTION_WIDTH,
    HEAD_SIZE,
    KEY_VALUE_HEADS,
    STATE_KEY_HEADS,
    STATE_VALUE_HEADS,
    is_attention,
    random_weights,
)

VERSION = 2
"""Version of the recipe; a change of what `build_tiny_model` writes raises it."""

BYTES = 256
BEGIN, END, PAD = "<|begin|>", "<|end|>", "<|pad|>"
BEGIN_ID, END_ID, PAD_ID = BYTES, BYTES + 1, BYTES + 2
VOCABULARY_SIZE = BYTES + 3
MAX_POSITIONS = 65_536

_SPECIFICATION_FILE = "specification.json"
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
    weights = random_weights(
        seed=specification.seed,
        vocabulary=VOCABULARY_SIZE,
        width=specification.hidden_size,
        layers=specification.layers,
        log_decays=specification.log_decays,
    )
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
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
            "full_attention" if is_attention(layer) else "linear_attention"
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
