"""optimum-quanto's folders against codes packed from the format's description; what is broken is named.

optimum-quanto 0.2.7's own `dequantize` gave the same float32 numbers to the last bit, of all five types, in a
tiny Llama that it had quantised.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from engine.backends.cpu.backend import CpuBackend
from engine.errors import EngineError
from engine.weights import open_checkpoint
from engine.weights.facts import quantisation_name
from tests.engine.models.oracle import SixteenBits, assert_near_exact, load, logits
from tests.engine.models.test_packed_models import CUTS, IDS, plain_folder
from tests.tiny import tiny_config
from tests.tiny_packed import SIZES, write_packed

Tensors = dict[str, npt.NDArray[Any]]
Floats = npt.NDArray[np.float32]
RNG = np.random.default_rng(6)
STEM = "model.layers.0.mlp.gate_proj"
N, K = 36, SIZES.width


def packed(
    bits: int, size: int, whole: bool = False, rows: int = N, columns: int = K
) -> tuple[Tensors, Floats]:
    """A matrix's parts, and the values that they stand for."""
    groups = rows * columns // size
    codes = RNG.integers(0, 1 << bits, (groups, size))
    scale = RNG.uniform(0.01, 0.03, (groups, 1)).astype(np.float16)
    shift = RNG.integers(0, 1 << bits, (groups, 1)).astype(np.uint8)
    many = 8 // bits
    step = -(-groups // many)
    data = np.zeros((step, size), np.uint8)
    for place in range(many):
        part = codes[place * step : (place + 1) * step]
        data[: len(part)] |= (part << bits * place).astype(np.uint8)
    wide = scale.astype(np.float32)
    if whole:
        values = (codes.astype(np.float32) - shift) * wide
    else:
        shift = (shift * wide).astype(np.float16)
        values = codes.astype(np.float32) * wide - shift.astype(np.float32)
    parts = {"weight._data._data": data, "weight._scale": scale, "weight._shift": shift}
    return parts, values.astype(np.float32).reshape(rows, columns)


def in_bytes(rows: int = N, columns: int = K) -> tuple[Tensors, Floats]:
    data = RNG.integers(-127, 128, (rows, columns)).astype(np.int8)
    scale = RNG.uniform(0.0005, 0.001, (rows, 1)).astype(np.float32)
    return {"weight._data": data, "weight._scale": scale}, data.astype(np.float32) * scale


def write(folder: Path, tensors: Tensors, stem: str = STEM, **config: Any) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(tiny_config(SIZES) | config))
    (folder / "quanto_qmap.json").write_text(json.dumps({stem: {"weights": "qint4", "activations": "none"}}))
    beside = {"input_scale": np.ones((), np.float32), "output_scale": np.ones((), np.float32)}
    stored = {f"{stem}.{name}": values for name, values in (tensors | beside).items()}
    save_file(stored, folder / "model.safetensors")


@pytest.mark.parametrize("whole", [False, True], ids=["shifts", "whole shifts"])
@pytest.mark.parametrize("size", [32, 64, K])
@pytest.mark.parametrize("bits", [2, 4])
def test_codes(tmp_path: Path, bits: int, size: int, whole: bool) -> None:
    """Every number to the last bit, in any order of rows, where the last byte is not full, too."""
    rows = N - 1 if size == K else N
    tensors, values = packed(bits, size, whole, rows)
    write(tmp_path, tensors)
    checkpoint = open_checkpoint(tmp_path)
    assert quantisation_name(checkpoint) == "quanto"
    assert set(checkpoint.tensors) == {STEM + ".weight"}
    found = checkpoint.tensors[STEM + ".weight"]
    assert found.type == f"AFFINE{bits}_{min(size, 128)}_F32"
    np.testing.assert_array_equal(found.dequantise(), values)
    np.testing.assert_array_equal(found.rows(3, 30).take([7, 0, 0]).dequantise(), values[[10, 3, 3]])
    assert found.nbytes == sum(each.nbytes for each in tensors.values())


@pytest.mark.parametrize(
    ("stem", "columns"),
    [("mlp.down_proj", SIZES.ffn_width), ("self_attn.o_proj", 4 * 96), ("self_attn.q_proj", SIZES.width)],
)
def test_inputs_of_each_module(tmp_path: Path, stem: str, columns: int) -> None:
    """The config tells how many inputs a matrix has: the width, the heads', or the feed-forward's."""
    tensors, values = packed(4, 32, rows=24, columns=columns)
    write(tmp_path, tensors, "model.layers.0." + stem, head_dim=96)
    found = open_checkpoint(tmp_path).tensors[f"model.layers.0.{stem}.weight"]
    np.testing.assert_array_equal(found.dequantise(), values)


def test_bytes(tmp_path: Path) -> None:
    tensors, values = in_bytes()
    write(tmp_path, tensors)
    found = open_checkpoint(tmp_path).tensors[STEM + ".weight"]
    np.testing.assert_array_equal(found.dequantise(), values)
    np.testing.assert_array_equal(found.take([5, 1]).dequantise(), values[[5, 1]])


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_floats(tmp_path: Path, kind: torch.dtype) -> None:
    """FP8 with a scale for each row, as other folders have it."""
    write(tmp_path, {})
    data = torch.from_numpy(RNG.standard_normal((N, K)).astype(np.float32)).to(kind)
    scale = torch.rand(N, 1)
    save_torch({f"{STEM}.weight._data": data, f"{STEM}.weight._scale": scale}, tmp_path / "model.safetensors")
    tensors = open_checkpoint(tmp_path).tensors
    assert set(tensors) == {STEM + ".weight"}
    np.testing.assert_array_equal(tensors[STEM + ".weight"].dequantise(), (data.float() * scale).numpy())


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("bits", [8, 4])
def test_a_model(tmp_path: Path, bits: int) -> None:
    """On both backends, in steps of several lengths."""

    def pack(name: str, values: Floats, rng: np.random.Generator) -> tuple[Tensors, Floats]:
        rows, columns = values.shape
        parts, made = in_bytes(rows, columns) if bits == 8 else packed(4, 32, False, rows, columns)
        return {f"{name}.{part}": each for part, each in parts.items()}, made

    meant = write_packed(tmp_path / "packed", (pack, {"quant_method": "quanto"}), SIZES, head=True)
    expected = logits(load(plain_folder(tmp_path / "plain", meant, SIZES)), IDS)
    np.testing.assert_array_equal(logits(load(tmp_path / "packed"), IDS), expected)
    model, rounded = load(tmp_path / "packed", CpuBackend(1)), load(tmp_path / "packed", SixteenBits())
    assert_near_exact(logits(model, IDS, CUTS), expected, logits(rounded, IDS, CUTS))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight._data._data": np.zeros((5, 32), np.uint8)}, "codes of 4 or 2 bits for 144 groups"),
        ({"weight._data._data": np.zeros((72, 0), np.uint8)}, "codes of 4 or 2 bits for 144 groups"),
        ({"weight._shift": np.ones((143, 1), np.float16)}, r"_shift .*numbers of shape \(144, 1\)"),
        ({"weight._shift": None}, r"weight\._shift is missing"),
        ({"weight._scale": np.ones((144, 2), np.float16)}, "codes of 4 or 2 bits"),
        ({"weight._scale": np.ones(144, np.float16)}, r"_scale is F16 of shape \(144,\)"),
        ({"weight._data._data": np.zeros((72, 48), np.uint8)}, "number of inputs cannot be told"),
        ({"weight._data._data": None}, r"weight\._data is missing"),
    ],
)
def test_what_is_broken_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    tensors = {name: each for name, each in (packed(4, 32)[0] | change).items() if each is not None}
    write(tmp_path, tensors)
    with pytest.raises(EngineError, match=message) as caught:
        open_checkpoint(tmp_path)
    assert "\n" not in str(caught.value)


def test_broken_bytes(tmp_path: Path) -> None:
    tensors, _values = in_bytes()
    write(tmp_path, tensors | {"weight._scale": np.ones((N - 1, 1), np.float32)})
    with pytest.raises(EngineError, match=rf"_scale .*numbers of shape \({N}, 1\)"):
        open_checkpoint(tmp_path)
