"""Matrices of 4-bit floats (E2M1) under the names of several tools; two neighbours share a byte, low first.

MXFP4 has a power of two for 32 inputs: `X.weight` int8 or uint8 (N, K / 2) with `X.scale` (DeepSeek V4) or
`X.weight_scale` (N, K / 32), F8_E8M0 or its byte; in compressed-tensors the matrix is `X.weight_packed`, and
may be of 6 bits (`mxfp6`).
NVFP4 has an F8_E4M3 `X.weight_scale` (N, K / 16) for 16 inputs and one float32 number for the matrix:
`X.weight_scale_2`, by which scales are multiplied (ModelOpt), or, beside `X.weight_packed`,
`X.weight_global_scale`, by which they are divided (compressed-tensors). ModelOpt's AWQ multiplies the
inputs of some matrices by `X.pre_quant_scale` (K,), which is as good as multiplying the matrix's columns.
Stacks of experts `X` have `X_weight_scale` and `X_weight_scale_2`, of one number or one for each expert;
those of Inkling 2 Mini `X_scale`, `X_amax` and `X_outer_scale_denominator`, whose quotient multiplies scales.
Matrices of whole blocks of 64 inputs and without such factors become types that backends pack. Sources:
transformers, `integrations/finegrained_fp8.py`; the compressed-tensors package's `nvfp4` and `mxfp4`
compressors; ModelOpt's `nvfp4_tensor.py` (facts only).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from engine.backends.gguf_blocks.quants import NVFP4_PAIRS
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.decoded import DecodedMatrix, PackedStack
from engine.weights.packed.fp8 import scale_of, wrap_fp8
from engine.weights.packed.grouped import Indices, Recent
from engine.weights.packed.modelopt_int4 import split_int4
from engine.weights.packed.mxfp4 import Mxfp4Tensor
from engine.weights.packed.mxfp6 import GROUP_BYTES, mxfp6_matrix
from engine.weights.packed.packed_tensors import SCALES, Matrix
from engine.weights.tensor import FileTensor
from engine.weights.transform.transposed import Transposed
from engine.words import _

_LEVELS: Floats = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
_PAIRS: Floats = np.stack([_LEVELS[np.arange(256) & 15], _LEVELS[np.arange(256) >> 4]], axis=1)
"""The two values of each byte, float32 (256, 2)."""
_CODES = ("U8", "I8", "I32", "U32")
_GLOBAL = ("weight_scale_2", "weight_global_scale")
_QUOTIENT = ("amax", "outer_scale_denominator")
_INPUTS = "pre_quant_scale"
_FURTHER = (*_GLOBAL, *_QUOTIENT, _INPUTS, "input_global_scale", "input_scale")
"""What may be beside codes and scales; the last two, of activations, are not used."""


def wrap_floats(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each matrix of 4-bit or 8-bit floats, or of ModelOpt's 4-bit integers, and its scales
    as one tensor X.weight; other tensors are unchanged.

    `settings` is the quantization_config; the tensors tell what they are. Raises `BadCheckpoint` and
    `UnsupportedModel`.
    """
    out, rest = split_float4(tensors)
    integers, rest = split_int4(rest)
    for name, tensor in rest.items():
        if name.endswith(".weight") and tensor.type in _CODES and len(tensor.shape) == 2:
            raise UnsupportedModel(
                _(
                    "The tensor {name} is {type} of shape {shape}, as {algorithm!r} packs it, which cannot "
                    "be read; choose an FP8, MXFP4, NVFP4 or GGUF variant of this model.",
                    name=name,
                    type=tensor.type,
                    shape=tensor.shape,
                    algorithm=str(settings.get("quant_algo") or settings.get("quant_method"))[:40],
                )
            )
    return out | integers | wrap_fp8(rest, settings)


def split_float4(
    tensors: Mapping[str, FileTensor], six_bits: bool = False
) -> tuple[dict[str, RawTensor], dict[str, FileTensor]]:
    """The matrices of 4-bit floats, each as one tensor X.weight, and the other tensors. With `six_bits` there
    may be some of MXFP6, too.

    Raises `BadCheckpoint`.
    """
    microscaled = _four_or_six if six_bits else mxfp4_matrix
    recent, out, own = Recent(), dict[str, RawTensor](), set[str]()
    for name, tensor in tensors.items():
        module = name.endswith((".weight", ".weight_packed"))
        if tensor.type not in ("U8", "I8") or not (module or len(tensor.shape) == 3):
            continue
        stem, end = (name.rsplit(".", 1)[0], ".") if module else (name, "_")
        scale = scale_of(stem + ".weight" if module else stem, tensors)
        if scale is None or scale.type not in ("F8_E4M3", "F8_E8M0"):
            continue
        matrix = Matrix(stem, tensors, recent)
        if len(tensor.shape) == 3:
            factors = _factors(stem + end, tensor, tensors)
            out[stem + ".weight"] = _stack(stem, tensor, scale, factors, recent, microscaled)
        elif scale.type == "F8_E8M0":
            out[stem + ".weight"] = microscaled(stem + ".weight", tensor, scale)
        else:
            out[stem + ".weight"] = nvfp4_matrix(stem + ".weight", tensor, scale, matrix)
        own |= {name, scale.name, *(f"{stem}{end}{part}" for part in _FURTHER)}
    return out, {name: tensor for name, tensor in tensors.items() if name not in own}


def _factors(begin: str, numbers: FileTensor, tensors: Mapping[str, FileTensor]) -> dict[str, FileTensor]:
    """A stack's further factors by their part of the name."""
    parts = (_GLOBAL[numbers.name.endswith(".weight_packed")], *_QUOTIENT, _INPUTS)
    return {part: tensors[begin + part] for part in parts if begin + part in tensors}


def _stack(
    stem: str, numbers: FileTensor, scale: FileTensor, factors: Mapping[str, FileTensor], recent: Recent,
    microscaled: Callable[[str, RawTensor, RawTensor], RawTensor],
) -> RawTensor:  # fmt: skip
    """A stack (X, N, K) of bytes (X, N, K / 2), or transposed (X, K / 2, N) as ModelOpt has Llama 4's.
    `factors` are those of each expert or of all.
    """
    name, group_bytes = stem + ".weight", 16 if scale.type == "F8_E8M0" else 8
    if len(scale.shape) != 3 or not numbers.shape[0] == scale.shape[0] > 0:
        raise _unfit(numbers, scale, group_bytes)
    flipped = numbers.shape[1:] == (group_bytes * scale.shape[1], scale.shape[2])

    def part(i: int) -> RawTensor:
        codes: RawTensor = Transposed(numbers.part(i)) if flipped else numbers.part(i)
        scales: RawTensor = Transposed(scale.part(i)) if flipped else scale.part(i)
        if scale.type == "F8_E8M0":
            return microscaled(name, codes, scales)
        each = f"{stem}.{i}"
        own = {
            f"{each}.{end}": factor.part(i) if factor.shape[:1] == numbers.shape[:1] else factor
            for end, factor in factors.items()
        }
        return nvfp4_matrix(name, codes, scales, Matrix(each, own, recent))

    nbytes = numbers.nbytes + scale.nbytes + sum(factor.nbytes for factor in factors.values())
    return PackedStack(name, numbers.shape[0], nbytes, part)


def _four_or_six(name: str, numbers: RawTensor, scale: RawTensor) -> RawTensor:
    """MXFP6 where a matrix has as many bytes, else MXFP4. Raises `BadCheckpoint`."""
    if len(scale.shape) == 2 and numbers.shape == (scale.shape[0], GROUP_BYTES * scale.shape[1]):
        return mxfp6_matrix(name, numbers, scale)
    return mxfp4_matrix(name, numbers, scale)


def mxfp4_matrix(name: str, numbers: RawTensor, scale: RawTensor) -> RawTensor:
    """The bytes (..., K / 2) with the powers of two (..., K / 32). Raises `BadCheckpoint`."""
    _check(numbers, scale, 16)
    return Mxfp4Tensor(name, numbers, scale)


def nvfp4_matrix(name: str, numbers: RawTensor, scale: RawTensor, matrix: Matrix | None = None) -> RawTensor:
    """The bytes (N, K / 2) with the scales (N, K / 16), and with the number (or the two) and the inputs'
    factors that `matrix` has beside them. Raises `BadCheckpoint`.
    """
    _check(numbers, scale, 8)
    if len(numbers.shape) != 2:
        raise _unfit(numbers, scale, 8)
    shape, nbytes = (numbers.shape[0], 2 * numbers.shape[1]), numbers.nbytes + scale.nbytes
    divided = numbers.name.endswith(".weight_packed")
    if matrix is not None:
        _check_factors(matrix, _GLOBAL[divided], shape)
        nbytes += matrix.nbytes((_GLOBAL[divided], *_QUOTIENT, _INPUTS))

    def decode(outputs: Indices) -> Floats:
        scales = scale.take(outputs).dequantise()
        if matrix is not None:
            factor = _factor(matrix, divided)
            factor = factor[outputs * factor.size // shape[0], None]
            scales = scales / factor if divided else scales * factor
        pairs = _PAIRS[numbers.take(outputs).data]
        values: Floats = (pairs.reshape(*scales.shape, 16) * scales[:, :, None]).reshape(outputs.size, -1)
        if matrix is not None and matrix.find(_INPUTS) is not None:
            values *= matrix.floats(_INPUTS)
        return values

    if shape[1] % NVFP4_PAIRS.values or (matrix is not None and matrix.find(_INPUTS) is not None):
        return DecodedMatrix(name, "NVFP4", shape, nbytes, decode)

    def blocks(outputs: Indices) -> Bytes:
        halves = np.full((outputs.size, 1), 0.5, np.float32)
        if matrix is not None:
            factor = _factor(matrix, divided)[:, None]
            factor = factor[outputs * len(factor) // shape[0]]
            halves = halves / factor if divided else halves * factor
        out = np.empty((outputs.size, shape[1] // NVFP4_PAIRS.values, NVFP4_PAIRS.nbytes), np.uint8)
        out[:, :, :4] = halves.view(np.uint8)[:, None]
        out[:, :, 4:8] = scale.take(outputs).data.reshape(outputs.size, -1, 4)
        out[:, :, 8:] = numbers.take(outputs).data.reshape(outputs.size, -1, 32)
        return out.reshape(-1)

    return DecodedMatrix(name, NVFP4_PAIRS.name, shape, nbytes, decode, blocks)


def _factor(matrix: Matrix, divided: bool) -> Floats:
    """The number of a matrix, or its two."""
    if matrix.find(_QUOTIENT[0]) is None:
        return matrix.floats(_GLOBAL[divided]).reshape(-1)
    amax, denominator = (matrix.floats(part).reshape(-1) for part in _QUOTIENT)
    return amax / denominator


def _check_factors(matrix: Matrix, part: str, shape: tuple[int, int]) -> None:
    """Raise `BadCheckpoint` unless the matrix has as `part` one number, or one for each half of its rows (a
    gate's and the other's), and as many factors as inputs.
    """
    quotient = matrix.find(_QUOTIENT[0]) is not None
    for each in _QUOTIENT if quotient else (part,):
        found = matrix.find(each)
        types = SCALES if quotient else ("F32",)
        count = prod(matrix.get(each, types, 1 if found is None else len(found.shape)).shape)
        if count not in ((1,) if quotient else (1, 2)) or shape[0] % count:
            raise matrix.wrong(each, _("one number"))
    if matrix.find(_INPUTS) is not None:
        matrix.get(_INPUTS, SCALES, 1)
        matrix.check(_INPUTS, (shape[1],))


def _check(numbers: RawTensor, scale: RawTensor, group_bytes: int) -> None:
    expected = (*scale.shape[:-1], group_bytes * scale.shape[-1]) if scale.shape else ()
    if len(numbers.shape) not in (2, 3) or numbers.shape != expected:
        raise _unfit(numbers, scale, group_bytes)


def _unfit(numbers: RawTensor, scale: RawTensor, group_bytes: int) -> BadCheckpoint:
    return BadCheckpoint(
        _(
            "The tensors {numbers} of shape {shape} and {scale} of shape {shape_2} do not belong together; "
            "a matrix of 4-bit floats with one scale for {inputs} inputs was expected. Download the model "
            "again.",
            numbers=numbers.name,
            shape=numbers.shape,
            scale=scale.name,
            shape_2=scale.shape,
            inputs=2 * group_bytes,
        )
    )
