"""Products with plain matrices: kernels' bodies against their models, and those against torch's exact
numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.kernels.linear.plain import experts_kernel, linear_kernel
from engine.backends.cuda.kernels.linear.unpack_plain import embed_kernel, unpack_kernel
from engine.backends.cuda.kernels.packed_activations import padded
from engine.backends.cuda.layouts.layout import WeightLayout
from engine.backends.cuda.layouts.plain import BF16, FP16, FP32, Fp8
from engine.errors import BadCheckpoint
from tests.simt.agree import At, Table, both
from tests.simt.models.plain import bf16_floats

KINDS: dict[str, tuple[WeightLayout, int]] = {
    "bf16": (BF16, 0), "fp16": (FP16, 0), "fp32": (FP32, 0), "fp8_128": (Fp8(128), 128),
    "fp8_32": (Fp8(32), 32),
}  # fmt: skip
# What x loses in its packed_rows, against the row's largest number: 11 bits of a half, 16 of a pair, 24 of a
# float32 (and its sums).
LOST = {"fp16": 2.0**-11, "bf16x2": 2.0**-16, "fp32": 2.0**-22}


def bf16_bits(values: Any) -> Any:
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def matrix(kind: str, rows: int, columns: int, seed: int = 0) -> tuple[Any, Any]:
    """A packed matrix, and its numbers in float64."""
    rng = np.random.default_rng(seed)
    weight_layout, unit = KINDS[kind]
    full, width = -(-rows // 16) * 16, padded(columns)
    values = np.zeros((full, width), np.float32)
    values[:rows, :columns] = rng.standard_normal((rows, columns))
    if not unit:
        raw: Any = {"bf16": bf16_bits(values), "fp16": values.astype(np.float16), "fp32": values}[kind]
        exact = bf16_floats(raw) if kind == "bf16" else raw.astype(np.float64)
        return weight_layout.pack(np.ascontiguousarray(raw).reshape(-1).view(np.uint8), full, width), exact[
            :rows, :columns
        ]
    from engine.weights.plain import E4M3_VALUES

    codes = rng.integers(0, 256, (rows, columns), np.uint8)
    codes[(codes & 127) == 127] = 0x81
    scales = rng.uniform(0.001, 0.01, (rows, columns // unit)).astype(np.float32)
    blocks = np.zeros((full, width // unit if width % unit == 0 else columns // unit, unit + 4), np.uint8)
    blocks[:rows, : columns // unit, :unit] = codes.reshape(rows, -1, unit)
    blocks[:rows, : columns // unit, unit:] = scales[..., None].view(np.uint8)
    exact = E4M3_VALUES[codes].astype(np.float64) * np.repeat(scales, unit, axis=1)
    return weight_layout.pack(blocks.reshape(-1), full, width), exact


def packed_rows(kind: str, x: Any) -> Any:
    """Rows of x as `packed_rows` has them, uint8 (rows, stride), with rubbish where nothing is promised."""
    rows, columns = x.shape
    whole = padded(columns)
    wide = np.zeros((rows, whole), np.float32)
    wide[:, :columns] = x
    if kind == "fp32":
        stride = (columns + 15) // 16 * 16
        out = np.full((rows, stride), np.nan, np.float32)
        out[:, :columns] = x
        return out.view(np.uint8)
    if kind == "bf16x2":
        first = bf16_bits(wide)
        return np.ascontiguousarray(
            np.concatenate([first, bf16_bits(wide - bf16_floats(first))], axis=1)
        ).view(np.uint8)
    blocks = wide.reshape(rows, -1, 64)
    top = np.abs(blocks).max(axis=2, keepdims=True)
    scales = np.where(top > 0, np.exp2(np.floor(np.log2(np.maximum(top, 1e-30))) - 14), 0).astype(np.float32)
    fp16 = np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales > 0).astype(np.float16)
    parts = [fp16.reshape(rows, -1).view(np.uint8), np.ascontiguousarray(scales[..., 0]).view(np.uint8)]
    out = np.concatenate(parts, axis=1)
    return np.pad(out, ((0, 0), (0, -out.shape[1] % 64)))


def linear(
    kind: str, shapes: tuple[int, ...], columns: int, x: Any, tiles: int = 1, extra: bool = True
) -> tuple[list[Any], list[Any]]:
    """Results of the body and of the model, for matrices of so many features; and the exact ones."""
    weight_layout, unit = KINDS[kind]
    rng = np.random.default_rng(5)
    rows = len(x)
    arrays: list[Any] = [packed_rows(weight_layout.activations, x)]
    arguments: list[Any] = []
    exact, places = [], []
    for part, features in enumerate(shapes):
        packed, values = matrix(kind, features, columns, part)
        bias, residual = (
            rng.standard_normal(features).astype(np.float32),
            rng.standard_normal((rows, features + 3)).astype(np.float32),
        )
        arrays += [packed, np.zeros((rows, features), np.float32), bias, residual]
        at = len(arrays) - 4
        places.append(at + 1)
        arguments += [At(at), At(at + 1), 4 * features]
        arguments += [At(at + 2), At(at + 3), 4 * (features + 3), features] if extra else [0, 0, 0, features]
        exact.append(x.astype(np.float64) @ values.T + (bias + residual[:, :features] if extra else 0))
    arguments += [0] * (7 * (3 - len(shapes))) + [At(0), arrays[0].shape[1], rows, columns]
    blocks = sum(-(-features // (16 * tiles)) for features in shapes)
    kernel = linear_kernel("fp8" if unit else kind, unit, tiles)
    found, modelled = both(kernel, (blocks, 1, 1), arguments, arrays, twice=False)
    scale = np.abs(x).max(axis=1, keepdims=True)
    for p, want in zip(places, exact, strict=True):
        bound = LOST[weight_layout.activations] * scale * np.sqrt(columns) * 4 * (1 + np.abs(want))
        assert (np.abs(modelled[p] - want) <= bound).all(), np.abs(modelled[p] - want).max()
        # Sums in another order: float32's 2^-24 of each of so many products.
        np.testing.assert_allclose(
            found[p], modelled[p], rtol=0, atol=2.0**-24 * 8 * np.sqrt(columns) * float(scale.max()) * 4
        )
    return [found[p] for p in places], [modelled[p] for p in places]


@pytest.mark.parametrize(
    ("kind", "features", "columns", "rows", "tiles"),
    [
        ("bf16", 1, 31, 1, 1), ("fp16", 17, 64, 3, 1), ("fp32", 17, 1, 2, 1), ("fp8_32", 1, 32, 2, 1),
        pytest.param("bf16", 40, 200, 8, 2, marks=pytest.mark.slow),
        pytest.param("fp16", 40, 200, 8, 2, marks=pytest.mark.slow),
        pytest.param("fp32", 20, 299, 8, 1, marks=pytest.mark.slow),
        pytest.param("fp8_128", 17, 128, 8, 1, marks=pytest.mark.slow),
        pytest.param("fp8_128", 40, 128, 3, 2, marks=pytest.mark.slow),
        pytest.param("fp8_32", 33, 96, 2, 2, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_matrix(kind: str, features: int, columns: int, rows: int, tiles: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
    linear(kind, (features,), columns, x, tiles)


@pytest.mark.slow
def test_three_matrices_at_once_and_no_more_rows_than_there_are() -> None:
    x = np.random.default_rng(1).standard_normal((2, 70)).astype(np.float32)
    linear("fp16", (17, 5, 33), 70, x, 2, extra=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bf16", "fp32"])
def test_more_columns_than_warps_take_at_once(kind: str) -> None:
    columns = 64 * 17 + 3
    linear(kind, (3,), columns, np.random.default_rng(2).standard_normal((1, columns)).astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
def test_rows_do_not_meet(kind: str) -> None:
    """Each row alone, and beside others, gives the same to the last bit."""
    columns = 96 if kind == "fp8_32" else 128
    x = np.random.default_rng(3).standard_normal((5, columns)).astype(np.float32) * np.float32(
        [[1], [30], [0.01], [1000], [1]]
    )
    (together,), _ = linear(kind, (9,), columns, x, extra=False)
    for r in (0, 2, 4):
        (alone,), _ = linear(kind, (9,), columns, x[r : r + 1], extra=False)
        assert alone.tobytes() == together[r : r + 1].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
def test_experts(kind: str) -> None:
    """Each row's own matrix and bias; rows of an expert of another layout are left alone."""
    weight_layout, unit = KINDS[kind]
    columns, features, used, tokens, stack = 128 if unit == 128 else 96, 17, 2, 2, 3
    rng = np.random.default_rng(4)
    x = rng.standard_normal((tokens * used, columns)).astype(np.float32)
    matrices = [matrix(kind, features, columns, seed) for seed in range(stack)]
    ids = np.array([[1, 2, 0], [0, 1, 0]], np.int32)
    biases = rng.standard_normal((stack, 20)).astype(np.float32)
    rows = packed_rows(weight_layout.activations, x)
    arrays = [
        rows,
        ids,
        biases,
        np.full((tokens * used, 20), 7, np.float32),
        Table(5, 6, None),
        matrices[0][0],
        matrices[1][0],
    ]
    kernel = experts_kernel("fp8" if unit else kind, unit, 1)
    arguments = [At(4), features, At(3), 80, At(2), 80, At(1), 12, used, At(0), rows.shape[1], columns]
    (_, _, _, found, *_), (_, _, _, modelled, *_) = both(
        kernel, (2, tokens * used, 1), arguments, arrays, twice=False
    )
    np.testing.assert_allclose(found, modelled, rtol=0, atol=1e-4)
    assert (found[1] == 7).all()
    for row, expert in ((0, 1), (2, 0), (3, 1)):
        want = x[row].astype(np.float64) @ matrices[expert][1].T + biases[expert, :features]
        np.testing.assert_allclose(
            modelled[row, :features],
            want,
            rtol=0,
            atol=LOST[weight_layout.activations] * 4 * 10 * np.abs(x[row]).max(),
        )


@pytest.mark.parametrize("unit", [128, 32])
def test_unpacked_fp8(unit: int) -> None:
    columns = 640 if unit == 128 else 96
    packed, exact = matrix(f"fp8_{unit}", 37, columns)
    whole = padded(columns)
    target = np.full((32, whole + 8), 9, np.float16)
    arguments = [At(0), 1, At(1), 2 * (whole + 8), columns]
    (_, found), (_, modelled) = both(
        unpack_kernel(unit), (-(-whole // 512), 2, 1), arguments, [packed, target]
    )
    assert found.tobytes() == modelled.tobytes()
    np.testing.assert_allclose(modelled[:21, :columns], exact[16:], rtol=2.0**-11, atol=2.0**-25)
    assert (modelled[21:, :columns] == 0).all()
    assert (modelled[:, whole:] == 9).all()


@pytest.mark.parametrize(
    ("kind", "columns"), [("bf16", 31), ("fp16", 70), ("fp32", 1), ("fp8_128", 128), ("fp8_32", 96)]
)
def test_rows_by_number(kind: str, columns: int) -> None:
    packed, exact = matrix(kind, 37, columns)
    ids = np.array([0, 36, 9, 17], np.int32)
    y = np.full((4, (columns + 15) // 16 * 16), 9, np.float32)
    unit = KINDS[kind][1]
    arguments = [At(0), At(1), At(2), y.strides[0], 0.5, columns]
    (*_, found), (*_, modelled) = both(
        embed_kernel("fp8" if unit else kind, unit), (1, 4, 1), arguments, [packed, ids, y]
    )
    np.testing.assert_allclose(found[:, :columns], modelled[:, :columns], rtol=2.0**-22)
    np.testing.assert_allclose(modelled[:, :columns], exact[ids] / 2, rtol=2.0**-22)


def test_fp8_beyond_fp16_is_refused() -> None:
    raw = np.zeros((16, 1, 132), np.uint8)
    raw[:, :, 128:] = np.full((16, 1, 1), 200, np.float32).view(np.uint8)
    with pytest.raises(BadCheckpoint, match="89600"):
        Fp8(128).pack(raw.reshape(-1), 16, 128)
