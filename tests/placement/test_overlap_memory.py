"""Overlap statistics as bytes: the same in every process, across a save, and bounded in size."""

import gc
import hashlib
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import NamedTuple

import numpy as np
import pytest

from tree_placement import OverlapModel


class Observation(NamedTuple):
    scopes: list[int]
    overlap: int
    earlier_length: int


def history(count: int, seed: int = 0) -> list[Observation]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2_000, 9_001, count)
    overlaps = np.where(rng.random(count) < 0.5, 1_500, lengths - 900) + rng.integers(0, 99, count)
    scopes = rng.integers(0, 40, (count, 2))
    return [
        Observation([int(narrow), 100 + int(wide) % 3], int(overlap), int(length))
        for (narrow, wide), overlap, length in zip(scopes, overlaps, lengths, strict=True)
    ]


def learned(model: OverlapModel, observations: Iterable[Observation]) -> OverlapModel:
    for observation in observations:
        model.observe(*observation)
    return model


def fingerprint(model: OverlapModel) -> str:
    """Digest of the model's bytes and of the bits of two forecasts."""
    digest = hashlib.sha256(model.to_bytes())
    for scopes in ([], [3, 101]):
        forecast = model.forecast(scopes, 7_777)
        digest.update(forecast.depths.tobytes() + forecast.weights.tobytes())
    return digest.hexdigest()


MODELS: dict[str, Callable[[], OverlapModel]] = {
    "default": OverlapModel,
    "scaled back": lambda: OverlapModel(decay=0.3),
    "full": lambda: OverlapModel(bin=7, maximum_bins=20, scope_bins=3, maximum_scopes=9),
    "other shrinkage": lambda: OverlapModel(shrinkage=2.5, prior_size=0.1, bin=16),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("saved_after", [0, 1, 37, 150, 299])
def test_a_model_saved_in_the_middle_learns_the_same_bits(kind: str, saved_after: int) -> None:
    observations = history(300)
    whole = learned(MODELS[kind](), observations)
    before = learned(MODELS[kind](), observations[:saved_after])
    saved = before.to_bytes()
    copy = OverlapModel.from_bytes(saved)
    assert copy.to_bytes() == saved
    assert fingerprint(copy) == fingerprint(before)
    assert fingerprint(learned(copy, observations[saved_after:])) == fingerprint(whole)


def test_one_step_of_difference_would_be_seen() -> None:
    observations = history(300)
    whole = fingerprint(learned(OverlapModel(), observations))
    swapped = [*observations[:150], observations[151], observations[150], *observations[152:]]
    assert fingerprint(learned(OverlapModel(), swapped)) != whole
    decay = np.nextafter(0.99, 1.0).item()
    assert fingerprint(learned(OverlapModel(decay), observations)) != whole


def test_another_process_learns_the_same_bits() -> None:
    script = (
        "from placement.test_overlap_memory import OverlapModel, fingerprint, history, learned;"
        "print(fingerprint(learned(OverlapModel(), history(300, {seed}))))"
    )
    folders = [os.path.dirname(os.path.dirname(__file__)), *sys.path]
    found = []
    for hash_seed, seed in (("1", 0), ("2", 0), ("1", 1)):
        environment = os.environ | {
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(folders),
        }
        command = [sys.executable, "-c", script.format(seed=seed)]
        result = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment
        )
        found.append(result.stdout.strip())
    here = fingerprint(learned(OverlapModel(), history(300)))
    assert found[:2] == [here, here]
    assert found[2] != here, "another history must be told apart"


def with_byte(data: bytes, at: int, change: int = 1) -> bytes:
    return data[:at] + bytes([data[at] ^ change]) + data[at + 1 :]


SAVED = learned(OverlapModel(), history(50)).to_bytes()
BINS_KEPT = 12 + 8 * (4 + 3 + 2)
"""Where the first histogram's number of bins stands: behind header, settings and two counts."""


def resealed(body: bytes) -> bytes:
    return SAVED[:8] + struct.pack("<I", zlib.crc32(body)) + body


def test_a_right_checksum_is_accepted() -> None:
    assert OverlapModel.from_bytes(resealed(SAVED[12:])).to_bytes() == SAVED


@pytest.mark.parametrize(
    ("data", "got"),
    [
        (resealed(SAVED[12:-8]), "bytes that end too early"),
        (resealed(SAVED[12:] + bytes(8)), "8 bytes too many"),
        (resealed(with_byte(SAVED, BINS_KEPT, 128)[12:]), r"\d+ bins of \d+"),
        (b"", "0 bytes of another kind"),
        (SAVED[:11], "11 bytes of another kind"),
        (b"GZIP" + SAVED[4:], r"\d+ bytes of another kind"),
        (with_byte(SAVED, 4, 3), "version 2"),
        (with_byte(SAVED, 8), "damaged bytes, which do not have their checksum"),
        (SAVED[:12], "damaged bytes"),
        (SAVED[:-1], "damaged bytes"),
        (SAVED + b"\0", "damaged bytes"),
        *((with_byte(SAVED, at, 128), "damaged bytes") for at in range(12, len(SAVED), 997)),
    ],
)
def test_damaged_bytes_are_refused(data: bytes, got: str) -> None:
    pattern = f"^data: got {got}.*; need what version 1 wrote; begin with a new one$"
    with pytest.raises(ValueError, match=pattern) as raised:
        OverlapModel.from_bytes(data)
    assert "\n" not in str(raised.value)


def test_a_scope_beyond_64_bits_cannot_be_saved() -> None:
    model = learned(OverlapModel(), [Observation([2**63], 100, 200)])
    with pytest.raises(ValueError, match=r"^scope: got \d+; need a whole number of 64 bits; "):
        model.to_bytes()


def bytes_held(root: object) -> int:
    """Return the size of an object and of everything that it refers to but code."""
    seen: set[int] = set()
    pending, size = [root], 0
    while pending:
        each = pending.pop()
        if id(each) in seen or isinstance(each, type | ModuleType | FunctionType):
            continue
        seen.add(id(each))
        size += sys.getsizeof(each)
        pending.extend(gc.get_referents(each))
    return size


def bytes_after(model: OverlapModel, documents: range) -> int:
    """Let every document be asked about once at a depth of its own; return what is then held."""
    overlaps = np.random.default_rng(documents.start).integers(1, 10**6, len(documents))
    for document, overlap in zip(documents, overlaps.tolist(), strict=True):
        model.observe([document], overlap, 10**6)
    return bytes_held(model)


def test_memory_is_bounded_over_100_000_documents() -> None:
    model = OverlapModel(maximum_scopes=128, maximum_bins=256, scope_bins=16)
    early = bytes_after(model, range(2_000))
    late = bytes_after(model, range(2_000, 100_000))
    assert len(model) == 128
    assert early * 0.9 < late < early * 1.1
    bins = 2 * 256 + 128 * 2 * 16
    assert len(model.to_bytes()) <= 40 * bins + 100 * (128 + 1) + 100
    unbounded = OverlapModel(maximum_scopes=10**6, maximum_bins=256, scope_bins=16)
    assert bytes_after(unbounded, range(5_000)) > 10 * early, "growth must be seen"
