"""Random matrices of every weight format, made of file bytes as in a checkpoint, for `selftest`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.backends.gguf_blocks.quants import NVFP4_PAIRS
from engine.backends.packing.composite import PERMUTED
from engine.backends.packing.pieces import affine_type
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats, Format
from engine.weights.gguf.ik_types import as_packed
from engine.weights.gguf.table import GGUF_FORMATS, IK_FORMATS
from engine.weights.packed.affine import affine_matrix
from engine.weights.packed.float4 import wrap_floats
from engine.weights.packed.fp8 import wrap_fp8
from engine.weights.packed.grouped import GroupedTensor, Indices, Layout, Run, Zeros
from engine.weights.packed.methods.awq import wrap_awq
from engine.weights.packed.methods.compressed_tensors import wrap_compressed
from engine.weights.packed.methods.exl2 import wrap_exl2
from engine.weights.packed.methods.gptq import wrap_gptq
from engine.weights.tensor import FileTensor
from engine.weights.transform.quantize import quantise

Random = np.random.Generator
Builder = Callable[[Random, int, int], RawTensor]
"""Builds a matrix of these rows (a multiple of 32) and columns (a multiple of 256)."""
_NAME = "selftest.weight"
_TYPES = {
    "float32": "F32",
    "float16": "F16",
    "int32": "I32",
    "int16": "I16",
    "uint8": "F8_E4M3",
    "int64": "I64",
}
_LOW, _HIGH = 1e-3, 0.5
"""Bounds of the largest magnitude in a block, so that no block dominates the others."""


def file_tensor(name: str, array: npt.NDArray[Any], type_name: str = "") -> FileTensor:
    """An array as a tensor of a file; `type_name` is needed where the dtype does not determine it."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return FileTensor(name, type_name or _TYPES[array.dtype.name], array.shape, data)


def _in_blocks(format: Format, rng: Random, rows: int, columns: int) -> RawTensor:
    """Blocks of random bytes; only blocks with values of a usual size are kept, whatever their layout."""
    if format.name in ("F32", "F16", "BF16", "F64"):
        values = rng.standard_normal((rows, columns)) * 0.05
        raw = (
            np.ascontiguousarray(values.astype(np.float32).view(np.uint16)[:, 1::2])
            if format.name == "BF16" else values.astype(format.dtype)
        )  # fmt: skip
        return FileTensor(_NAME, format.name, (rows, columns), raw.reshape(-1).view(np.uint8))
    count = rows * columns // format.block_size
    found: list[Bytes] = []
    have = 0
    while have < count:
        blocks = rng.integers(0, 256, (4 * count, format.block_bytes), dtype=np.uint8)
        largest = np.abs(format.dequantise(blocks, (len(blocks), format.block_size))).max(axis=1)
        good = blocks[np.isfinite(largest) & (largest > _LOW) & (largest < _HIGH)]
        found.append(good)
        have += len(good)
    return FileTensor(_NAME, format.name, (rows, columns), np.concatenate(found)[:count].reshape(-1))


def _in_rows(format: Format, rng: Random, rows: int, columns: int) -> RawTensor:
    """The same of a type of ik_llama.cpp, whose rows may have a number of their own."""
    if not format.row_bytes:
        return as_packed(_in_blocks(format, rng, rows, columns))
    raw = rng.integers(0, 256, (rows, format.nbytes((columns,))), dtype=np.uint8)
    # times the largest scale and level these are 0.4
    number = np.full(1, 2e-4, np.float16) if format.row_bytes == 2 else np.full(1, 2.5e-5, np.float32)
    raw[:, : format.row_bytes] = number.view(np.uint8)
    return as_packed(FileTensor(_NAME, format.name, (rows, columns), raw.reshape(-1)))


def _words(rng: Random, *shape: int) -> npt.NDArray[np.int32]:
    return rng.integers(-(1 << 31), 1 << 31, shape, dtype=np.int64).astype(np.int32)


def _scales(rng: Random, bits: int, *shape: int) -> npt.NDArray[np.float16]:
    return (rng.uniform(0.02, 0.1, shape) / (1 << (bits - 1))).astype(np.float16)


def _wrapped(
    wrap: Callable[..., Mapping[str, RawTensor]],
    parts: Mapping[str, npt.NDArray[Any]],
    settings: Mapping[str, Any],
) -> RawTensor:
    return wrap(
        {f"selftest.{name}": file_tensor(f"selftest.{name}", part) for name, part in parts.items()}, settings
    )[_NAME]


def _gptq(bits: int, group: int, shuffled: bool, rng: Random, rows: int, columns: int) -> RawTensor:
    groups = columns // group
    parts: dict[str, npt.NDArray[Any]]
    index = np.arange(columns, dtype=np.int32) // group
    parts = {
        "qweight": _words(rng, columns * bits // 32, rows), "qzeros": _words(rng, groups, rows * bits // 32),
        "scales": _scales(rng, bits, groups, rows), "g_idx": rng.permutation(index) if shuffled else index,
    }  # fmt: skip
    return _wrapped(wrap_gptq, parts, {"quant_method": "gptq", "bits": bits, "group_size": group})


def _awq(version: str, rng: Random, rows: int, columns: int) -> RawTensor:
    groups = columns // 128
    parts: dict[str, npt.NDArray[Any]]
    if version == "gemm":
        parts = {
            "qweight": _words(rng, columns, rows // 8), "qzeros": _words(rng, groups, rows // 8),
            "scales": _scales(rng, 4, groups, rows),
        }  # fmt: skip
    else:
        words = -(-groups // 8)
        parts = {
            "qweight": _words(rng, rows, columns // 8), "qzeros": _words(rng, rows, words),
            "scales": _scales(rng, 4, rows, 8 * words),
        }  # fmt: skip
    return _wrapped(
        wrap_awq, parts, {"quant_method": "awq", "bits": 4, "group_size": 128, "version": version}
    )


def _exl2(widths: tuple[int, ...], rng: Random, rows: int, columns: int) -> RawTensor:
    """Groups of 32 inputs with these bit widths in rotation, sorted from wide to narrow as in the files."""
    count = columns // 32
    bits = sorted((widths[i % len(widths)] for i in range(count)), reverse=True)
    starts = np.cumsum([0, *bits])
    groups = np.array([[width, start] for width, start in zip(bits, starts, strict=False)], np.int16)
    parts: dict[str, npt.NDArray[Any]] = {
        "q_weight": _words(rng, int(starts[-1]), rows), "q_scale": _words(rng, count, rows // 8),
        "q_scale_max": (rng.uniform(0.1, 0.2, count) * 4 / np.exp2(bits)).astype(np.float16),
        "q_groups": groups.reshape(-1), "q_invperm": rng.permutation(columns).astype(np.int32),
    }  # fmt: skip
    return _wrapped(wrap_exl2, parts, {"quant_method": "exl2"})


def _compressed(bits: int, rng: Random, rows: int, columns: int) -> RawTensor:
    parts: dict[str, npt.NDArray[Any]] = {
        "weight_packed": _words(rng, rows, columns * bits // 32),
        "weight_scale": _scales(rng, bits, rows, columns // 32),
        "weight_shape": np.array([rows, columns], np.int64),
    }  # fmt: skip
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "group_size": 32, "strategy": "group"}
    settings = {
        "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": weights, "targets": ["Linear"]}},
    }
    return _wrapped(wrap_compressed, parts, settings)


class _Codes:
    """A source of random codes for `GroupedTensor`, with the bits of each run of columns."""

    def __init__(self, rng: Random, rows: int, runs: Sequence[Run]) -> None:
        bits = np.repeat([run.bits for run in runs], [run.size for run in runs])
        self._codes = rng.integers(0, 1 << bits, (rows, bits.size), dtype=np.uint8)
        each = np.array([1 << run.bits for run in runs])
        self._scales = (rng.uniform(0.04, 0.2, (rows, len(runs))) / each).astype(np.float16)
        self._zeros = rng.integers(0, each, (rows, len(runs)), dtype=np.int16)

    def codes(self, outputs: Indices, start: int, stop: int) -> Bytes:
        return self._codes[outputs, start:stop]

    def scales(self, outputs: Indices) -> Floats:
        scales: Floats = self._scales[outputs].astype(np.float32)
        return scales

    def zeros(self, outputs: Indices) -> Zeros:
        return self._zeros[outputs]


def _grouped(kind: str, rng: Random, rows: int, columns: int) -> RawTensor:
    """A matrix of a type that `weights.packed.grouped` names, however a file packs it.

    Raises `ValueError` if its units do not add up to `columns`; parts without a unit are left out.
    """
    parts = [(int(bits), int(unit)) for bits, unit in re.findall(r"GROUPED(\d)_(\d+)", kind)]
    least = sum(unit for _, unit in parts[1:])
    if not parts or columns <= least or (columns - least) % parts[0][1]:
        raise ValueError(f"no {kind} has {columns} columns")
    units = [parts[0]] * ((columns - least) // parts[0][1]) + parts[1:]
    starts = np.cumsum([0, *(unit for _, unit in units)])
    runs = [
        Run(int(start), unit, bits, group)
        for group, ((bits, unit), start) in enumerate(zip(units, starts, strict=False))
    ]
    order = rng.permutation(columns) if kind.startswith(PERMUTED) else None
    return GroupedTensor(
        _NAME, Layout(columns, runs, order, "_F32" not in kind, rows * columns, rows), _Codes(rng, rows, runs)
    )


class _Affine:
    """An `Affine` of random codes, scales and biases, which a type of numbers holds."""

    def __init__(self, rng: Random, rows: int, columns: int, bits: int, unit: int, kind: str) -> None:
        self._codes = rng.integers(0, 1 << bits, (rows, columns), dtype=np.uint8)
        scales, biases = (
            (rng.uniform(0.04, 0.2, (rows, columns // unit)) / (1 << bits)).astype(np.float32)
            for _each in range(2)
        )
        self._scales, self._biases = _held(scales, kind), _held(-scales * (1 << (bits - 1)) + biases, kind)

    def codes(self, outputs: Indices) -> Bytes:
        return self._codes[outputs]

    def numbers(self, outputs: Indices) -> tuple[Floats, Floats]:
        return self._scales[outputs], self._biases[outputs]

    def decode(self, outputs: Indices) -> Floats:
        scales, biases = self.numbers(outputs)
        codes = self._codes[outputs].astype(np.float32).reshape(*scales.shape, -1)
        values: Floats = codes * scales[:, :, None] + biases[:, :, None]
        return values.reshape(outputs.size, -1)


def _held(numbers: Floats, kind: str) -> Floats:
    """Rounded to the type `kind`."""
    if kind == "BF16":
        return (numbers.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return numbers.astype(np.float16).astype(np.float32) if kind == "F16" else numbers


def _affine(type_name: str, rng: Random, rows: int, columns: int) -> RawTensor:
    """A matrix of a type that `weights.packed.affine` names. Raises `ValueError` for other columns."""
    (bits, unit), kind = map(int, type_name[len("AFFINE") :].split("_")[:2]), type_name.rsplit("_", 1)[1]
    if columns % unit:
        raise ValueError(f"no {type_name} has {columns} columns")
    source = _Affine(rng, rows, columns, bits, unit, kind)
    return affine_matrix(_NAME, (rows, columns), bits, columns // unit, kind, rows * columns, source)


def _fp8(kind: str, unit: int, rng: Random, rows: int, columns: int) -> RawTensor:
    """One scale for each block of 128 rows and `unit` columns; a single scale if `unit` is 0."""
    low = {"F8_E4M3": 0x20, "F8_E5M2": 0x30}[kind]
    codes = (rng.integers(low, low + 24, (rows, columns)) | rng.choice([0, 128], (rows, columns))).astype(
        np.uint8
    )
    shape = (-(-rows // 128), -(-columns // unit)) if unit else (1,)
    scale = rng.uniform(0.01, 0.05, shape).astype(np.float32)
    name = "selftest.weight_scale_inv"
    tensors = {_NAME: file_tensor(_NAME, codes, kind), name: file_tensor(name, scale)}
    return wrap_fp8(
        tensors,
        {"quant_method": "fp8", "weight_block_size": [128, unit]} if unit else {"quant_method": "fp8"},
    )[_NAME]


def _nvfp4(rng: Random, rows: int, columns: int) -> RawTensor:
    codes = rng.integers(0, 256, (rows, columns // 2), dtype=np.uint8)
    scale = rng.integers(0x30, 0x48, (rows, columns // 16), dtype=np.uint8)  # 0.5 to 3.75
    tensors = {
        _NAME: FileTensor(_NAME, "U8", codes.shape, codes.reshape(-1)),
        _NAME + "_scale": file_tensor(_NAME + "_scale", scale),
        _NAME + "_scale_2": file_tensor(_NAME + "_scale_2", np.full(1, 0.01, np.float32)),
    }
    return wrap_floats(tensors, {"quant_method": "modelopt"})[_NAME]


def _while_loading(kind: str, rng: Random, rows: int, columns: int) -> RawTensor:
    return quantise(
        file_tensor(_NAME, (rng.standard_normal((rows, columns)) * 0.05).astype(np.float32)), kind
    )


BLOCKS: dict[str, Builder] = {
    **{format.name: partial(_in_blocks, format) for format in GGUF_FORMATS},
    **{format.name: partial(_in_rows, format) for format in IK_FORMATS},
}
"""Builders by type: the types of GGUF files, which embedding tables may have, too."""

PACKED: dict[str, Builder] = {
    **{f"GPTQ {bits} bits": partial(_gptq, bits, 128, False) for bits in (2, 3, 4, 8)},
    "GPTQ 4 bits, groups of 32": partial(_gptq, 4, 32, False),
    "GPTQ 4 bits, by activation order": partial(_gptq, 4, 128, True),
    "AWQ gemm": partial(_awq, "gemm"),
    "AWQ gemv": partial(_awq, "gemv"),
    **{f"EXL2 {bits} bits": partial(_exl2, (bits,)) for bits in (2, 3, 4, 5, 6, 8)},
    "EXL2 mixed": partial(_exl2, (6, 4, 3)),
    "compressed 4 bits": partial(_compressed, 4),
    "compressed 8 bits": partial(_compressed, 8),
    **{
        f"MLX {bits} bits, {kind}": partial(_affine, affine_type(bits, 64, kind))
        for bits, kind in ((3, "F16"), (4, "BF16"), (6, "BF16"), (8, "F32"))
    },
    "FP8 E4M3 in blocks": partial(_fp8, "F8_E4M3", 128),
    "FP8 E4M3": partial(_fp8, "F8_E4M3", 0),
    "FP8 E5M2": partial(_fp8, "F8_E5M2", 0),
    "NVFP4": _nvfp4,
    **{f"{kind} while loading": partial(_while_loading, kind) for kind in ("q8", "q6", "q4")},
}
"""Builders by common name: the formats of folders, and those of quantising while loading."""


def builder(kind: str) -> Builder | None:
    """The builder for a type that backends pack (`engine.backends.packing.blocked.in_blocks`); None for types
    that are converted to F16 or F32 first.
    """
    if kind.startswith("FP8_"):
        return partial(_fp8, "F8_E4M3", int(kind.removeprefix("FP8_")))
    if kind == NVFP4_PAIRS.name:
        return _nvfp4
    if kind.startswith("AFFINE"):
        return partial(_affine, kind)
    return partial(_grouped, kind) if kind.startswith(("GROUPED", PERMUTED)) else BLOCKS.get(kind)
