"""Quantising while loading: near the best that a type can do, in pieces as in one, what cannot be kept
refused.
"""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import BadCheckpoint
from engine.weights.packed.grouped import GroupedTensor, Layout, Run
from engine.weights.tensor import FileTensor
from engine.weights.transform.quantize import KINDS, QuantisedTensor, quantise
from tests.engine.weights.transform import quantise_oracle

Array = np.ndarray[Any, Any]
ERRORS = {"q8": 0.0055, "q6": 0.0195, "q4": 0.075}
"""Root mean square errors of normal numbers, of their own size; plain rounding of 4 bits with a minimum
has 0.0782.
"""


def plain(values: Array, kind: str = "F32") -> FileTensor:
    if kind == "BF16":
        raw = (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        raw = np.ascontiguousarray(values, {"F32": np.float32, "F16": np.float16}[kind])
    return FileTensor("test.weight", kind, values.shape, raw.reshape(-1).view(np.uint8))


def normal(rows: int, columns: int, seed: int = 1) -> Array:
    return (np.random.default_rng(seed).standard_normal((rows, columns)) * 0.02).astype(np.float32)


@pytest.mark.parametrize("source", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_error_is_small(kind: str, source: str) -> None:
    tensor = plain(normal(64, 512), source)
    values, found = tensor.dequantise(), quantise(tensor, kind)
    assert (found.shape, found.name) == (tensor.shape, tensor.name)
    error = found.dequantise() - values
    assert float(np.sqrt((error**2).mean() / (values**2).mean())) < ERRORS[kind]
    assert found.nbytes == found.data.size


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_code_gives_what_the_formulas_give_to_the_last_bit(kind: str) -> None:
    """For numbers around 0 and far from it, tiny, equal, whole and of many sizes, in any number of blocks."""
    rng = np.random.default_rng(4)
    sets = [
        rng.standard_normal((1000, 32)), rng.standard_normal((130, 32)) * 1e-7,
        rng.standard_normal((129, 32)) + 100, np.zeros((1, 32)), np.full((9, 32), -3.5),
        rng.integers(-3, 4, (128, 32)), rng.standard_normal((127, 32)) ** 2 * np.exp(rng.uniform(-20, 5)),
    ]  # fmt: skip
    encode = getattr(quantise_oracle, f"encode_{kind[1:]}")
    for values in sets:
        found = quantise(plain(values), kind)
        expected = np.empty((len(values), found.nbytes // len(values)), np.uint8)
        with np.errstate(all="ignore"):
            assert encode(np.ascontiguousarray(values.astype(np.float32).T), expected)
        assert np.array_equal(found.data.reshape(expected.shape), expected)


@pytest.mark.parametrize(("kind", "name"), [("q8", "Q8_0"), ("q4", "Q4_1")])
def test_the_bytes_are_those_of_the_type(kind: str, name: str) -> None:
    """Against the `gguf` package's decoder; and no worse than its quantiser."""
    values = normal(32, 256)
    values[3] = np.random.default_rng(2).standard_normal(256) ** 3  # outliers
    found, theirs = quantise(plain(values), kind), gguf.GGMLQuantizationType[name]
    assert found.type == name
    decoded = gguf.quants.dequantize(found.data.reshape(32, -1), theirs)
    assert np.array_equal(decoded, found.dequantise())
    rounded = gguf.quants.dequantize(gguf.quants.quantize(values, theirs), theirs)
    assert ((decoded - values) ** 2).sum() <= 1.001 * ((rounded - values) ** 2).sum()


def test_six_bits_are_a_piece_of_grouped_codes() -> None:
    """The bytes mean to a backend what `dequantise` says."""
    values = normal(16, 64)
    found = quantise(plain(values), "q6")
    blocks = found.data.reshape(16, 2, 38)
    codes, scales, zeros = (
        blocks[..., :32].reshape(16, 64),
        blocks[..., 32:36].copy().view("<f4")[..., 0],
        blocks[..., 36:].copy().view("<i2")[..., 0],
    )

    class Source:
        def codes(self, outputs: Array, start: int, stop: int) -> Array:
            return codes[outputs, start:stop]

        def scales(self, outputs: Array) -> Array:
            return scales[outputs]

        def zeros(self, outputs: Array) -> Array:
            return zeros[outputs]

    runs = (Run(0, 32, 6, 0), Run(32, 32, 6, 1))
    piece = GroupedTensor("x", Layout(64, runs, None, True, 0, 16), Source())
    assert piece.type == found.type == "GROUPED6_32"
    assert np.array_equal(piece.data, found.data)
    assert np.array_equal(piece.dequantise(), found.dequantise())
    assert np.array_equal(scales, scales.astype(np.float16))


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_as_the_whole(kind: str) -> None:
    tensor = quantise(plain(normal(40, 4096 * 2)), kind)
    whole = tensor.dequantise()
    assert np.array_equal(tensor.rows(7, 30).dequantise(), whole[7:30])
    assert np.array_equal(tensor.take([39, 0, 0]).rows(1, 3).dequantise(), whole[[0, 0]])
    assert np.array_equal(np.concatenate([tensor.rows(0, 9).data, tensor.rows(9, 40).data]), tensor.data)


@pytest.mark.slow
@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=32, max_size=32),
    st.sampled_from(KINDS),
    st.sampled_from([1e-12, 1e-3, 1.0]),
)
@settings(max_examples=150)
def test_no_number_is_further_off_than_its_step(numbers: list[float], kind: str, size: float) -> None:
    values = (np.array([numbers]) * size).astype(np.float32)
    found = quantise(plain(values), kind).dequantise()
    span = float(values.max() - values.min()) if kind == "q4" else 2 * float(np.abs(values).max())
    steps = {"q8": 254, "q6": 62, "q4": 15}[kind]
    # A range drawn in by a fifth clips its ends; fp16 keeps numbers down to 6e-8.
    clipped = {"q8": 0.0, "q6": 0.1 * span / 2, "q4": 0.25 * span}[kind]
    assert np.abs(found - values).max() <= span / steps * 1.1 + clipped + 1e-3 * np.abs(values).max() + 2e-6


@pytest.mark.parametrize("kind", KINDS)
def test_special_blocks(kind: str) -> None:
    """Zeros stay zeros; one number throughout, and tiny ones, come back near."""
    values = np.zeros((4, 32), np.float32)
    values[1], values[2], values[3, 5] = 1.5, 1e-7, -3.0
    found = quantise(plain(values), kind).dequantise()
    assert not found[0].any()
    assert np.abs(found - values).max() < 2e-3


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_kept_is_refused(kind: str, bad: float) -> None:
    values = normal(8, 64)
    values[5, 40] = bad
    tensor = quantise(plain(values), kind)
    assert tensor.rows(0, 5).dequantise().shape == (5, 64)
    with pytest.raises(BadCheckpoint, match=r"test\.weight \(F32\).*not finite or too large"):
        tensor.dequantise()


def test_others_stay_as_they_are() -> None:
    odd, vector = plain(normal(4, 40)), FileTensor("v", "F32", (64,), np.zeros(256, np.uint8))
    packed = FileTensor("q", "Q4_1", (2, 32), np.zeros(40, np.uint8))
    for tensor in (odd, vector, packed):
        assert quantise(tensor, "q4") is tensor
    stack = FileTensor("s", "F32", (3, 2, 32), np.zeros(768, np.uint8))
    assert quantise(stack, "q4") is stack
    assert isinstance(quantise(stack.part(1), "q4"), QuantisedTensor)
