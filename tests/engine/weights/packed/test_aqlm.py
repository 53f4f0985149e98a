"""AQLM folders against sums of vectors; what is broken is refused in one sentence.

aqlm 1.1.7's own `_dequantize_weight` gave the same numbers to the last bit, of codes that it packed itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from engine.backends.cpu.backend import CpuBackend
from engine.errors import EngineError
from engine.tensors import RawTensor
from engine.weights import open_checkpoint
from engine.weights.facts import quantisation_name
from tests.engine.models.oracle import load, logits
from tests.engine.models.test_packed_models import CUTS, IDS, plain_folder
from tests.tiny_packed import SIZES, write_packed

Tensors = dict[str, npt.NDArray[Any]]
Floats = npt.NDArray[np.float32]
SETTINGS = {"quant_method": "aqlm", "num_codebooks": 2, "nbits_per_codebook": 8, "in_group_size": 8}


def packed(
    shape: tuple[int, int], count: int, bits: int, group: tuple[int, int], rng: np.random.Generator
) -> tuple[Tensors, Floats]:
    """A matrix's tensors, and the values they stand for, summed one group after the other."""
    (rows, columns), (outputs, inputs) = shape, group
    codes = rng.integers(0, 1 << bits, (rows // outputs, columns // inputs, count))
    books = rng.standard_normal((count, 1 << bits, outputs, inputs)).astype(np.float16)
    scales = rng.uniform(0.02, 0.05, (rows // outputs, 1, 1, 1)).astype(np.float16)
    values = np.zeros(shape, np.float32)
    for at, across in np.ndindex(codes.shape[:2]):
        total = sum(books[book, codes[at, across, book]].astype(np.float32) for book in range(count))
        part = np.s_[at * outputs : (at + 1) * outputs, across * inputs : (across + 1) * inputs]
        values[part] = total * scales[at, 0].astype(np.float32)
    signed = np.where(codes >= 1 << (bits - 1), codes - (1 << bits), codes)
    stored = signed.astype(np.int8 if bits <= 8 else np.int16)
    return {"codes": stored, "codebooks": books, "scales": scales}, values


def opened(folder: Path, tensors: Tensors) -> RawTensor:
    (folder / "config.json").write_text(json.dumps({"quantization_config": SETTINGS}))
    save_file({f"a.{name}": values for name, values in tensors.items()}, folder / "model.safetensors")
    checkpoint = open_checkpoint(folder)
    assert quantisation_name(checkpoint) == "AQLM 2x8"
    assert set(checkpoint.tensors) == {"a.weight"}
    return checkpoint.tensors["a.weight"]


@pytest.mark.parametrize(
    ("count", "bits", "group"),
    [(1, 16, (1, 8)), (2, 8, (1, 8)), (1, 12, (2, 4)), (3, 5, (4, 16)), (8, 8, (1, 32))],
)
def test_every_number(tmp_path: Path, count: int, bits: int, group: tuple[int, int]) -> None:
    """To the last bit, in any order of rows."""
    tensors, values = packed((24, 64), count, bits, group, np.random.default_rng(6))
    found = opened(tmp_path, tensors)
    np.testing.assert_array_equal(found.dequantise(), values)
    np.testing.assert_array_equal(found.rows(3, 20).take([7, 0, 0]).dequantise(), values[[10, 3, 3]])
    assert found.nbytes == sum(each.nbytes for each in tensors.values())


def test_a_model(tmp_path: Path) -> None:
    """On both backends, in steps of several lengths."""

    def pack(name: str, values: Floats, rng: np.random.Generator) -> tuple[Tensors, Floats]:
        rows, columns = values.shape
        tensors, made = packed((rows, columns), 2, 8, (1, 8), rng)
        return {f"{name}.{part}": each for part, each in tensors.items()}, made

    meant = write_packed(tmp_path / "packed", (pack, SETTINGS), SIZES, head=True)
    expected = logits(load(plain_folder(tmp_path / "plain", meant, SIZES)), IDS)
    np.testing.assert_array_equal(logits(load(tmp_path / "packed"), IDS), expected)
    found = logits(load(tmp_path / "packed", CpuBackend(1)), IDS, CUTS)
    # the CPU keeps the values as F16
    assert np.abs(found - expected).max() < 2e-3 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codes": np.zeros((24, 8, 2), np.uint8)}, r"a\.codes is U8 .*3 dimensions of I8, I16, I32"),
        ({"codes": np.zeros((24, 8), np.int8)}, r"a\.codes is I8 of shape \(24, 8\)"),
        ({"codes": np.zeros((0, 8, 2), np.int8)}, r"a\.codebooks .* one codebook for each of 2 codes"),
        ({"codes": np.zeros((24, 8, 3), np.int8)}, r"a\.codebooks .* one codebook for each of 3 codes"),
        ({"codebooks": np.zeros((2, 255, 1, 8), np.float16)}, r"a\.codebooks .*\(2, 255, 1, 8\)"),
        ({"codebooks": np.zeros((2, 512, 1, 8), np.float16)}, r"a\.codebooks .*\(2, 512, 1, 8\)"),
        ({"scales": np.ones((23, 1, 1, 1), np.float16)}, r"a\.scales .*numbers of shape \(24, 1, 1, 1\)"),
        ({"scales": None}, r"a\.scales is missing"),
        ({"codebooks": None}, r"a\.codebooks is missing"),
    ],
)
def test_what_is_broken_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    tensors = packed((24, 64), 2, 8, (1, 8), np.random.default_rng(6))[0] | change
    with pytest.raises(EngineError, match=message) as caught:
        opened(tmp_path, {name: each for name, each in tensors.items() if each is not None})
    assert "\n" not in str(caught.value)
