"""bitnet.cpp's I2_S, value by value; ik_llama.cpp's own `dequantize_row_ms_i2s` gave the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.backends.cpu.weight import CpuWeight
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.weights.facts import quantisation_name
from tests.engine.backends.cpu.test_weight_types import unpacked
from tests.engine.weights.gguf.test_file import U32, build, entry, key, opened, text


def test_a_matrix_has_one_scale(tmp_path: Path) -> None:
    rng, rows, columns = np.random.default_rng(1), 20, 256
    codes = rng.integers(0, 3, (rows, columns))
    raw, scale = np.zeros((rows, columns // 4), np.uint8), np.float32(0.37)
    for k in range(columns):
        raw[:, 32 * (k // 128) + k % 32] |= (codes[:, k] << (6 - 2 * (k % 128 // 32))).astype(np.uint8)
    data = raw.tobytes() + scale.tobytes() + bytes(28)
    matrix = opened(build([], [entry("a", (columns, rows), 36)], data), tmp_path).tensors["a"]
    meant = (codes - 1).astype(np.float32) * scale
    assert (matrix.type, matrix.shape, matrix.nbytes) == ("GROUPED2_128_F32", (rows, columns), len(data))
    np.testing.assert_array_equal(matrix.dequantise(), meant)
    np.testing.assert_array_equal(matrix.take([9, 2, 2, 19]).rows(1, 4).dequantise(), meant[[2, 2, 19]])
    np.testing.assert_array_equal(unpacked(CpuWeight(matrix)), meant)


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    """Whatever its number of a file type, which other files have for Q1_0."""
    keys = [key("general.architecture", 8, text("bitnet-b1.58")), key("general.file_type", 4, U32(40))]
    raw = build(keys, [entry("a.weight", (128, 4), 36)], bytes(160))
    assert quantisation_name(opened(raw, tmp_path)) == "I2_S"


def test_what_is_damaged_or_no_matrix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match="tensor a needs 160 bytes at offset 0, but there are 128 bytes"):
        opened(build([], [entry("a", (128, 4), 36)], bytes(128)), tmp_path)
    with pytest.raises(UnsupportedModel, match="only single matrices"):
        opened(build([], [entry("a", (128, 2, 2), 36)], bytes(160)), tmp_path)
