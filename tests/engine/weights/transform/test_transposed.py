"""Matrices that lie the other way round are read in panels: the numbers are right, and little is read or
held at a time.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import UnsupportedModel
from engine.weights import file
from engine.weights.file import ModelFile
from engine.weights.tensor import FileTensor
from engine.weights.transform import transposed
from engine.weights.transform.transposed import Transposed

RNG = np.random.default_rng(5)


def stored(path: Path, kind: str, shape: tuple[int, ...]) -> tuple[FileTensor, Any]:
    """A tensor in a file behind 7 bytes, and its values as float32."""
    values = RNG.standard_normal(shape, np.float32)
    bits: Any = values
    if kind == "F16":
        bits = values.astype(np.float16)
        values = bits.astype(np.float32)
    if kind == "BF16":
        bits = (values.view(np.uint32) >> 16).astype(np.uint16)
        values = (bits.astype(np.uint32) << 16).view(np.float32)
    path.write_bytes(b"0123456" + bits.tobytes())
    return FileTensor("w", kind, shape, ModelFile(path), 7), values


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("panel", [1, 64, 1000, 1 << 20])
def test_any_rows_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, panel: int
) -> None:
    monkeypatch.setattr(transposed, "_PANEL_BYTES", panel)
    monkeypatch.setattr(transposed, "_ROWS_BYTES", 300)
    stack, values = stored(tmp_path / "m", kind, (3, 23, 41))
    matrix, expected = Transposed(stack.part(1)), values[1].T
    assert matrix.shape == (41, 23)
    assert matrix.nbytes == len(matrix.data) == 41 * 23 * (4 if kind == "F32" else 2)
    np.testing.assert_array_equal(matrix.dequantise(), expected)
    np.testing.assert_array_equal(matrix.rows(5, 9).dequantise(), expected[5:9])
    np.testing.assert_array_equal(matrix.rows(3, 3).dequantise(), expected[3:3])
    every_second = matrix.take(np.arange(1, 41, 2))
    np.testing.assert_array_equal(every_second.rows(4, 11).dequantise(), expected[1::2][4:11])
    shuffled = RNG.permutation(41)[:17]
    np.testing.assert_array_equal(
        matrix.take(shuffled).take([2, 2, 16]).dequantise(), expected[shuffled][[2, 2, 16]]
    )
    assert (
        matrix.rows(7, 20).data.tobytes()
        == np.ascontiguousarray(stack.part(1).data.reshape(23, 41, -1)[:, 7:20].swapaxes(0, 1)).tobytes()
    )


def test_rows_that_were_chosen_before(tmp_path: Path) -> None:
    matrix, values = stored(tmp_path / "m", "F32", (23, 41))
    order = RNG.permutation(23)
    np.testing.assert_array_equal(
        Transposed(matrix.take(order)).rows(3, 12).dequantise(), values[order].T[3:12]
    )


def test_pieces_read_the_file_once_and_hold_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix of 16 MB, taken in 64 pieces."""
    matrix, values = stored(tmp_path / "m", "F16", (2048, 4096))
    view, read = Transposed(matrix), 0
    before = file.ModelFile.read_runs

    def counting(self: ModelFile, runs: Any, out: Any, what: str) -> None:
        nonlocal read
        read += out.nbytes
        before(self, runs, out, what)

    monkeypatch.setattr(file.ModelFile, "read_runs", counting)
    tracemalloc.start()
    for first in range(0, 4096, 64):
        piece = view.rows(first, first + 64).data
        assert piece[:2].tobytes() == values[:1, first].astype(np.float16).tobytes()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read == matrix.nbytes
    assert peak < 12 << 20


def test_quantised_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"The tensor w of type Q8_0 is stored transposed"):
        transposed.transposed(FileTensor("w", "Q8_0", (4, 32), np.zeros(4 * 34, np.uint8)))
