"""Block formats against the `gguf` package's decoder, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from engine.weights import FORMATS
from engine.weights import format as formats
from engine.weights.format import Format
from engine.weights.gguf import GGUF_TYPE_NAMES
from tests.tiny_quants import dequantise, quantise


@pytest.mark.parametrize("entry", FORMATS, ids=lambda entry: entry.name)
def test_sizes_are_those_of_ggml(entry: Format) -> None:
    kind = gguf.GGMLQuantizationType[entry.name]
    assert gguf.GGML_QUANT_SIZES[kind] == (entry.block_size, entry.block_bytes)
    assert GGUF_TYPE_NAMES[kind.value] == entry.name
    assert entry.nbytes((3, 2 * entry.block_size)) == 6 * entry.block_bytes


def test_type_numbers_are_those_of_ggml() -> None:
    known = {kind.value: kind.name for kind in gguf.GGMLQuantizationType}
    assert GGUF_TYPE_NAMES.items() <= known.items()


@pytest.mark.parametrize("entry", FORMATS, ids=lambda entry: entry.name)
def test_random_bytes_decode_bit_for_bit(entry: Format) -> None:
    raw = np.random.default_rng(7).integers(0, 256, (129, 3 * entry.block_bytes), dtype=np.uint8)
    ours = entry.dequantise(raw.reshape(-1), (129, 3 * entry.block_size))
    theirs = dequantise(raw, entry.name)
    assert ours.shape == theirs.shape == (129, 3 * entry.block_size)
    assert ours.dtype == np.float32
    nan = np.isnan(theirs)  # random scales are sometimes NaN; which NaN does not matter
    np.testing.assert_array_equal(np.isnan(ours), nan)
    np.testing.assert_array_equal(ours.view(np.uint32)[~nan], np.ascontiguousarray(theirs).view(np.uint32)[~nan])
    assert np.isfinite(ours).mean() > 0.5  # or the comparison would say little


@pytest.mark.parametrize("entry", FORMATS, ids=lambda entry: entry.name)
def test_quantised_numbers_come_back(entry: Format) -> None:
    values = np.random.default_rng(8).standard_normal((5, 512)).astype(np.float32)
    packed = np.ascontiguousarray(quantise(values, entry.name)).reshape(-1).view(np.uint8)
    error = np.abs(entry.dequantise(packed, (5, 512)) - values)
    allowed = {"F32": 0.0, "F16": 2e-3, "BF16": 2e-2, "Q8_0": 3e-2, "Q6_K": 0.1, "Q2_K": 1.2, "Q3_K": 0.7}.get(entry.name, 0.5)
    assert error.max() <= allowed


def test_chunked_decoding_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = np.random.default_rng(9).integers(0, 128, 37 * 20, dtype=np.uint8)
    entry = next(each for each in FORMATS if each.name == "Q4_1")
    whole = entry.dequantise(raw, (37, 32))
    monkeypatch.setattr(formats, "_CHUNK_VALUES", 32 * 5)
    np.testing.assert_array_equal(entry.dequantise(raw, (37, 32)), whole)
