"""A matrix in two pieces is one, whatever rows are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import torch as safetensors_torch
from safetensors.numpy import save_file

from engine.weights.joined import with_joined
from engine.weights.safetensors.folder import read_safetensors

NAMES = ("model.transformer.wte.embedding", "model.transformer.wte.new_embedding")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rows_of_both_pieces(tmp_path: Path, dtype: torch.dtype) -> None:
    pieces = [torch.randn(rows, 6, generator=torch.Generator().manual_seed(1)).to(dtype) for rows in (5, 3)]
    safetensors_torch.save_file(dict(zip(NAMES, pieces, strict=True)), tmp_path / "m.safetensors")
    tensors = with_joined({tensor.name: tensor for tensor in read_safetensors(tmp_path / "m.safetensors")})
    (name, table), whole = *tensors.items(), torch.cat(pieces).float().numpy()
    assert name == "model.transformer.wte.weight"
    np.testing.assert_array_equal(table.dequantise(), whole)
    np.testing.assert_array_equal(table.rows(3, 7).dequantise(), whole[3:7])
    order = [7, 0, 4, 5, 4]
    np.testing.assert_array_equal(table.take(order).dequantise(), whole[order])
    assert table.data.tobytes() == torch.cat(pieces).view(torch.uint8).numpy().tobytes()


def test_pieces_of_other_widths_stay_apart(tmp_path: Path) -> None:
    pieces = [np.zeros((2, columns), np.float16) for columns in (4, 6)]
    save_file(dict(zip(NAMES, pieces, strict=True)), tmp_path / "m.safetensors")
    assert set(with_joined({t.name: t for t in read_safetensors(tmp_path / "m.safetensors")})) == set(NAMES)


def test_shards_are_one_matrix(tmp_path: Path) -> None:
    """Eleven of them, which do not follow each other by their names in order of letters; one that is missing
    leaves the others out.
    """
    shards = [np.full((2, 3), number, np.float16) for number in range(11)]
    named = {f"a.shard_{number}.weight": each for number, each in enumerate(shards)}
    save_file(named, tmp_path / "m.safetensors")
    tensors = with_joined({t.name: t for t in read_safetensors(tmp_path / "m.safetensors")})
    assert set(tensors) == {"a.weight"}
    np.testing.assert_array_equal(tensors["a.weight"].dequantise(), np.concatenate(shards))
    order = [21, 0, 4]
    np.testing.assert_array_equal(tensors["a.weight"].take(order).dequantise(), np.concatenate(shards)[order])
    save_file({name: each for name, each in named.items() if "_3." not in name}, tmp_path / "m.safetensors")
    tensors = with_joined({t.name: t for t in read_safetensors(tmp_path / "m.safetensors")})
    assert tensors["a.weight"].shape == (6, 3)
    assert "a.shard_4.weight" in tensors
