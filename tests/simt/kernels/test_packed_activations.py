from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.kernels.packed_activations import packed_buffer
from engine.backends.cuda.kernels.packed_activations_write import pack_call, pack_kernel
from engine.backends.graph.buffers import Buffer
from tests.simt.agree import At, both
from tests.simt.models.packed_activations import decoded, encoded


def rows_of(width: int, rows: int) -> Any:
    """Rows of all magnitudes, in the stride of a buffer; what lies past the width is no number."""
    rng = np.random.default_rng(width)
    x = np.full((rows, Buffer(width).stride // 4), np.nan, np.float32)
    x[:, :width] = rng.standard_normal((rows, width)) * np.exp2(rng.integers(-30, 20, (rows, width)))
    return x


def written(kind: str, x: Any, width: int) -> tuple[Any, Any]:
    """By the interpreter and by the model."""
    source = Buffer(width)
    target = packed_buffer(kind, source)
    call = pack_call(kind, source, target)
    out = np.full((len(x), target.stride), 0x5A, np.uint8)
    arguments = [At(0) if a is source else At(1) if a is target else a for a in call.arguments]
    (_, found), (_, expected) = both(call.kernel, call.blocks(len(x)), arguments, [x, out])
    return found, expected


@pytest.mark.parametrize("kind", ["fp16", "bf16x2"])
@pytest.mark.parametrize(("width", "rows"), [(1, 2), (64, 1), (515, 2), (126, 1)])
def test_packed_activations(kind: str, width: int, rows: int) -> None:
    x = rows_of(width, rows)
    found, expected = written(kind, x, width)
    np.testing.assert_array_equal(found, expected)
    for row, packed in zip(x[:, :width], found, strict=True):
        values = decoded(kind, packed, width)
        if kind == "bf16x2":
            np.testing.assert_allclose(values, row, rtol=2.0**-17)
        else:
            tops = np.repeat(np.abs(np.pad(row, (0, -width % 64)).reshape(-1, 64)).max(1), 64)[:width]
            assert (np.abs(values - row) <= np.maximum(2.0**-11 * np.abs(row), 2.0**-37 * tops)).all()


def test_halves_of_nothing_and_of_no_number() -> None:
    x = np.zeros((1, 256), np.float32)
    x[0, 3], x[0, 70], x[0, 130], x[0, 199] = 2.0**-101, np.nan, -np.inf, 3.4e38
    found, expected = written("fp16", x, 256)
    np.testing.assert_array_equal(found, expected)
    values = decoded("fp16", found[0], 256)
    assert (values[:64] == 0).all()
    assert np.isnan(values[64:192]).all()
    assert abs(values[199] / 3.4e38 - 1) < 2**-11


def test_scale_keeps_the_largest_in_range() -> None:
    for top in (2.0**-100, 1.0, 1.9999999, 65504.0, 2.0**127):
        x = np.zeros(64, np.float32)
        x[9] = -top
        scale = encoded("fp16", x)[128:].view(np.float32)[0]
        assert 2.0**14 <= top / scale < 2.0**15


def test_pairs_are_for_newer_devices() -> None:
    assert (pack_kernel("fp16").min_capability, pack_kernel("bf16x2").min_capability) == (75, 80)
