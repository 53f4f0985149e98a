"""Matrices of 6-bit floats (E2M3) with a power of two for 32 inputs, as compressed-tensors packs them.

`X.weight_packed` uint8 (N, 3 K / 4), four neighbours in three bytes, lowest bits first, the sign on top;
`X.weight_scale` (N, K / 32), F8_E8M0 or its byte. Eight times a value is a whole number up to 60, so that
backends pack them as integers. Sources: the compressed-tensors package's `mxfp6` compressor, and the OCP
Microscaling Formats 1.0 (facts only).
"""

from __future__ import annotations

import numpy as np

from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.grouped import GroupedTensor, Indices, Layout, Zeros, runs_by_group

GROUP_BYTES = 24
"""Bytes of the numbers that share a scale."""
_BITS, _GROUP = 8, 32
_EIGHTHS = np.concatenate([np.arange(8), *(np.arange(8, 16) << exponent for exponent in range(3))])
_CODES: Bytes = (128 + np.concatenate([_EIGHTHS, -_EIGHTHS])).astype(np.uint8)
"""Eight times the value of each 6-bit number, plus 128."""


class _Source:
    """A `Source`."""

    def __init__(self, numbers: RawTensor, scale: RawTensor) -> None:
        self._numbers, self._scale = numbers, scale

    def codes(self, outputs: Indices, start: int, stop: int) -> Bytes:
        triples = self._numbers.take(outputs).data.reshape(outputs.size, -1, 3).astype(np.uint32)
        words = triples[..., 0] | triples[..., 1] << 8 | triples[..., 2] << 16
        fours = words[..., None] >> np.arange(0, 24, 6, dtype=np.uint32) & 63
        codes: Bytes = _CODES[fours].reshape(outputs.size, -1)[:, start:stop]
        return codes

    def scales(self, outputs: Indices) -> Floats:
        return self._scale.take(outputs).dequantise() / np.float32(8)

    def zeros(self, outputs: Indices) -> Zeros:
        return np.full((outputs.size, self._scale.shape[1]), np.int16(128))


def mxfp6_matrix(name: str, numbers: RawTensor, scale: RawTensor) -> RawTensor:
    """The bytes (N, 3 K / 4) with the powers of two (N, K / 32), whose shapes belong together."""
    rows, columns = numbers.shape[0], _GROUP * scale.shape[1]
    runs, order = runs_by_group(np.arange(columns) // _GROUP, _BITS)
    nbytes = numbers.nbytes + scale.nbytes
    layout = Layout(columns, tuple(runs), order, False, nbytes, rows)
    return GroupedTensor(name, layout, _Source(numbers, scale))
