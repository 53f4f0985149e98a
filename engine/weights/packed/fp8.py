"""Weights in 8-bit floats: value = number * scale, with a scale for a tensor, a row, or a block.

Layouts: `X.weight` (N, K) F8_E4M3 or F8_E5M2 with `X.weight_scale_inv` (N / 128, K / 128) float32, rounded
up, as DeepSeek-V3 and Qwen3 publish them, or with `X.weight_scale` of shape (), (1,), (N,) or (N, 1), float32
or bf16, as in compressed-tensors, FBGEMM and ModelOpt. A scale may be a power of two (F8_E8M0, or its byte as
U8), as in DeepSeek V4 (`X.scale`) and MXFP8 (blocks of 1 x 32). Scales of activations and of the cache are
not used. Source: transformers, `integrations/finegrained_fp8.py`, and the OCP Microscaling Formats 1.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import BadCheckpoint
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.grouped import one_matrix
from engine.weights.tensor import FileTensor
from engine.weights.transform.transposed import Transposed
from engine.words import _

_TYPES = ("F8_E4M3", "F8_E5M2")
_SCALES = ("weight_scale_inv", "weight_scale", "scale", "qscale_weight")
_STACK_SCALES = ("_scale_inv", "_scale", "_weight_scale_inv", "_weight_scale")
_UNUSED = (
    "qscale_act", "input_scale", "activation_scale", "output_scale", "input_scale_ub", "k_scale", "v_scale",
    "q_scale", "kv_scale", "prob_scale",
)  # fmt: skip
_DEFAULT_BLOCK = (128, 128)
_CHUNK_VALUES = 1 << 20


class Fp8Tensor:
    """A `RawTensor` of type "F8_E4M3" or "F8_E5M2": `data` holds the numbers, a byte each, without scales.

    Row n, column k has the scale `row_scales()[n, k // block_columns]`.
    """

    __slots__ = ("_scale", "_scale_rows", "_values", "block_columns", "name", "shape", "type")

    def __init__(
        self,
        values: RawTensor,
        scale: RawTensor | None,
        scale_rows: npt.NDArray[np.int64],
        block_columns: int,
    ) -> None:
        """`scale_rows` (N,) gives each row's row in `scale` as a matrix; all matrices of a stack share it."""
        self.name, self.type, self.shape = values.name, values.type, values.shape
        self._values, self._scale = values, scale
        self._scale_rows, self.block_columns = scale_rows, block_columns

    @property
    def nbytes(self) -> int:
        """Bytes in the file, without the scales."""
        return self._values.nbytes

    @property
    def data(self) -> Bytes:
        return self._values.data

    def row_scales(self) -> Floats:
        """The scales of a matrix's rows: float32 (N, blocks of columns)."""
        if self._scale is None:
            return np.ones((self.shape[0], 1), np.float32)
        scales = self._scale.dequantise()
        matrix = scales.reshape(scales.shape[0] if scales.ndim else 1, -1)
        return matrix[self._scale_rows]

    def dequantise(self) -> Floats:
        """All values, float32, in `shape`."""
        out = np.empty(self.shape, np.float32)
        if len(self.shape) == 3:
            for index in range(self.shape[0]):
                out[index] = self.part(index).dequantise()
            return out
        scales = self.row_scales()
        step = max(1, _CHUNK_VALUES // max(1, self.shape[1]))
        # A NaN in a scale is kept without a warning.
        with np.errstate(invalid="ignore", over="ignore"):
            for first in range(0, self.shape[0], step):
                last = min(first + step, self.shape[0])
                some = self._values.rows(first, last).dequantise()
                for block in range(scales.shape[1]):
                    columns = slice(block * self.block_columns, (block + 1) * self.block_columns)
                    np.multiply(
                        some[:, columns], scales[first:last, block : block + 1], out=out[first:last, columns]
                    )
        return out

    def in_blocks(self) -> RawTensor:
        """The matrix with its scales in blocks, as backends pack it; itself if that is impossible."""
        return fp8_blocks(self)

    def transposed(self) -> Fp8Tensor:
        """The matrix (K, N) as (N, K)."""
        rows, columns = self.shape
        values, scale = Transposed(self._values), self._scale
        if scale is None or scale.shape in ((), (1,), (1, 1)):
            return Fp8Tensor(values, scale, np.zeros(columns, np.int64), rows)
        if isinstance(scale, FileTensor) and len(scale.shape) == 1:
            scale = scale.retyped(scale.name, scale.type, (*scale.shape, 1))
        shared = int(np.count_nonzero(self._scale_rows == 0))
        return Fp8Tensor(values, Transposed(scale), np.arange(columns) // self.block_columns, shared)

    def part(self, index: int) -> Fp8Tensor:
        scale = self._scale
        if scale is not None and len(scale.shape) > 0 and scale.shape[0] == self.shape[0]:
            scale = scale.part(index)
        return Fp8Tensor(self._values.part(index), scale, self._scale_rows, self.block_columns)

    def rows(self, start: int, stop: int) -> Fp8Tensor:
        return self._some(self._values.rows(start, stop), slice(start, stop))

    def take(self, indices: npt.ArrayLike) -> Fp8Tensor:
        order = np.asarray(indices, np.int64).reshape(-1)
        return self._some(self._values.take(order), order)

    def _some(self, values: RawTensor, which: slice | npt.NDArray[np.int64]) -> Fp8Tensor:
        if len(self.shape) == 2:
            return Fp8Tensor(values, self._scale, self._scale_rows[which], self.block_columns)
        scale = self._scale
        if scale is not None and scale.shape and scale.shape[0] == self.shape[0]:
            scale = scale.take(np.arange(self.shape[0])[which])
        return Fp8Tensor(values, scale, self._scale_rows, self.block_columns)


def wrap_fp8(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each 8-bit float matrix and its scales as one tensor; other tensors are unchanged.

    `settings` is the quantization_config. Raises `BadCheckpoint`.
    """
    block = _block(settings)
    out: dict[str, RawTensor] = {}
    used: set[str] = set()
    for name, tensor in tensors.items():
        if tensor.type in _TYPES and len(tensor.shape) in (2, 3):
            scale = scale_of(name, tensors)
            if scale is not None:
                used.add(scale.name)
            beside = tensors.get(f"{name.removesuffix('down_proj')}gate_up_proj_scale")
            out[name] = fp8_matrix(tensor, _of_columns(tensor, scale, beside), block)
        else:
            out[name] = tensor
    return {
        name: each
        for name, each in out.items()
        if name not in used and name.rsplit(".", 1)[-1] not in _UNUSED
    }


def _of_columns(stack: FileTensor, scale: FileTensor | None, beside: FileTensor | None) -> FileTensor | None:
    """FBGEMM's scales (X, N, 1) of a stack (X, K, N) as (X, 1, N); others unchanged. Where K and N are equal,
    those of the fused stack `beside` tell.
    """
    if scale is None or len(stack.shape) != 3:
        return scale
    if stack.shape[1] == stack.shape[2] and (beside is None or beside.shape[1:2] != (1,)):
        return scale
    if scale.shape != (stack.shape[0], stack.shape[2], 1):
        return scale
    return scale.retyped(scale.name, scale.type, (stack.shape[0], 1, stack.shape[2]))


def scale_of(name: str, tensors: Mapping[str, FileTensor]) -> FileTensor | None:
    """The scales of the matrix `name`, where bytes are exponents as powers of two; None if there are none."""
    stem = name.removesuffix("weight")
    names = [stem + part for part in _SCALES] if stem != name else []
    names += [name + suffix for suffix in _STACK_SCALES]
    scale = next((tensors[each] for each in names if each in tensors), None)
    if scale is None or scale.type != "U8":
        return scale
    return scale.retyped(scale.name, "F8_E8M0", scale.shape)


def _block(settings: Mapping[str, Any]) -> tuple[int, int]:
    sizes = settings.get("weight_block_size")
    if sizes is None:
        return _DEFAULT_BLOCK
    if (
        not isinstance(sizes, list)
        or len(sizes) != 2
        or not all(type(size) is int and 0 < size <= 1 << 20 for size in sizes)
    ):
        raise BadCheckpoint(
            _(
                "config.json: weight_block_size is {sizes}; two sizes such as [128, 128] were expected.",
                sizes=str(sizes)[:40],
            )
        )
    return sizes[0], sizes[1]


def fp8_matrix(tensor: FileTensor, scale: FileTensor | None, block: tuple[int, int]) -> Fp8Tensor:
    """The numbers with their scales, which may belong to blocks of this size. Raises `BadCheckpoint`."""
    rows, columns = tensor.shape[-2:]
    zeros = np.zeros(rows, np.int64)
    if scale is None or scale.shape in ((), (1,), (1, 1)):
        return Fp8Tensor(tensor, scale, zeros, columns)
    shape = scale.shape
    if len(tensor.shape) == 3 and shape[0] == tensor.shape[0]:
        shape = shape[1:]
    if shape in ((), (1,), (1, 1)):
        return Fp8Tensor(tensor, scale, zeros, columns)
    if shape in ((rows,), (rows, 1)):
        return Fp8Tensor(tensor, scale, np.arange(rows), columns)
    if shape == (-(-rows // block[0]), -(-columns // block[1])):
        return Fp8Tensor(tensor, scale, np.arange(rows) // block[0], block[1])
    if len(shape) == 2 and all(shape) and not (rows % shape[0] or columns % shape[1]):
        return Fp8Tensor(tensor, scale, np.arange(rows) // (rows // shape[0]), columns // shape[1])
    raise BadCheckpoint(
        _(
            "The tensor {scale} has the shape {shape}, which is not a shape of scales for {tensor} "
            "of shape {shape_2} in blocks of {block} x {block_2}; the folder is damaged. Download "
            "it again.",
            scale=scale.name,
            shape=scale.shape,
            tensor=tensor.name,
            shape_2=tensor.shape,
            block=block[0],
            block_2=block[1],
        )
    )


# --- blocks that backends pack ------------------------------------------------------------------------------

UNITS = (128, 32)
"""Columns that share a scale in a block."""


def fp8_blocks(tensor: RawTensor) -> RawTensor:
    """A matrix of F8_E4M3 whose scales cover whole blocks as `Fp8Blocks`; any other tensor unchanged."""
    if not isinstance(tensor, Fp8Tensor) or tensor.type != "F8_E4M3" or len(tensor.shape) != 2:
        return tensor
    columns, shared = tensor.shape[1], tensor.block_columns
    unit = next(
        (
            unit
            for unit in UNITS
            if columns and columns % unit == 0 and (shared >= columns or shared % unit == 0)
        ),
        0,
    )
    return Fp8Blocks(tensor, unit) if unit else tensor


class Fp8Blocks:
    """A `RawTensor` of type "FP8_128" or "FP8_32": blocks of `unit` numbers and their float32 scale."""

    def __init__(self, source: Fp8Tensor, unit: int) -> None:
        self._source, self._unit = source, unit
        self.name, self.shape, self.type = source.name, source.shape, f"FP8_{unit}"

    @property
    def nbytes(self) -> int:
        return self._source.nbytes

    @property
    def data(self) -> Bytes:
        """The blocks, uint8, flat. Raises `BadCheckpoint` for NaN."""
        rows, columns = self.shape
        numbers = self._source.data.reshape(rows, columns)
        if ((numbers & np.uint8(0x7F)) == 0x7F).any():
            raise BadCheckpoint(
                _(
                    "The tensor {name} (F8_E4M3) holds something that is not a number. Download "
                    "the model again.",
                    name=self.name,
                )
            )
        out = np.empty((rows, columns // self._unit, self._unit + 4), np.uint8)
        out[:, :, : self._unit] = numbers.reshape(rows, -1, self._unit)
        firsts = np.arange(0, columns, self._unit) // self._source.block_columns
        out[:, :, self._unit :] = np.ascontiguousarray(self._source.row_scales()[:, firsts])[..., None].view(
            np.uint8
        )
        return out.reshape(-1)

    def dequantise(self) -> Floats:
        return self._source.dequantise()

    def part(self, index: int) -> RawTensor:
        """Raises `BadCheckpoint`: a matrix has no parts."""
        raise one_matrix(self.name)

    def rows(self, start: int, stop: int) -> Fp8Blocks:
        return Fp8Blocks(self._source.rows(start, stop), self._unit)

    def take(self, indices: npt.ArrayLike) -> Fp8Blocks:
        return Fp8Blocks(self._source.take(indices), self._unit)
