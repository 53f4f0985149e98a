"""Weights in MXFP4, as in GPT-OSS: uint8 X_blocks (..., N, K / 32, 16), X_scales (..., N, K / 32).

Byte i of a block holds the values 2 i (low nibble) and 2 i + 1; a scale is the exponent e of 2^(e - 127).
They become tensors X of GGUF's type MXFP4. Source: the OCP Microscaling Formats specification 1.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import BadCheckpoint
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.tensor import FileTensor, find_format
from engine.words import _

_BLOCKS, _SCALES = "_blocks", "_scales"


class Mxfp4Tensor:
    """A `RawTensor` of type "MXFP4", (X, N, K) or (N, K); each access to `data` converts to GGUF's order.

    `blocks` is (..., K / 32, 16) or (..., K / 2).
    """

    type = "MXFP4"
    __slots__ = ("_blocks", "_scales", "name", "shape")

    def __init__(self, name: str, blocks: RawTensor, scales: RawTensor) -> None:
        self.name, self._blocks, self._scales = name, blocks, scales
        self.shape: tuple[int, ...] = (*scales.shape[:-1], 32 * scales.shape[-1])

    @property
    def nbytes(self) -> int:
        """Bytes in the file, scales included."""
        return self._blocks.nbytes + self._scales.nbytes

    @property
    def data(self) -> Bytes:
        """Blocks of 17 bytes: the scale, then bytes that hold the values i (low nibble) and i + 16."""
        packed = self._blocks.data.reshape(-1, 16)
        out = np.empty((packed.shape[0], 17), np.uint8)
        out[:, 0] = self._scales.data
        out[:, 1::2] = packed[:, :8] & 15 | packed[:, 8:] << 4
        out[:, 2::2] = packed[:, :8] >> 4 | packed[:, 8:] & 240
        out.flags.writeable = False
        return out.reshape(-1)

    def dequantise(self) -> Floats:
        """All values, float32, in `shape`."""
        format = find_format(self.type)
        assert format is not None
        if len(self.shape) == 2:
            return format.dequantise(self.data, self.shape)
        out = np.empty(self.shape, np.float32)
        for index in range(self.shape[0]):
            out[index] = self.part(index).dequantise()
        return out

    def part(self, index: int) -> Mxfp4Tensor:
        return Mxfp4Tensor(self.name, self._blocks.part(index), self._scales.part(index))

    def rows(self, start: int, stop: int) -> Mxfp4Tensor:
        return Mxfp4Tensor(self.name, self._blocks.rows(start, stop), self._scales.rows(start, stop))

    def take(self, indices: npt.ArrayLike) -> Mxfp4Tensor:
        return Mxfp4Tensor(self.name, self._blocks.take(indices), self._scales.take(indices))


def wrap_mxfp4(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with blocks and scales joined to one; others are unchanged. Raises `BadCheckpoint`."""
    out: dict[str, RawTensor] = {}
    for name, tensor in tensors.items():
        stem = name.removesuffix(_BLOCKS)
        if stem != name and tensor.type == "U8":
            out[stem] = _pair(stem, tensor, tensors.get(stem + _SCALES))
        elif name.removesuffix(_SCALES) + _BLOCKS not in tensors or not name.endswith(_SCALES):
            out[name] = tensor
    return out


def _pair(stem: str, blocks: FileTensor, scales: FileTensor | None) -> Mxfp4Tensor:
    if scales is None:
        raise BadCheckpoint(
            _(
                "The tensor {blocks} has no scales; {stem}{scales} was expected beside it. "
                "Download the model again.",
                blocks=blocks.name,
                stem=stem,
                scales=_SCALES,
            )
        )
    if (
        len(blocks.shape) not in (3, 4)
        or blocks.shape[-1] != 16
        or scales.type != "U8"
        or scales.shape != blocks.shape[:-1]
    ):
        raise BadCheckpoint(
            _(
                "The tensors {blocks} of shape {shape} and {scales} of {type} {shape_2} do not "
                "belong together; blocks of 16 bytes with one scale each were expected. Download "
                "the model again.",
                blocks=blocks.name,
                shape=blocks.shape,
                scales=scales.name,
                type=scales.type,
                shape_2=scales.shape,
            )
        )
    return Mxfp4Tensor(stem, blocks, scales)
