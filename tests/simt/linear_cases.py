"""Tensors of every quantised type for the tests of packed matrices, small and of odd sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.backends.cuda.weight import ExpertTable, WeightSpec
from engine.backends.gguf_blocks.quants import NVFP4_PAIRS
from engine.backends.packing.pieces import KINDS, affine_type
from engine.models.proof.random_tensors import builder
from engine.tensors import RawTensor
from engine.weights.packed.grouped import GroupedTensor, Layout, runs_by_group
from engine.weights.tensor import FileTensor, find_format
from tests.tiny_quants import quantise

Array = np.ndarray[Any, Any]

BLOCKS_OF_32 = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4")
NVFP4 = NVFP4_PAIRS.name
BLOCKS_OF_256 = (
    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "TQ1_0", "TQ2_0", "IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS",
    "IQ2_XXS", "IQ1_M", "IQ1_S",
)  # fmt: skip
IK = ("IQ2_K", "IQ2_KS", "IQ2_KL", "IQ3_K", "IQ3_KS", "IQ4_K", "IQ4_KS", "IQ5_K", "IQ3_KT")
"""One of each packed form of ik_llama.cpp's types with blocks of 256; Q6_0 has blocks of 32."""
GROUPED = tuple(
    f"GROUPED{bits}_{unit}{end}" for bits in (2, 3, 4, 5, 6, 8) for unit in (32, 64, 128) for end in ("",
    "_F32")
)  # fmt: skip

AFFINE = (
    *(affine_type(bits, 64, "BF16") for bits in (2, 3, 4, 5, 6, 8)),
    *(affine_type(8, unit, kind) for unit in (32, 128) for kind in KINDS),
    affine_type(4, 32, "F16"), affine_type(4, 64, "F32"),
)  # fmt: skip


class Drawn:
    """A `Source` of random codes, with zeros of 0 and of one past the largest code among them."""

    def __init__(self, rows: int, columns: int, bits: int, unit: int, half: bool, seed: int) -> None:
        rng = np.random.default_rng(seed)
        runs, order = runs_by_group(np.arange(columns) // unit, bits)
        self._codes = rng.integers(0, 1 << bits, (rows, columns)).astype(np.uint8)
        self._zeros = rng.integers(0, (1 << bits) + 1, (rows, len(runs))).astype(np.int16)
        self._zeros[0], self._zeros[-1] = 0, 1 << bits
        scales = (rng.standard_normal((rows, len(runs))) * 1e-2).astype(np.float32)
        self._scales = scales.astype(np.float16).astype(np.float32) if half else scales
        self.tensor = GroupedTensor("test.weight", Layout(columns, tuple(runs), order, half, 0, rows), self)

    def codes(self, outputs: Array, start: int, stop: int) -> Array:
        return self._codes[outputs, start:stop]

    def scales(self, outputs: Array) -> Array:
        return self._scales[outputs]

    def zeros(self, outputs: Array) -> Array:
        return self._zeros[outputs]


def columns_of(type_name: str) -> int:
    """Few: for blocks of 32 an odd number of them; two spans, or one and a half rounds of two warps."""
    if type_name in (*BLOCKS_OF_256, *IK):
        return 256
    if type_name.startswith(("GROUPED", "AFFINE")):
        return {32: 96, 64: 192, 128: 128}[int(type_name.split("_")[1])]
    return 192 if type_name == NVFP4 else 160


def tensor(type_name: str, rows: int, columns: int, seed: int = 0) -> RawTensor:
    """A matrix of this type: random bytes in every place, with bearable scales."""
    if type_name.startswith("GROUPED"):
        bits, unit = type_name.removeprefix("GROUPED").split("_")[:2]
        return Drawn(rows, columns, int(bits), int(unit), not type_name.endswith("_F32"), seed).tensor
    rng = np.random.default_rng(seed)
    if type_name.startswith("AFFINE") or type_name in (NVFP4, "Q6_0", *IK):
        build = builder(type_name)
        assert build is not None
        return build(rng, rows, columns)
    if type_name == "MXFP4":
        raw = rng.integers(0, 256, (rows * columns // 32, 17)).astype(np.uint8)
        raw[:, 0] = rng.integers(110, 135, len(raw))
    elif type_name == "IQ4_NL":
        raw = rng.integers(0, 256, (rows * columns // 32, 18)).astype(np.uint8)
        raw[:, :2] = (rng.standard_normal((len(raw), 1)) * 1e-2).astype(np.float16).view(np.uint8)
    else:
        raw = np.ascontiguousarray(
            quantise(rng.standard_normal((rows, columns)).astype(np.float32), type_name)
        ).view(np.uint8)
    assert find_format(type_name) is not None
    return FileTensor("test.weight", type_name, (rows, columns), raw.reshape(-1))


def packed_rows(x: Array) -> Array:
    """Rows (T, K) float32 packed in fp16, uint8 (T, bytes), as far apart as rows of a buffer."""
    blocks = np.pad(x, ((0, 0), (0, -x.shape[1] % 64))).reshape(len(x), -1, 64)
    exponent = np.frexp(np.abs(blocks).max(axis=2))[1] - 1
    fp16 = np.ldexp(blocks, (14 - exponent)[..., None]).astype(np.float16)
    scales = np.ldexp(np.float32(1), exponent - 14).astype(np.float32)
    out = np.concatenate([fp16.reshape(len(x), -1).view(np.uint8), scales.view(np.uint8)], axis=1)
    return np.pad(out, ((0, 0), (0, -out.shape[1] % 64)))


def unpacked(x: Array) -> Array:
    """The numbers that packed rows hold, float64 (T, K)."""
    raw, columns = packed_rows(x), -(-x.shape[1] // 64) * 64
    fp16 = (
        np.ascontiguousarray(raw[:, : 2 * columns])
        .view(np.float16)
        .astype(np.float64)
        .reshape(len(x), -1, 64)
    )
    scales = (
        np.ascontiguousarray(raw[:, 2 * columns : 2 * columns + columns // 16])
        .view(np.float32)
        .astype(np.float64)
    )
    return (fp16 * scales[..., None]).reshape(len(x), -1)[:, : x.shape[1]]


def expert_tables(device: Any, weights: Sequence[WeightSpec]) -> list[ExpertTable]:
    """A table for each weight layout of the experts' matrices."""
    firsts = {w.weight_layout.name: w for w in reversed(weights)}
    return [ExpertTable(device, weights, first) for first in firsts.values()]
