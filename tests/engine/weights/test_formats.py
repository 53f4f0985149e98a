"""Block formats against the `gguf` package's decoder, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from engine.backends.gguf_blocks.ik_quants import IK_BLOCKS
from engine.backends.gguf_blocks.interleaved import INTERLEAVED
from engine.weights import FORMATS
from engine.weights import format as formats
from engine.weights.format import Format
from engine.weights.gguf.table import GGUF_TYPE_NAMES
from engine.weights.plain import FOLDER_FORMATS, NUMBER_FORMATS
from tests.tiny_quants import dequantise, quantise


@pytest.mark.parametrize("entry", FORMATS, ids=lambda entry: entry.name)
def test_sizes_are_those_of_ggml(entry: Format) -> None:
    kind = gguf.GGMLQuantizationType[entry.name]
    assert gguf.GGML_QUANT_SIZES[kind] == (entry.block_size, entry.block_bytes)
    assert GGUF_TYPE_NAMES[kind.value] == entry.name
    assert entry.nbytes((3, 2 * entry.block_size)) == 6 * entry.block_bytes


def test_type_numbers_are_those_of_ggml() -> None:
    known = {kind.value: kind.name for kind in gguf.GGMLQuantizationType}
    # `test_ik_types` and `test_interleaved` have these
    own = {block.number: block.name for block in (*IK_BLOCKS, *INTERLEAVED)}
    # llama.cpp's newest, which the package does not know yet
    assert GGUF_TYPE_NAMES.items() <= (known | {42: "Q2_0", 36: "I2_S"} | own).items()


@pytest.mark.parametrize("entry", FORMATS, ids=lambda entry: entry.name)
def test_random_bytes_decode_bit_for_bit(entry: Format) -> None:
    raw = np.random.default_rng(7).integers(0, 256, (129, 3 * entry.block_bytes), dtype=np.uint8)
    ours = entry.dequantise(raw.reshape(-1), (129, 3 * entry.block_size))
    theirs = dequantise(raw, entry.name)
    assert ours.shape == theirs.shape == (129, 3 * entry.block_size)
    assert ours.dtype == np.float32
    nan = np.isnan(theirs)  # random scales are sometimes NaN; which NaN does not matter
    np.testing.assert_array_equal(np.isnan(ours), nan)
    np.testing.assert_array_equal(
        ours.view(np.uint32)[~nan], np.ascontiguousarray(theirs).view(np.uint32)[~nan]
    )
    assert np.isfinite(ours).mean() > 0.5  # or the comparison would say little


COARSE = {
    "IQ3_S": 0.15, "IQ3_XXS": 0.22, "IQ2_S": 0.3, "IQ2_XS": 0.35, "IQ2_XXS": 0.4, "IQ1_M": 0.63, "IQ1_S": 0.7,
    "TQ1_0": 0.85, "TQ2_0": 0.85, "MXFP4": 0.13, "NVFP4": 0.11,
}  # fmt: skip
"""Root mean square error allowed for types with so few levels that the largest error says little."""


@pytest.mark.parametrize("entry", FORMATS, ids=lambda entry: entry.name)
def test_quantised_numbers_come_back(entry: Format) -> None:
    values = np.random.default_rng(8).standard_normal((5, 512)).astype(np.float32)
    packed = np.ascontiguousarray(quantise(values, entry.name)).reshape(-1).view(np.uint8)
    error = entry.dequantise(packed, (5, 512)) - values
    if entry.name in COARSE:
        assert np.sqrt((error**2).mean()) <= COARSE[entry.name]
    else:
        most = {
            "F32": 0.0,
            "F16": 2e-3,
            "BF16": 2e-2,
            "Q8_0": 3e-2,
            "Q6_K": 0.1,
            "Q2_K": 1.2,
            "Q3_K": 0.7,
        }.get(entry.name, 0.5)
        assert np.abs(error).max() <= most


def test_chunked_decoding_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = np.random.default_rng(9).integers(0, 128, 37 * 20, dtype=np.uint8)
    entry = next(each for each in FORMATS if each.name == "Q4_1")
    whole = entry.dequantise(raw, (37, 32))
    monkeypatch.setattr(formats, "_CHUNK_VALUES", 32 * 5)
    np.testing.assert_array_equal(entry.dequantise(raw, (37, 32)), whole)


@pytest.mark.parametrize("entry", FORMATS, ids=lambda entry: entry.name)
@pytest.mark.parametrize("byte", [0, 0x7C, 0x7E, 0xFC, 0xFF])
def test_scales_that_are_no_numbers(entry: Format, byte: int) -> None:
    """Zero, infinite and NaN scales of every sign decode as the package says, without a warning."""
    raw = np.full((2, 2 * entry.block_bytes), byte, np.uint8)
    raw[1] = np.random.default_rng(byte).integers(0, 256, raw.shape[1]) | byte
    np.testing.assert_array_equal(
        entry.dequantise(raw.reshape(-1), (2, 2 * entry.block_size)), dequantise(raw, entry.name)
    )


def test_plain_numbers() -> None:
    for entry in NUMBER_FORMATS:
        values = np.array([0, 1, -2, 100], entry.dtype)
        np.testing.assert_array_equal(entry.dequantise(values.view(np.uint8), (4,)), [0, 1, -2, 100])
    huge = np.array([1e300, np.nan])
    np.testing.assert_array_equal(NUMBER_FORMATS[0].dequantise(huge.view(np.uint8), (2,)), [np.inf, np.nan])


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
def test_8_bit_floats_are_those_of_torch(name: str) -> None:
    codes = np.arange(256, dtype=np.uint8)
    entry = next(each for each in FOLDER_FORMATS if each.name == "F8_" + name.split("_")[1][:4].upper())
    np.testing.assert_array_equal(
        entry.dequantise(codes, (256,)), torch.from_numpy(codes).view(getattr(torch, name)).float().numpy()
    )
