"""ik_llama.cpp's types with rows in turn, and what its own decoders gave for them.

`golden/ik_blocks_in_turn.json` has a turn of random bytes for each type, one block wide, with usual numbers
d, and the float32 values that `dequantize_row_*_r4` (or `_r8`) of `libggml.so` in the package
ik-llama-cpp-python 0.1.5 made of it, called by ctypes with all its rows.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.weight import CpuWeight
from engine.backends.gguf_blocks.interleaved import INTERLEAVED
from engine.backends.reference.backend import ReferenceBackend
from engine.errors import BadCheckpoint
from engine.weights.gguf.file import GgufFile
from tests.engine.backends.cpu.test_weight_types import unpacked
from tests.engine.weights.gguf.test_file import build, entry, opened

GOLDEN: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "golden" / "ik_blocks_in_turn.json").read_text("utf-8")
)
NAMES = [each.name for each in INTERLEAVED]
BY_NAME = {each.name: each for each in INTERLEAVED}


def golden(name: str) -> tuple[bytes, np.ndarray]:
    """A turn's bytes, and its values (rows, columns)."""
    raw, values = (base64.b64decode(GOLDEN[name][part]) for part in ("rows", "values"))
    return raw, np.frombuffer(values, np.float32).reshape(BY_NAME[name].rows, -1)


def turns(tmp_path: Path, name: str, shape: tuple[int, ...], raw: bytes) -> GgufFile:
    return opened(build([], [entry("a", shape[::-1], GOLDEN[name]["number"])], raw), tmp_path)


def test_every_type_has_a_golden_turn() -> None:
    assert {name: GOLDEN[name]["number"] for name in GOLDEN} == {e.name: e.number for e in INTERLEAVED}


@pytest.mark.parametrize("name", NAMES)
def test_turns_are_decoded_as_ik_llama_cpp_decodes_them(tmp_path: Path, name: str) -> None:
    """Three equal turns as a matrix and as a stack: also single rows in any order, and on the CPU."""
    raw, values = golden(name)
    rows, columns = values.shape
    matrix = turns(tmp_path, name, (3 * rows, columns), 3 * raw).tensors["a"]
    assert (matrix.type, matrix.shape) == (BY_NAME[name].block.name, (3 * rows, columns))
    assert matrix.nbytes == 3 * len(raw)
    np.testing.assert_array_equal(matrix.dequantise(), np.tile(values, (3, 1)))
    order = [2 * rows + 1, 0, 3, rows + 2, 0]
    np.testing.assert_array_equal(matrix.take(order).dequantise(), values[[1, 0, 3, 2, 0]])
    np.testing.assert_array_equal(unpacked(CpuWeight(matrix)), np.tile(values, (3, 1)))
    stack = turns(tmp_path, name, (3, rows, columns), 3 * raw).tensors["a"]
    np.testing.assert_array_equal(stack.part(2).dequantise(), values)


def test_rows_of_several_blocks(tmp_path: Path) -> None:
    """A turn's numbers stand before all its blocks, and blocks follow each other."""
    raw, values = golden("IQ4_KS_R4")
    long = raw[:16] + raw[16:] * 3
    found = turns(tmp_path, "IQ4_KS_R4", (4, 768), long).tensors["a"]
    np.testing.assert_array_equal(found.dequantise(), np.tile(values, (1, 3)))
    assert found.nbytes == len(long)


def test_backends_load_them(tmp_path: Path) -> None:
    raw, _ = golden("Q4_K_R4")
    matrix = turns(tmp_path, "Q4_K_R4", (8, 256), 2 * raw).tensors["a"]
    assert CpuBackend(1).load_weight(matrix).shape == ReferenceBackend().load_weight(matrix).shape == (8, 256)


def test_matrices_without_whole_turns_are_refused(tmp_path: Path) -> None:
    raw, _ = golden("IQ4_K_R4")
    for shape in ((6, 256), (256,)):
        with pytest.raises(BadCheckpoint, match=r"tensor a of the type IQ4_K_R4 .* a multiple of 4 rows"):
            turns(tmp_path, "IQ4_K_R4", shape, 2 * raw)
