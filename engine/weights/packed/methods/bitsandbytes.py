"""bitsandbytes folders: 4-bit numbers of a table ("nf4", "fp4") with a scale for a block, or int8.

4 bits: `X.weight` uint8 (N K / 2, 1), two neighbours a byte, the first in the upper half;
`X.weight.quant_map` float32 (16,); `X.weight.absmax` float32 (blocks,), where blocks of 64, say, run through
the rows. If scales are quantised too, absmax is uint8 and a scale is
nested_quant_map[absmax] * nested_absmax[its block of 256] + nested_offset.
`X.weight.quant_state.bitsandbytes__nf4` holds shape and sizes as JSON. A value is quant_map[code] * scale.
int8: `X.weight` int8 (N, K) and `X.SCB` (N,); a value is code * SCB / 127.
Source: bitsandbytes, `functional.py` (`QuantState`, `int8_vectorwise_dequant`; facts only).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.decoded import DecodedMatrix
from engine.weights.packed.grouped import GroupedTensor, Indices, Layout, Recent, Zeros, runs_by_group
from engine.weights.packed.packed_tensors import Matrix, stems, whole
from engine.weights.safetensors.json import parse_object
from engine.weights.tensor import FileTensor
from engine.words import _

_STATE = "weight.quant_state.bitsandbytes__"
_KINDS = ("nf4", "fp4")
_STATES = tuple(_STATE + kind for kind in _KINDS)
_PARTS = (
    "weight", "weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map",
    *_STATES, "SCB", "weight_format",
)  # fmt: skip
_STORAGE = ("U8", "I8", "F16", "BF16", "F32")
_MOST_STATE_BYTES = _MOST_BLOCK = 1 << 16


def wrap_bitsandbytes(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each quantised matrix as one tensor X.weight; other tensors are unchanged.

    `settings` is the quantization_config; the tensors tell what they are. Raises `BadCheckpoint` and
    `UnsupportedModel`.
    """
    recent = Recent()
    # 4-bit codes may lie in numbers of any type (bnb_4bit_quant_storage)
    four = [name.removesuffix("." + end) for end in _STATES for name in tensors if name.endswith("." + end)]
    others = [stem for stem in stems(tensors, "weight") if tensors[stem + ".weight"].type in ("U8", "I8")]
    matrices = dict.fromkeys([*four, *others])
    own = {f"{stem}.{part}" for stem in matrices for part in _PARTS}
    out: dict[str, RawTensor] = {name: tensor for name, tensor in tensors.items() if name not in own}
    of_four = set(four)
    for stem in matrices:
        matrix = Matrix(stem, tensors, recent)
        eight = stem not in of_four and tensors[stem + ".weight"].type == "I8"
        out[stem + ".weight"] = _int8(matrix) if eight else _four_bits(matrix)
    return out


class _Int8:
    """A `Source`."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix

    def codes(self, outputs: Indices, start: int, stop: int) -> Bytes:
        return (self._matrix.byte_rows("weight", outputs) ^ np.uint8(0x80))[:, start:stop]

    def scales(self, outputs: Indices) -> Floats:
        return self._matrix.floats("SCB").reshape(-1, 1)[outputs] * np.float32(1 / 127)

    def zeros(self, outputs: Indices) -> Zeros:
        return np.full((outputs.size, 1), np.int16(128))


def _int8(matrix: Matrix) -> RawTensor:
    rows, columns = matrix.get("weight", ("I8",), 2).shape
    if matrix.get("SCB", ("F32",), 1).shape != (rows,):
        raise matrix.wrong("SCB", _("numbers of shape {shape}", shape=(rows,)))
    order = matrix.find("weight_format")
    if order is not None and (order.type != "U8" or order.nbytes != 1 or order.data[0] != 0):
        raise UnsupportedModel(
            _(
                "The tensor {stem}.weight is in an order of GPU tiles, which cannot be read; choose a "
                "variant of this model that a newer bitsandbytes saved, or a GGUF file.",
                stem=matrix.stem,
            )
        )
    runs, _unused = runs_by_group(np.zeros(columns, np.int64), 8)
    layout = Layout(
        columns, tuple(runs), None, False, matrix.nbytes(("weight", "SCB", "weight_format")), rows
    )
    return GroupedTensor(matrix.stem + ".weight", layout, _Int8(matrix))


def _four_bits(matrix: Matrix) -> RawTensor:
    kind, state = _state(matrix)
    shape, block = state.get("shape"), whole(state.get("blocksize"))
    if not (
        isinstance(shape, list) and len(shape) == 2 and all(type(size) is int and size > 0 for size in shape)
    ) or not (block and 0 < block <= _MOST_BLOCK):
        raise BadCheckpoint(
            _(
                "The tensor {stem}.{state} gives the shape {shape} and the block size {block}; two sizes and "
                "a number of values were expected. Download the model again.",
                stem=matrix.stem,
                state=_STATE + kind,
                shape=str(shape)[:40],
                block=str(state.get("blocksize"))[:40],
            )
        )
    rows, columns = shape
    packed = matrix.get("weight", _STORAGE, 2)
    if columns % 2 or packed.nbytes != rows * columns // 2:
        raise matrix.wrong("weight", _("4-bit codes of shape {shape}", shape=(rows, columns)))
    codes = packed.retyped(packed.name, "U8", (rows, columns // 2))
    scales = _scales(matrix, -(-rows * columns // block), state)
    if matrix.get("weight.quant_map", ("F32",), 1).shape != (16,):
        raise matrix.wrong("weight.quant_map", _("numbers of shape {shape}", shape=(16,)))

    def decode(outputs: Indices) -> Floats:
        table = matrix.floats("weight.quant_map")
        pairs = np.stack([table[np.arange(256) >> 4], table[np.arange(256) & 15]], axis=1)
        values: Floats = pairs[codes.take(outputs).data].reshape(outputs.size, columns)
        if columns % block == 0:
            own = scales().reshape(rows, -1)[outputs]
            return (values.reshape(*own.shape, block) * own[:, :, None]).reshape(values.shape)
        whole_rows: Floats = values * scales()[(outputs[:, None] * columns + np.arange(columns)) // block]
        return whole_rows

    return DecodedMatrix(
        matrix.stem + ".weight", kind.upper(), (rows, columns), matrix.nbytes(_PARTS), decode
    )


def _state(matrix: Matrix) -> tuple[str, dict[str, Any]]:
    """The kind of 4-bit numbers, and what the matrix's JSON says."""
    kind = next((kind for kind in _KINDS if matrix.find(_STATE + kind) is not None), _KINDS[0])
    tensor = matrix.get(_STATE + kind, ("U8",), 1)
    if tensor.nbytes > _MOST_STATE_BYTES:
        raise matrix.wrong(_STATE + kind, _("JSON of at most {size} bytes", size=_MOST_STATE_BYTES))
    return kind, parse_object(tensor.data.tobytes(), _("The tensor {name}", name=tensor.name))


def _scales(matrix: Matrix, count: int, state: Mapping[str, Any]) -> Callable[[], Floats]:
    """A function that returns the scales of all blocks, float32 (`count`,)."""
    absmax = matrix.get("weight.absmax", ("F32", "U8"), 1)
    matrix.check("weight.absmax", (count,))
    if absmax.type == "F32":
        return lambda: matrix.floats("weight.absmax")
    size, offset = whole(state.get("nested_blocksize")), state.get("nested_offset")
    if not (size and 0 < size <= _MOST_BLOCK) or not isinstance(offset, int | float):
        raise BadCheckpoint(
            _(
                "The scales of {stem}.weight are quantised, but its settings give the block size {size} "
                "and the offset {offset}; two numbers were expected. Download the model again.",
                stem=matrix.stem,
                size=str(size)[:40],
                offset=str(offset)[:40],
            )
        )
    for part, shape in (("weight.nested_quant_map", (256,)), ("weight.nested_absmax", (-(-count // size),))):
        if matrix.get(part, ("F32",), 1).shape != shape:
            raise matrix.wrong(part, _("numbers of shape {shape}", shape=shape))

    def nested() -> Floats:
        wide = np.repeat(matrix.floats("weight.nested_absmax"), size)[:count]
        return matrix.floats("weight.nested_quant_map")[absmax.data] * wide + np.float32(offset)

    return lambda: np.asarray(matrix.kept("scales", nested), np.float32)
