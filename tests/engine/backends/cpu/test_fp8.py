"""8-bit floats on the CPU: one byte a number, unpacked exactly with scales of every shape, products within
rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.base import AttentionShape, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.weight import CpuWeight
from engine.errors import BadCheckpoint
from engine.weights.packed.fp8 import Fp8Blocks, Fp8Tensor, fp8_blocks, wrap_fp8
from engine.weights.tensor import FileTensor
from tests.engine.backends.cpu.test_weight_types import unpacked
from tests.engine.backends.kernel_oracles import Matrix

Array = np.ndarray[Any, Any]


def drawn(
    rows: int,
    columns: int,
    scale: tuple[int, ...] | None,
    settings: dict[str, Any] | None = None,
    kind: str = "F8_E4M3",
) -> Any:
    """A tensor as the folder's reader gives it, and what torch says it means: every byte but the two that
    are no number.
    """
    rng = np.random.default_rng(rows + columns)
    raw = rng.choice([b for b in range(256) if b & 0x7F != 0x7F], rows * columns).astype(np.uint8)
    values = torch.from_numpy(raw).view(torch.float8_e4m3fn).float().numpy().reshape(rows, columns)
    tensors = {"x.weight": FileTensor("x.weight", kind, (rows, columns), raw)}
    if scale is not None:
        scales = np.exp(rng.uniform(-9, -5, scale)).astype(np.float32)
        tensors["x.weight_scale_inv"] = FileTensor(
            "x.weight_scale_inv", "F32", scale, scales.reshape(-1).view(np.uint8)
        )
        wide = np.broadcast_to(
            scales.reshape(scale if len(scale) == 2 else (-1, 1)),
            (rows, columns) if scale[-1] == 1 else scale,
        )
        if len(scale) == 2 and scale[1] > 1:
            block = (settings or {}).get("weight_block_size", [128, 128])
            wide = np.repeat(np.repeat(scales, block[0], 0), block[1], 1)
        values = values * wide[:rows, :columns]
    return wrap_fp8(tensors, settings or {})["x.weight"], values.astype(np.float32)


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("shape", "scale", "settings", "weight_layout"),
    [
        ((37, 256), (37, 1), None, "fp8u128"),
        ((200, 384), (2, 3), None, "fp8u128"),
        ((150, 320), (2, 3), None, "fp8u32"),
        ((16, 128), (1,), None, "fp8u128"),
        ((16, 96), None, None, "fp8u32"),
        ((70, 192), (3, 3), {"weight_block_size": [32, 64]}, "fp8u32"),
        ((20, 100), (20, 1), None, "f16"),
    ],
)
def test_numbers_come_back(shape: tuple[int, int], scale: Any, settings: Any, weight_layout: str) -> None:
    tensor, values = drawn(*shape, scale, settings)
    assert np.array_equal(tensor.dequantise(), values)
    weight = CpuBackend(1).load_weight(tensor)
    assert isinstance(weight, CpuWeight)
    assert weight.weight_layout.name == weight_layout
    expected = values.astype(np.float16).astype(np.float32) if weight_layout == "f16" else values
    assert np.array_equal(unpacked(weight), expected)
    assert weight.nbytes == CpuBackend(1).weight_spec(tensor).nbytes


def test_products_alone_and_together() -> None:
    tensor, values = drawn(75, 256, (1, 2))
    backend = CpuBackend(2)
    table = Matrix("F32", (31, 256), 3)
    weights = backend.load_weight(table), backend.load_weight(tensor)
    cache = backend.new_cache([AttentionShape(1, 1, 16, 0.25)], 1, "fp32")
    program = backend.record(
        lambda ops: ops.linear(ops.last_rows(ops.embed(weights[0])), weights[1]), cache, 64
    )
    ids = np.random.default_rng(1).integers(0, 31, 40).astype(np.int32)
    exact = table.values[ids].astype(np.float64) @ values.T.astype(np.float64)

    def run(part: Array) -> Array:
        out: Array = program.run(
            Step(part, np.arange(len(part), dtype=np.int32), np.array([0], np.int32), len(part))
        ).copy()
        return out

    try:
        alone = np.concatenate([run(ids[i : i + 1]) for i in range(16)])
        for rows in (1, 2, 3, 4, 5, 7, 8, 9, 14, 16):
            assert np.array_equal(run(ids[:rows]), alone[:rows])
        for rows in (16, 17, 40):
            np.testing.assert_allclose(run(ids[:rows]), exact[:rows], atol=2e-6 * np.abs(exact).max())
    finally:
        program.close()


def test_what_is_no_number_is_refused() -> None:
    tensor, _ = drawn(32, 128, (1,))
    raw = tensor.data.copy()
    raw[4000] = 0xFF
    broken = wrap_fp8({"x.weight": FileTensor("x.weight", "F8_E4M3", (32, 128), raw)}, {})["x.weight"]
    with pytest.raises(BadCheckpoint, match=r"x\.weight \(F8_E4M3\) holds something that is not a number"):
        CpuBackend(1).load_weight(broken)


def test_others_stay_as_they_are() -> None:
    tensor, _ = drawn(32, 128, (1,))
    other, _ = drawn(32, 128, (1,), kind="F8_E5M2")
    assert isinstance(fp8_blocks(tensor), Fp8Blocks)
    assert isinstance(other, Fp8Tensor)
    assert fp8_blocks(other) is other
    rows = fp8_blocks(tensor).take([5, 5, 1]).rows(1, 3)
    assert np.array_equal(rows.dequantise(), tensor.dequantise()[[5, 1]])
