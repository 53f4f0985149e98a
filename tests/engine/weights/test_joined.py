"""A matrix in two pieces is one, whatever rows are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from engine.weights.joined import with_joined
from engine.weights.safetensors.folder import read_safetensors

NAMES = ("model.transformer.wte.embedding", "model.transformer.wte.new_embedding")


def test_rows_of_both_pieces(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    pieces = [rng.standard_normal((rows, 6)).astype(np.float16) for rows in (5, 3)]
    save_file(dict(zip(NAMES, pieces, strict=True)), tmp_path / "m.safetensors")
    tensors = with_joined({tensor.name: tensor for tensor in read_safetensors(tmp_path / "m.safetensors")})
    (name, table), whole = *tensors.items(), np.concatenate(pieces)
    assert name == "model.transformer.wte.weight"
    np.testing.assert_array_equal(table.dequantise(), whole)
    np.testing.assert_array_equal(table.rows(3, 7).dequantise(), whole[3:7])
    order = [7, 0, 4, 5, 4]
    np.testing.assert_array_equal(table.take(order).dequantise(), whole[order])
    assert table.data.tobytes() == whole.tobytes()


def test_pieces_of_other_widths_stay_apart(tmp_path: Path) -> None:
    pieces = [np.zeros((2, columns), np.float16) for columns in (4, 6)]
    save_file(dict(zip(NAMES, pieces, strict=True)), tmp_path / "m.safetensors")
    assert set(with_joined({t.name: t for t in read_safetensors(tmp_path / "m.safetensors")})) == set(NAMES)
