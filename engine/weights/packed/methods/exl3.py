"""EXL3 folders (ExLlamaV3): trellis codes of 1 to 8 bits, and scales of the inputs and the outputs.

`X.trellis` int16 (K / 16, N / 16, 16 b) holds the tiles of 16 inputs x 16 outputs; `X.suh` (K,) and `X.svh`
(N,) are fp16, or in the first files `X.su` and `X.sv` int16, a bit for each sign, lowest first, 1 for -1. K
and N are multiples of 128: matrices of other sizes and their biases are padded. An int32 `X.mcg` or `X.mul1`,
the codebook's multiplier, names the codebook, which is "3inst" without one. Every matrix has its own number
of bits. The values are those of `engine.weights.packed.trellis`. Source: ExLlamaV3's loader (facts only).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from engine.errors import BadCheckpoint
from engine.tensors import RawTensor
from engine.weights.format import Floats
from engine.weights.packed.decoded import DecodedMatrix
from engine.weights.packed.grouped import Indices
from engine.weights.packed.packed_tensors import INTEGERS, Matrix, wrapped
from engine.weights.packed.padded import Padded, Shape
from engine.weights.packed.trellis import BLOCK, MULTIPLIERS, TILE, Words, decode_blocks
from engine.weights.tensor import FileTensor
from engine.words import _

_DIVIDED = ("laguna", "mistral4")
"""The `model_type`s of which the routed experts' up_proj is stored divided by `_DIVISOR`, so that activations
do not overflow in fp16.
"""
_DIVISOR = 128
_PARTS = ("trellis", "suh", "svh", "su", "sv", "mcg", "mul1")
_SHORT = ("I16", "U16")
_MOST_BITS = 8
_PANEL_BYTES = 32 << 20
"""Bytes of outputs read at a time: every 16 inputs are another run in the file."""


class _Source:
    """Decodes rows of one matrix."""

    def __init__(self, matrix: Matrix, words: FileTensor, bits: int, codebook: str, factor: float) -> None:
        """`words` (K / 16, N / 16 * 8 b) are the tiles as 32-bit words. All values are multiplied by
        `factor`.
        """
        self._matrix, self._words, self._bits, self._codebook = matrix, words, bits, codebook
        self._factor = np.float32(factor)

    def decode(self, columns: int, outputs: Indices) -> Floats:
        """The first `columns` of the rows `outputs`, float32. A block of 128 rows is decoded as a whole, and
        the last one is kept.
        """
        out = np.empty((outputs.size, columns), np.float32)
        blocks = outputs // BLOCK
        for block in np.unique(blocks).tolist():
            chosen = blocks == block
            out[chosen] = self._rows(block)[outputs[chosen] % BLOCK, :columns]
        return out

    def _rows(self, block: int) -> Floats:
        """The rows of a block, float32 (128, K)."""

        def read() -> tuple[int, Floats]:
            outputs = self._matrix.kept("outputs", partial(scales, self._matrix, "svh", "sv"))
            inputs = self._matrix.kept("inputs", partial(scales, self._matrix, "suh", "su"))
            some = outputs[block * BLOCK : (block + 1) * BLOCK] * self._factor
            return block, decode_blocks(self._tiles(block), self._codebook, inputs, some)

        rows: Floats = self._matrix.kept("rows", read, lambda kept: bool(kept[0] == block))[1]
        return rows

    def _tiles(self, block: int) -> Words:
        """The tiles of a block of outputs: (K / 16, 8, 8 b)."""
        width = BLOCK // TILE * 8 * self._bits
        start, total = block * width, self._words.shape[1]
        some = max(1, _PANEL_BYTES // (4 * self._words.shape[0] * width)) * width

        def read() -> tuple[int, Words]:
            return start, self._words.columns(start, min(start + some, total)).view(np.uint32)

        first, panel = self._matrix.kept(
            "tiles", read, lambda kept: bool(kept[0] <= start and start + width <= kept[0] + kept[1].shape[1])
        )
        tiles = np.ascontiguousarray(panel[:, start - first : start - first + width])
        return tiles.reshape(-1, BLOCK // TILE, 8 * self._bits)


def scales(matrix: Matrix, part: str, signs: str) -> Floats:
    """The scales of a matrix's inputs or outputs, float32: `part`, or else the bits of `signs`."""
    if matrix.find(part) is not None:
        return matrix.floats(part)
    words = matrix.get(signs, _SHORT, 1).numbers().view(np.uint8)
    return np.float32(1) - np.float32(2) * np.unpackbits(words, bitorder="little").astype(np.float32)


def wrap_exl3(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each quantised matrix as one `Padded` tensor X.weight, and its bias as another; other
    tensors are unchanged.

    Of the settings, only "model_types" counts. Raises `BadCheckpoint`.
    """
    divided = any(kind in _DIVIDED for kind in settings.get("model_types", ()))
    out = wrapped(tensors, _PARTS, partial(_tensor, divided))
    for name, tensor in tensors.items():
        if name.endswith(".bias") and isinstance(out.get(name.removesuffix("bias") + "weight"), Padded):
            out[name] = Padded(tensor, BLOCK, partial(_first, tensor))
    return out


def _first(tensor: FileTensor, shape: Shape) -> RawTensor:
    return tensor.rows(0, shape[0])


def _tensor(divided: bool, matrix: Matrix) -> RawTensor:
    trellis = matrix.get("trellis", _SHORT, 3)
    rows, columns, width = TILE * trellis.shape[1], TILE * trellis.shape[0], trellis.shape[2]
    bits = width // TILE
    if width % TILE or not 1 <= bits <= _MOST_BITS or rows % BLOCK or columns % BLOCK or not trellis.nbytes:
        raise matrix.wrong(
            "trellis", _("tiles of 1 to {bits} bits in whole blocks of {block}", bits=_MOST_BITS, block=BLOCK)
        )
    for part, signs, size in (("suh", "su", columns), ("svh", "sv", rows)):
        if matrix.find(signs) is None or matrix.find(part) is not None:
            matrix.get(part, ("F16",), 1)
            matrix.check(part, (size,))
        else:
            matrix.get(signs, _SHORT, 1)
            matrix.check(signs, (size // 16,))
    words = trellis.retyped(trellis.name, "I32", (trellis.shape[0], trellis.shape[1] * width // 2))
    factor = _DIVISOR if divided and ".experts." in matrix.stem and matrix.stem.endswith(".up_proj") else 1
    source = _Source(matrix, words, bits, _codebook(matrix), factor)
    name, nbytes = matrix.stem + ".weight", matrix.nbytes(_PARTS)

    def cut(shape: Shape) -> RawTensor:
        kept_rows, kept_columns = shape
        return DecodedMatrix(
            name, "EXL3", (kept_rows, kept_columns), nbytes, partial(source.decode, kept_columns)
        )

    return Padded(cut((rows, columns)), BLOCK, cut)


def _codebook(matrix: Matrix) -> str:
    """The codebook's name, from the tensor with its multiplier."""
    for name in ("mcg", "mul1"):
        tensor = matrix.find(name)
        if tensor is not None:
            found = matrix.get(name, INTEGERS, len(tensor.shape)).numbers().view(np.uint32).reshape(-1)
            if found.size != 1 or found[0] != MULTIPLIERS[name]:
                raise BadCheckpoint(
                    _(
                        "The tensor {tensor} holds {found}; the codebook's multiplier {multiplier} was "
                        "expected. Download the model again.",
                        tensor=tensor.name,
                        found=found[:3].tolist(),
                        multiplier=MULTIPLIERS[name],
                    )
                )
            return name
    return "3inst"
