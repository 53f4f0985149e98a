"""Quantises plain weights while they are loaded, to 8, 6 or 4 bits in blocks of 32 inputs.

"q8" gives Q8_0: code * d with d = largest magnitude / 127. "q6" gives GROUPED6_32: (code - zero) * d with an
integer zero. "q4" gives Q4_1: code * d + m. For q6 and q4 several ranges are tried: codes are rounded to the
nearest, then d (and m) solved for by least squares, and the smallest squared error wins. Nothing is read
before `data` or `dequantise`; type and sizes come from the header.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.errors import BadCheckpoint
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.tensor import find_format
from engine.words import _

BLOCK = 32
PLAIN = ("F32", "F16", "BF16", "EXL3", "AQLM")
"""Types that are quantised, since backends hold them in 16 bits or more; others are unchanged."""
_AT_ONCE = 4096
"""Blocks quantised at a time: half a megabyte, which stays in a core's cache."""
_SHRINKS_6 = (1.0, 0.98, 0.96, 0.94, 0.92, 0.9)
_SHRINKS_4 = (1.0, 0.96, 0.92, 0.88, 0.84, 0.8)
"""Ranges tried, as multiples of the block's range."""


def quantise(tensor: RawTensor, kind: str) -> RawTensor:
    """`tensor` (N, K) as "q8", "q6" or "q4"; unchanged if it is not a plain matrix or 32 does not divide K.

    Reading the result raises `BadCheckpoint` for a number that is not finite or too large.
    """
    if tensor.type not in PLAIN or len(tensor.shape) != 2 or tensor.shape[1] % BLOCK or not tensor.shape[1]:
        return tensor
    return QuantisedTensor(tensor, kind)


class QuantisedTensor:
    """The plain `source` as a quantised `RawTensor`. Each access to `data` quantises again; see `rows`."""

    def __init__(self, source: RawTensor, kind: str) -> None:
        self._source, self._kind = source, kind
        self.name, self.shape = source.name, source.shape
        self.type, self._block_bytes, self._encode = _KINDS[kind]

    @property
    def nbytes(self) -> int:
        """Bytes of `data`."""
        return self.shape[0] * self.shape[1] // BLOCK * self._block_bytes

    @property
    def data(self) -> Bytes:
        """The blocks of the type; for "q6" as in `engine.weights.packed.grouped.GroupedTensor.data`."""
        blocks = self._source.dequantise().reshape(-1, BLOCK)
        out = np.empty((len(blocks), self._block_bytes), np.uint8)
        with np.errstate(all="ignore"):  # the error is raised below
            for first in range(0, len(blocks), _AT_ONCE):
                # With the block's number last, all work is on long contiguous vectors.
                x = np.ascontiguousarray(blocks[first : first + _AT_ONCE].T)
                if not self._encode(x, out[first : first + _AT_ONCE]):
                    raise BadCheckpoint(
                        _(
                            "The tensor {name} ({type}) contains a number that is not finite or "
                            "too large to be quantised; turn off quantisation, or download the "
                            "model again.",
                            name=self.name,
                            type=self._source.type,
                        )
                    )
        return out.reshape(-1)

    def dequantise(self) -> Floats:
        """All values after quantising, float32, in `shape`."""
        if self._kind == "q6":
            parts = self.data.reshape(-1, self._block_bytes)
            scales = np.ascontiguousarray(parts[:, BLOCK : BLOCK + 4]).view(np.float32)
            zeros = np.ascontiguousarray(parts[:, BLOCK + 4 :]).view(np.int16).astype(np.float32)
            return ((parts[:, :BLOCK] - zeros) * scales).reshape(self.shape)
        format = find_format(self.type)
        assert format is not None
        return format.dequantise(self.data, self.shape)

    def part(self, index: int) -> RawTensor:
        return quantise(self._source.part(index), self._kind)

    def rows(self, start: int, stop: int) -> QuantisedTensor:
        return QuantisedTensor(self._source.rows(start, stop), self._kind)

    def take(self, indices: npt.ArrayLike) -> QuantisedTensor:
        return QuantisedTensor(self._source.take(indices), self._kind)


def _half(values: Floats) -> tuple[Floats, bool]:
    """`values` rounded to fp16, as float32, and whether all are finite."""
    rounded = values.astype(np.float16).astype(np.float32)
    return rounded, bool(np.isfinite(rounded).all())


def _inverse(scale: Floats) -> Floats:
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)


def _fp16_bytes(values: Floats) -> Bytes:
    return values.astype("<f2").view(np.uint8).reshape(-1, 2)


def _encode_8(x: Floats, out: Bytes) -> bool:
    """x (32, B) to Q8_0: d, 32 int8."""
    scale, fine = _half(np.abs(x).max(0) / np.float32(127))
    codes = np.clip(np.rint(x * _inverse(scale)), -127, 127).astype(np.int8)
    out[:, :2], out[:, 2:] = _fp16_bytes(scale), codes.T.view(np.uint8)
    return fine


def _encode_6(x: Floats, out: Bytes) -> bool:
    """x (32, B) to 32 codes, a float32 d and an int16 zero."""
    low, high = x.min(0), x.max(0)
    middle, most = (low + high) / 2, np.maximum(high, -low)
    # For numbers far from 0 the step is so large that the zero stays near the codes, within -64 .. 127.
    step = np.maximum((high - low) / np.float32(63), most / np.float32(95))
    best, zero, least = np.zeros_like(low), np.zeros_like(low), np.full_like(low, np.inf)
    squares = (x * x).sum(0)
    for shrink in _SHRINKS_6:
        inverse = _inverse(step * np.float32(shrink))
        origin = np.clip(np.rint(np.float32(31.5) - middle * inverse), -64, 127)
        codes = np.minimum(np.maximum(np.rint(x * inverse), -origin), 63 - origin)
        products, powers = (codes * x).sum(0), (codes * codes).sum(0)
        scale = products * _inverse(powers)
        error = squares - scale * products
        better = error < least
        best, zero, least = (
            np.where(better, scale, best),
            np.where(better, origin, zero),
            np.where(better, error, least),
        )
    scale, fine = _half(best)
    codes = np.clip(np.rint(x * _inverse(scale)) + zero, 0, 63)
    fine = fine and bool(np.isfinite(squares).all())
    if fine:
        out[:, :BLOCK] = codes.astype(np.uint8).T
        out[:, BLOCK : BLOCK + 4] = scale[:, None].view(np.uint8)
        out[:, BLOCK + 4 :] = zero.astype("<i2")[:, None].view(np.uint8)
    return fine


def _encode_4(x: Floats, out: Bytes) -> bool:
    """x (32, B) to Q4_1: d, m, 16 bytes of code i (low) and i + 16."""
    low, high = x.min(0), x.max(0)
    middle, width = (low + high) / 2, high - low
    centred = x - middle
    sums, squares = centred.sum(0), (centred * centred).sum(0)
    best, offset, least = np.zeros_like(low), np.zeros_like(low), np.full_like(low, np.inf)
    for shrink in _SHRINKS_4:
        # Codes minus 7.5, so that sums stay small and exact.
        codes = np.clip(np.floor(centred * _inverse(width * np.float32(shrink / 15))), -8, 7) + np.float32(
            0.5
        )
        total, powers, products = codes.sum(0), (codes * codes).sum(0), (codes * centred).sum(0)
        spread = powers * BLOCK - total * total
        scale = (products * BLOCK - total * sums) * _inverse(spread)
        shift = (sums - scale * total) / BLOCK
        error = squares - scale * products - shift * sums
        better = error < least
        best, offset, least = (
            np.where(better, scale, best),
            np.where(better, shift, offset),
            np.where(better, error, least),
        )
    scale, fine = _half(best)
    minimum, also = _half(middle + offset - np.float32(7.5) * scale)
    codes = np.clip(np.rint((x - minimum) * _inverse(scale)), 0, 15).astype(np.uint8)
    out[:, :2], out[:, 2:4] = _fp16_bytes(scale), _fp16_bytes(minimum)
    out[:, 4:] = (codes[:16] | codes[16:] << np.uint8(4)).T
    return fine and also and bool(np.isfinite(squares).all())


_KINDS: dict[str, tuple[str, int, Callable[[Floats, Bytes], bool]]] = {
    "q8": ("Q8_0", 34, _encode_8),
    "q6": ("GROUPED6_32", BLOCK + 6, _encode_6),
    "q4": ("Q4_1", 20, _encode_4),
}
KINDS = tuple(_KINDS)
"""The kinds of `quantise`."""
