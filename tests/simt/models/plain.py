"""Products of small batches with plain matrices, their unpacking and rows by number, as NumPy has them: in
float64, rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.weights.plain import E4M3_VALUES
from tests.simt.interpreter import Memory

_DTYPES: dict[str, Any] = {"bf16": np.uint16, "fp16": np.float16, "fp32": np.float32}


def bf16_floats(bits: Any) -> Any:
    """float32 of bf16 numbers as uint16."""
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32)


def tile_rows(memory: Memory, weight: int, constants: Any, first: int, count: int, columns: int) -> Any:
    """Rows of tiles as float32 (16 count, K64), `first` being the first tile."""
    kind, unit, blocks = constants["KIND"], constants["UNIT"], -(-columns // 64)
    if kind != "fp8":
        dtype = np.dtype(_DTYPES[kind])
        raw = memory.view(
            weight + first * 1024 * blocks * dtype.itemsize, dtype, count * 1024 * blocks
        ).reshape(-1, 64 * blocks)
        return bf16_floats(raw) if kind == "bf16" else raw.astype(np.float32)
    units = -(-64 * blocks // unit)
    tile_bytes = 1024 * blocks + 64 * units
    raw = memory.view(weight + first * tile_bytes, np.uint8, count * tile_bytes).reshape(count, tile_bytes)
    lanes = raw[:, : 1024 * blocks].reshape(count, 2 * blocks, 8, 4, 2, 2, 4)[..., [0, 2, 1, 3]]
    numbers = E4M3_VALUES[lanes.transpose(0, 4, 2, 1, 3, 5, 6).reshape(count, 16, 64 * blocks)]
    scales = (
        np.ascontiguousarray(raw[:, 1024 * blocks :])
        .view(np.float32)
        .reshape(count, units, 16)
        .transpose(0, 2, 1)
    )
    wide = np.repeat(scales, unit, axis=2)[:, :, : 64 * blocks] / np.float32(256)
    return (numbers * wide).reshape(16 * count, -1)


def x_rows(memory: Memory, x: int, x_stride: int, rows: int, columns: int, kind: str) -> Any:
    """Rows of x as float64 (rows, K64), from the packed activations that matrices of this kind take."""
    whole = -(-columns // 64) * 64
    out = np.zeros((rows, whole))
    for r in range(rows):
        at = x + r * x_stride
        if kind == "fp32":
            out[r, :columns] = memory.view(at, np.float32, columns)
        elif kind == "bf16":
            both = bf16_floats(memory.view(at, np.uint16, 2 * whole)).astype(np.float64)
            out[r] = both[:whole] + both[whole:]
        else:
            scales = memory.view(at + 2 * whole, np.float32, whole // 64)
            out[r] = memory.view(at, np.float16, whole).astype(np.float64) * np.repeat(scales, 64)
    return out


def _product(memory: Memory, constants: Any, weight: int, features: int, x: Any, columns: int) -> Any:
    rows = tile_rows(memory, weight, constants, 0, -(-features // 16), columns)[:features].astype(np.float64)
    return (x @ rows.T).astype(np.float32)


def linear_plain(memory: Memory, blocks: Any, constants: Any, *arguments: int) -> None:
    x, x_stride, rows, columns = arguments[21:]
    inputs = x_rows(memory, x, x_stride, rows, columns, constants["KIND"])
    taken = 0
    for weight, y, y_stride, bias, residual, residual_stride, features in (
        arguments[7 * p : 7 * p + 7] for p in range(3)
    ):
        taken += -(-features // (16 * constants["TILES"]))
        if not features:
            continue
        out = _product(memory, constants, weight, features, inputs, columns)
        for r in range(rows):
            total = out[r]
            if bias:
                total = total + memory.view(bias, np.float32, features)
            if residual:
                total = total + memory.view(residual + r * residual_stride, np.float32, features)
            memory.view(y + r * y_stride, np.float32, features)[:] = total
    assert blocks == (taken, 1, 1)


def experts_plain(
    memory: Memory, blocks: Any, constants: Any, table: int, features: int, y: int, y_stride: int,
    biases: int, bias_stride: int, ids: int, ids_stride: int, used: int, x: int, x_stride: int, columns: int,
) -> None:  # fmt: skip
    assert blocks[0] == -(-features // (16 * constants["TILES"]))
    for row in range(blocks[1]):
        expert = int(memory.view(ids + row // used * ids_stride, np.int32, used)[row % used])
        weight = int(memory.view(table + 8 * expert, np.int64, 1)[0])
        if weight:
            inputs = x_rows(memory, x + row * x_stride, x_stride, 1, columns, constants["KIND"])
            out = _product(memory, constants, weight, features, inputs, columns)[0]
            if biases:
                out = out + memory.view(biases + expert * bias_stride, np.float32, features)
            memory.view(y + row * y_stride, np.float32, features)[:] = out


def unpack_fp8(
    memory: Memory,
    blocks: Any,
    constants: Any,
    weight: int,
    first: int,
    target: int,
    stride: int,
    columns: int,
) -> None:
    whole = -(-columns // 64) * 64
    values = tile_rows(memory, weight, {"KIND": "fp8", **constants}, first, blocks[1], columns)
    assert blocks[0] == -(-whole // 512)
    for r, row in enumerate(values):
        memory.view(target + r * stride, np.float16, whole)[:] = row


def embed_plain(
    memory: Memory,
    blocks: Any,
    constants: Any,
    weight: int,
    ids: int,
    y: int,
    y_stride: int,
    scale: float,
    columns: int,
) -> None:
    for row in range(blocks[1]):
        token = int(memory.view(ids + 4 * row, np.int32, 1)[0])
        values = tile_rows(memory, weight, constants, token // 16, 1, columns)[token % 16]
        memory.view(y + row * y_stride, np.float32, columns)[:] = values[:columns] * np.float32(scale)


MODELS = {
    "plain.linear": linear_plain,
    "plain.experts": experts_plain,
    "unpack_plain.unpack": unpack_fp8,
    "unpack_plain.embed": embed_plain,
}
