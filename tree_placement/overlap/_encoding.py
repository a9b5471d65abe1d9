"""Numbers to bytes and back, bit for bit: little-endian, versioned, and guarded by a checksum."""

import struct
import zlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tree_placement._check import invalid

_HEADER = struct.Struct("<4sII")
_NUMBER_BYTES = 8


class Encoder:
    """Collects numbers as 8 little-endian bytes each, int64 or float64."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def integers(self, values: ArrayLike) -> None:
        """Append whole numbers within 64 bits."""
        self._parts.append(np.asarray(values, dtype="<i8").tobytes())

    def reals(self, values: ArrayLike) -> None:
        """Append real numbers; those of more than one dimension row by row."""
        self._parts.append(np.asarray(values, dtype="<f8").tobytes())

    def sealed(self, kind: bytes, version: int) -> bytes:
        """Return all numbers behind a header: `kind` (4 bytes), uint32 version, uint32 CRC-32."""
        body = b"".join(self._parts)
        return _HEADER.pack(kind, version, zlib.crc32(body)) + body


class Decoder:
    """Reads what `Encoder.sealed` wrote.

    Raises ValueError where `data` is of another kind or version, or damaged. The checksum guards
    against accidents, not against an author who means harm.
    """

    def __init__(self, data: bytes, kind: bytes, version: int) -> None:
        self._data = data
        self._version = version
        self._at = _HEADER.size
        if len(data) < _HEADER.size or data[: len(kind)] != kind:
            raise self.damaged(f"{len(data)} bytes of another kind")
        _, found, checksum = _HEADER.unpack_from(data)
        if found != version:
            raise self.damaged(f"version {found}")
        if checksum != zlib.crc32(data[_HEADER.size :]):
            raise self.damaged("damaged bytes, which do not have their checksum")

    def integers(self, count: int) -> NDArray[np.int64]:
        """Return the next `count` whole numbers."""
        return np.frombuffer(self._next(count), dtype="<i8").astype(np.int64)

    def reals(self, count: int) -> NDArray[np.float64]:
        """Return the next `count` real numbers."""
        return np.frombuffer(self._next(count), dtype="<f8").astype(np.float64)

    def finish(self) -> None:
        """Raise ValueError unless everything was read."""
        if self._at != len(self._data):
            raise self.damaged(f"{len(self._data) - self._at} bytes too many")

    def damaged(self, got: str) -> ValueError:
        """Return the error to raise for data that cannot be read."""
        return invalid("data", got, f"what version {self._version} wrote", "begin with a new one")

    def _next(self, count: int) -> bytes:
        end = self._at + count * _NUMBER_BYTES
        if not self._at <= end <= len(self._data):
            raise self.damaged("bytes that end too early")
        piece = self._data[self._at : end]
        self._at = end
        return piece
