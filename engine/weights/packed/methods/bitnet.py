"""Ternary weights as BitNet b1.58 (arXiv 2402.17764) publishes them: uint8 `X.weight` (N / 4, K), and
`X.weight_scale` (1,), a number for the whole matrix.

Bit pair j of a byte in row r is row r + j N / 4 of the matrix, plus 1. Weights are these -1, 0 and 1 times
the scale if the settings name the class "autobitlinear", else divided by it. Matrices become tensors of
GGUF's type TQ2_0 where their columns make whole blocks, else of F32. Activations stay as they are: the 8 bits
that the authors round them to are not applied, as in other programs that run files of this model. Source:
transformers, `integrations/bitnet.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.tensor import FileTensor
from engine.words import _

_BLOCK, _SCALE = 256, "_scale"
Rows = npt.NDArray[np.int64]


class TernaryTensor:
    """A `RawTensor` (N, K) of type "TQ2_0" or "F32"; `order` (N,) selects rows of the packed matrix."""

    __slots__ = ("_order", "_packed", "_scale", "name", "shape", "type")

    def __init__(self, packed: FileTensor, scale: float, order: Rows) -> None:
        self.name, self._packed, self._scale, self._order = packed.name, packed, scale, order
        self.shape: tuple[int, ...] = (len(order), packed.shape[1])
        self.type = "F32" if packed.shape[1] % _BLOCK else "TQ2_0"

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.shape[0] * self.shape[1] // 4

    @property
    def data(self) -> Bytes:
        """Blocks of 64 bytes of bit pairs and a scale in fp16, or float32 values."""
        if self.type == "F32":
            return self.dequantise().reshape(-1).view(np.uint8)
        pairs = self._codes().reshape(-1, 2, 4, 32)
        out = np.empty((len(pairs), 66), np.uint8)
        joined = pairs[:, :, 0] | pairs[:, :, 1] << 2 | pairs[:, :, 2] << 4 | pairs[:, :, 3] << 6
        out[:, :64] = joined.reshape(-1, 64)
        out[:, 64:] = np.array([self._scale], "<f2").view(np.uint8)
        return out.reshape(-1)

    def _codes(self) -> npt.NDArray[np.uint8]:
        """0, 1 and 2, (N, K)."""
        rows = self._packed.shape[0]
        found: npt.NDArray[np.uint8] = self._packed.numbers()[self._order % rows]
        return found >> (2 * (self._order // rows)).astype(np.uint8)[:, None] & np.uint8(3)

    def dequantise(self) -> Floats:
        """All values, float32, in `shape`."""
        return (self._codes().astype(np.float32) - 1) * np.float32(self._scale)

    def part(self, index: int) -> TernaryTensor:
        raise AssertionError("these matrices are never stacked")

    def rows(self, start: int, stop: int) -> TernaryTensor:
        return TernaryTensor(self._packed, self._scale, self._order[start:stop])

    def take(self, indices: npt.ArrayLike) -> TernaryTensor:
        order = np.asarray(indices, np.int64).reshape(-1)
        return TernaryTensor(self._packed, self._scale, self._order[order])


def wrap_bitnet(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each packed matrix and its scale as one; others are unchanged.

    `settings` is the quantization_config. Raises `BadCheckpoint`, and `UnsupportedModel` for weights that
    each pass would make ternary and for norms in front of every matrix.
    """
    if settings.get("quantization_mode", "offline") != "offline" or settings.get("use_rms_norm"):
        raise UnsupportedModel(
            _(
                "The folder holds weights of BitNet that are not packed, or has norms in front of every "
                "matrix, which is not supported. Choose the packed variant or a GGUF file."
            )
        )
    multiplied = settings.get("linear_class") == "autobitlinear"
    out: dict[str, RawTensor] = {}
    for name, tensor in tensors.items():
        if tensor.type == "U8" and name.endswith(".weight"):
            out[name] = _joined(tensor, tensors.get(name + _SCALE), multiplied)
        elif not name.endswith(".weight" + _SCALE):
            out[name] = tensor
    return out


def _joined(packed: FileTensor, scale: FileTensor | None, multiplied: bool) -> TernaryTensor:
    known = scale is not None and scale.shape in ((), (1,))
    number = float(scale.dequantise().reshape(-1)[0]) if scale is not None and known else 0.0
    if len(packed.shape) != 2 or not np.isfinite(number) or number <= 0:
        raise BadCheckpoint(
            _(
                "The tensor {name} of shape {shape} is not a packed matrix with one positive scale. "
                "Download the model again.",
                name=packed.name,
                shape=packed.shape,
            )
        )
    return TernaryTensor(packed, number if multiplied else 1 / number, np.arange(4 * packed.shape[0]))
