"""VPTQ folders against vectors that are put together one by one; what is broken is refused in one sentence.

`VQuantLinear.dequant` of Microsoft's VPTQ gave the same numbers to the last bit, of the same tensors.
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
from tests.tiny_packed import SIZES, bit_rows, write_packed

Tensors = dict[str, npt.NDArray[Any]]
Floats = npt.NDArray[np.float32]
Config = dict[str, Any]


def packed(
    shape: tuple[int, int], rng: np.random.Generator, *, vectors: int = 16, residual: int = -1,
    length: int = 8, groups: int = 1, outliers: tuple[int, int, int] = (0, -1, -1), moved: bool = True,
    normed: bool = True, by_output: bool = False,
) -> tuple[Tensors, Floats, Config]:  # fmt: skip
    """A matrix's tensors, the values they stand for, and what the settings say of it. `outliers` are the
    inputs with vectors of their own, the number of these, and their length.
    """
    (rows, columns), (apart, own, own_length) = shape, outliers
    group = -(-(columns - apart) // groups)
    places = -(-rows // length)
    books = rng.standard_normal((groups, vectors, length)).astype(np.float16)
    second = rng.standard_normal((groups, max(residual, 1), length)).astype(np.float16) / 8
    numbers = rng.integers(0, vectors, (groups, places, group))
    more = rng.integers(0, max(residual, 1), (groups, places, group))
    stored = np.zeros((rows, apart + groups * group), np.float32)
    for row, g, i in np.ndindex(rows, groups, group):
        place, inside = divmod(row, length)
        value = np.float32(books[g, numbers[g, place, i], inside])
        if residual > 0:
            value += np.float32(second[g, more[g, place, i], inside])
        stored[row, apart + g * group + i] = value
    bits, high = (vectors - 1).bit_length(), max(0, residual - 1).bit_length()
    codes = numbers | more << bits
    tensors: Tensors = {
        "indices": np.stack([bit_rows(each, bits + high) for each in codes]),
        "centroids.weight": books.reshape(groups, -1),
    }
    if residual > 0:
        tensors["res_centroids.weight"] = second.reshape(groups, -1)
    if apart:
        book = rng.standard_normal((own, own_length)).astype(np.float16)
        held = rng.integers(0, own, (1, -(-rows // own_length), apart))
        for row, i in np.ndindex(rows, apart):
            stored[row, i] = book[held[0, row // own_length, i], row % own_length]
        tensors["outlier_centroids.weight"] = book.reshape(1, -1)
        tensors["outlier_indices"] = held.astype(np.uint16).view(np.int16)
    values = stored[:, :columns]
    if moved:
        order = rng.permutation(columns)
        values = np.empty_like(values)
        values[:, order] = stored[:, :columns]
        tensors["perm"] = order.astype(np.uint16).view(np.int16)
    if normed:
        count = rows if by_output else columns
        scale = rng.uniform(0.02, 0.05, count).astype(np.float16)
        shift = (0.01 * rng.standard_normal(count)).astype(np.float16)
        tensors["weight_scale"], tensors["weight_bias"] = scale, shift
        wide = np.s_[:, None] if by_output else np.s_[:]
        values = values * scale.astype(np.float32)[wide] + shift.astype(np.float32)[wide]
    config = {
        "in_features": columns, "out_features": rows, "group_num": groups, "group_size": group,
        "num_centroids": [own, vectors], "num_res_centroids": [-1, residual], "outlier_size": apart,
        "vector_lens": [own_length, length], "enable_norm": normed, "enable_perm": moved,
        "is_indice_packed": True, "indices_as_float": False, "bias": False,
        **({"norm_dim": 1} if by_output else {}),
    }  # fmt: skip
    return tensors, values, config


def opened(folder: Path, tensors: Tensors, config: Any) -> RawTensor:
    settings = {"quant_method": "vptq", "config_for_layers": {"a": config}}
    (folder / "config.json").write_text(json.dumps({"quantization_config": settings}))
    save_file({f"a.{name}": values for name, values in tensors.items()}, folder / "model.safetensors")
    checkpoint = open_checkpoint(folder)
    assert quantisation_name(checkpoint) == "VPTQ"
    assert set(checkpoint.tensors) == {"a.weight"}
    return checkpoint.tensors["a.weight"]


@pytest.mark.parametrize(
    "how",
    [
        {}, {"residual": 4}, {"vectors": 4096, "residual": 4096, "length": 6}, {"moved": False},
        {"vectors": 65_536, "residual": 256}, {"vectors": 65_536, "residual": 65_536, "length": 3},
        {"groups": 4, "residual": 16, "normed": False}, {"outliers": (5, 32, 4), "residual": 2},
        {"outliers": (8, 300, 16), "groups": 3}, {"groups": 3, "vectors": 11, "residual": 5},
        {"by_output": True},
    ],
    ids=str,
)  # fmt: skip
def test_every_number(tmp_path: Path, how: dict[str, Any]) -> None:
    """In any order of rows; lengths of vectors need not divide the outputs."""
    tensors, values, config = packed((40, 64), np.random.default_rng(6), **how)
    found = opened(tmp_path, tensors, config)
    np.testing.assert_allclose(found.dequantise(), values, rtol=1e-6, atol=1e-8)
    some = found.rows(3, 33).take([7, 0, 0, 29]).dequantise()
    np.testing.assert_allclose(some, values[[10, 3, 3, 32]], rtol=1e-6, atol=1e-8)
    assert found.nbytes == sum(each.nbytes for each in tensors.values())


def test_settings_that_layers_share(tmp_path: Path) -> None:
    """Under the second part of a module's name, where transformers looks for them."""
    tensors, values, config = packed((40, 64), np.random.default_rng(6))
    settings = {"quant_method": "vptq", "config_for_layers": {}, "shared_layer_config": {"layers": config}}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": settings}))
    name = "model.layers.0.q_proj"
    save_file({f"{name}.{part}": each for part, each in tensors.items()}, tmp_path / "model.safetensors")
    found = open_checkpoint(tmp_path).tensors[f"{name}.weight"]
    np.testing.assert_allclose(found.dequantise(), values, rtol=1e-6, atol=1e-8)


def test_a_model(tmp_path: Path) -> None:
    """On both backends, in steps of several lengths."""
    own: dict[str, Config] = {}
    settings = {"quant_method": "vptq", "config_for_layers": own}

    def pack(name: str, values: Floats, rng: np.random.Generator) -> tuple[Tensors, Floats]:
        rows, columns = values.shape
        tensors, made, own[name] = packed((rows, columns), rng, residual=8)
        return {f"{name}.{part}": each for part, each in tensors.items()}, made

    meant = write_packed(tmp_path / "packed", (pack, settings), SIZES, head=True)
    expected = logits(load(plain_folder(tmp_path / "plain", meant, SIZES)), IDS)
    found = logits(load(tmp_path / "packed"), IDS)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()
    found = logits(load(tmp_path / "packed", CpuBackend(1)), IDS, CUTS)
    # the CPU keeps the values as F16
    assert np.abs(found - expected).max() < 2e-3 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": np.zeros((1, 5, 8), np.int16)}, r"a\.indices is I16 .*3 dimensions of I32"),
        ({"indices": np.zeros((1, 4, 8), np.int32)}, r"a\.indices .*numbers of shape \(1, 5, 8\)"),
        ({"indices": np.zeros((0, 5, 8), np.int32)}, r"a\.indices .*numbers for 64 inputs"),
        ({"centroids.weight": np.zeros((1, 96), np.float16)}, r"a\.centroids\.weight .*\(1, 88\)"),
        ({"centroids.weight": None}, r"a\.centroids\.weight is missing"),
        ({"perm": np.zeros(64, np.int64)}, r"a\.perm is I64"),
        ({"perm": np.zeros(63, np.int16)}, r"a\.perm .*numbers of shape \(64,\)"),
        ({"weight_bias": None}, r"a\.weight_bias is missing"),
        ({"weight_scale": np.zeros(63, np.float16)}, r"a\.weight_scale .*numbers of shape \(64,\)"),
    ],
)
def test_what_is_broken_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    tensors, _values, config = packed((40, 64), np.random.default_rng(6), vectors=11)
    tensors |= change
    with pytest.raises(EngineError, match=message) as caught:
        opened(tmp_path, {name: each for name, each in tensors.items() if each is not None}, config)
    assert "\n" not in str(caught.value)


def test_numbers_of_no_vector(tmp_path: Path) -> None:
    tensors, _values, config = packed((40, 64), np.random.default_rng(6), vectors=11)
    tensors["indices"][:] = -1
    found = opened(tmp_path, tensors, config)
    with pytest.raises(EngineError, match=r"a\.centroids\.weight .*more than 15 vectors"):
        found.dequantise()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vector_lens": [-1, 65]}, r"vector_lens of a is \[-1, 65\]; whole numbers from -1 to 64"),
        ({"num_centroids": [-1]}, r"num_centroids of a is \[-1\]"),
        ({"num_centroids": [-1, -1]}, r"num_centroids of a is \[-1, -1\]; whole numbers from 2 to 65536"),
        ({"num_res_centroids": None}, r"num_res_centroids of a is None"),
        ({"out_features": "40"}, r"out_features of a is 40; whole numbers from 1"),
        ({"group_size": 0}, r"group_size of a is 0"),
        ({"norm_dim": 2}, r"norm_dim of a is 2; whole numbers from 0 to 1"),
        (None, r"out_features of a is None"),
    ],
)
def test_settings_that_are_broken(tmp_path: Path, change: dict[str, Any] | None, message: str) -> None:
    tensors, _values, config = packed((40, 64), np.random.default_rng(6))
    with pytest.raises(EngineError, match=message):
        opened(tmp_path, tensors, None if change is None else config | change)
