"""Packed matrices taken apart by torch alone: every layout against its file's own decoder."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.cuda.layouts.plain import Fp8
from engine.backends.cuda.layouts.table import WEIGHT_LAYOUTS
from engine.backends.cuda.proof.dequantised import dequantised, tiles_of
from engine.backends.cuda.weight import CudaWeight
from engine.backends.packing.composite import is_composite
from engine.models.proof.random_tensors import BLOCKS, PACKED, Builder
from tests.simt.fake import FakeDevice

MAKERS = {**BLOCKS, **PACKED}
SEEN: set[str] = set()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("capability", [75, 90])
def test_as_the_file_says(name: str, capability: int) -> None:
    """Also a piece from the middle; what is kept as fp16 is off by its rounding."""
    make: Builder = MAKERS[name]
    whole = make(np.random.default_rng(5), 96, 512)
    for tensor in whole.pieces() if is_composite(whole) else [whole]:
        weight = CudaWeight(FakeDevice(capability=capability), tensor)
        SEEN.add(weight.weight_layout.name)
        expected = tensor.dequantise()
        for first, count in ((0, weight.tiles), (2, 3)):
            found = dequantised(weight, tiles_of(weight)[first : first + count]).numpy()
            assert found.dtype == np.float32
            required = expected[16 * first : 16 * (first + count)]
            np.testing.assert_allclose(
                found[: len(required)], required, rtol=2**-10, atol=2**-11 * np.abs(expected).max()
            )


def test_no_layout_is_left_out() -> None:
    """Of grouped codes, whose layouts differ by numbers alone, some; e4m3 has its own test."""
    assert {
        weight_layout.name
        for weight_layout in WEIGHT_LAYOUTS
        if not weight_layout.name.startswith(("grouped", "affine", "fp8"))
    } <= SEEN
    assert len([name for name in SEEN if name.startswith("grouped")]) >= 6
    assert len([name for name in SEEN if name.startswith("affine")]) == 4


@pytest.mark.parametrize("unit", [32, 128])
def test_eight_bits_with_scales(unit: int) -> None:
    rng, rows, columns = np.random.default_rng(6), 32, 384
    codes = (rng.integers(0, 120, (rows, columns)) | rng.choice([0, 128], (rows, columns))).astype(np.uint8)
    scales = rng.uniform(0.01, 0.1, (rows, columns // unit)).astype(np.float32)
    parts = np.concatenate([codes.reshape(rows, -1, unit), scales[..., None].view(np.uint8)], 2)
    weight_layout = Fp8(unit)
    packed = torch.from_numpy(weight_layout.pack(parts.reshape(-1), rows, columns))
    weight: Any = SimpleNamespace(weight_layout=weight_layout, shape=(rows, columns))
    found = dequantised(weight, packed.view(rows // 16, -1))
    values = torch.from_numpy(codes).view(torch.float8_e4m3fn).float().numpy()
    np.testing.assert_array_equal(found.numpy(), values * np.repeat(scales, unit, 1))
