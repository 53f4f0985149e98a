"""Quantises plain weights while they are loaded, to 8, 6 or 4 bits in blocks of 32 inputs.

"q8" gives Q8_0: code * d with d = largest magnitude / 127. "q6" gives GROUPED6_32: (code - zero) * d with an
integer zero. "q4" gives Q4_1: code * d + m. For q6 and q4 several ranges are tried: codes are rounded to the
nearest, then d (and m) solved for by least squares, and the smallest squared error wins; compiled code does
that (`quantize_kernels`). Nothing is read before `data` or `dequantise`; type and sizes come from the header.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.errors import BadCheckpoint
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.tensor import find_format
from engine.weights.transform.quantize_kernels import BLOCK, kernel
from engine.words import _

PLAIN = ("F32", "F16", "BF16", "EXL3", "AQLM", "VPTQ")
"""Types that are quantised, since backends hold them in 16 bits or more; others are unchanged."""


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
        blocks = np.ascontiguousarray(self._source.dequantise()).reshape(-1, BLOCK)
        out = np.empty((len(blocks), self._block_bytes), np.uint8)
        with np.errstate(all="ignore"):  # the error is raised below
            if not self._encode(blocks, out):
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


def _encode_8(blocks: Floats, out: Bytes) -> bool:
    """Blocks (n, 32) to Q8_0: d, 32 int8."""
    (largest,) = _new(1, blocks)
    kernel("largest")(blocks, largest)
    scale, fine = _half(largest / np.float32(127))
    if fine:
        kernel("codes_8")(blocks, _inverse(scale), out)
        out[:, :2] = _fp16_bytes(scale)
    return fine


def _encode_6(blocks: Floats, out: Bytes) -> bool:
    """Blocks (n, 32) to 32 codes, a float32 d and an int16 zero."""
    best, zero, squares = _new(3, blocks)
    kernel("search_6")(blocks, best, zero, squares)
    scale, fine = _half(best)
    fine = fine and bool(np.isfinite(squares).all())
    if fine:
        kernel("codes_6")(blocks, _inverse(scale), zero, out)
        out[:, BLOCK : BLOCK + 4] = scale[:, None].view(np.uint8)
        out[:, BLOCK + 4 :] = zero.astype("<i2")[:, None].view(np.uint8)
    return fine


def _encode_4(blocks: Floats, out: Bytes) -> bool:
    """Blocks (n, 32) to Q4_1: d, m, 16 bytes of code i (low) and i + 16."""
    best, offset, middle, squares = _new(4, blocks)
    kernel("search_4")(blocks, best, offset, middle, squares)
    scale, fine = _half(best)
    minimum, also = _half(middle + offset - np.float32(7.5) * scale)
    fine = fine and also and bool(np.isfinite(squares).all())
    if fine:
        kernel("codes_4")(blocks, _inverse(scale), minimum, out)
        out[:, :2], out[:, 2:4] = _fp16_bytes(scale), _fp16_bytes(minimum)
    return fine


def _new(count: int, blocks: Floats) -> list[Floats]:
    """This many arrays of a number for each block."""
    return [np.empty(len(blocks), np.float32) for _unused in range(count)]


_KINDS: dict[str, tuple[str, int, Callable[[Floats, Bytes], bool]]] = {
    "q8": ("Q8_0", 34, _encode_8),
    "q6": ("GROUPED6_32", BLOCK + 6, _encode_6),
    "q4": ("Q4_1", 20, _encode_4),
}
KINDS = tuple(_KINDS)
"""The kinds of `quantise`."""
