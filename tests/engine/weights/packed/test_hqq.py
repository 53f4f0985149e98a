"""HQQ folders against codes packed from the format's description; what is broken is refused in one sentence.

Files of hqq 0.2.8 (all widths, both axes, bytes as floats) were read to the last bit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from engine.errors import EngineError
from engine.tensors import RawTensor
from engine.weights import open_checkpoint
from engine.weights.facts import quantisation_name

N, K = 40, 96
RNG = np.random.default_rng(6)
PACKED = {8: ("8bit_u8", 1), 4: ("4bit_u8", 2), 3: ("3bit_32", 10), 2: ("2bit_u8", 4), 1: ("1bit_u8", 8)}


def packed(bits: int, size: int, axis: int) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.float32]]:
    """A matrix's tensors, and the values they stand for."""
    shape = (N * K // size, size) if axis else (size, N * K // size)
    codes = RNG.integers(0, 1 << bits, shape)
    many = (shape[0], 1) if axis else (1, shape[1])
    scale, zero = (RNG.uniform(0.01, 1, many).astype(np.float16) for _each in range(2))
    values = (codes.astype(np.float32) - zero.astype(np.float32)) * scale.astype(np.float32)
    name, count = PACKED[bits]
    step = -(-shape[0] // count)
    words = np.zeros((step, shape[1]), np.int64)
    for i in range(count):
        part = codes[i * step : (i + 1) * step]
        words[: len(part)] |= part << ((27 if bits == 3 else 8 - bits) - bits * i)
    tensors = {
        "a.W_q": words.astype(np.int32 if bits == 3 else np.uint8), "a.scale": scale, "a.zero": zero,
        "a.shape": np.array([N, K]), "a.group_size": np.array(size, np.int32),
        "a.axis": np.array(axis, np.int32),
        "a.packing": np.frombuffer(name.encode(), np.uint8), "a.nbits": np.array(bits, np.int32),
        "a.bias": np.ones(N, np.float16),
    }  # fmt: skip
    return tensors, values.reshape(N, K)


def opened(folder: Path, tensors: dict[str, npt.NDArray[Any]]) -> dict[str, RawTensor]:
    settings = {
        "quant_method": "hqq",
        "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 32}},
    }
    (folder / "config.json").write_text(json.dumps({"quantization_config": settings}))
    save_file(tensors, folder / "model.safetensors")
    assert quantisation_name(open_checkpoint(folder)) == "HQQ 4-bit g32"
    return dict(open_checkpoint(folder).tensors)


@pytest.mark.parametrize("bits", PACKED)
@pytest.mark.parametrize(("size", "axis"), [(32, 1), (96, 1), (60, 1), (64, 0)])
def test_every_number(tmp_path: Path, bits: int, size: int, axis: int) -> None:
    """To the last bit, in any order of rows; groups may run from one row into the next."""
    tensors, values = packed(bits, size, axis)
    if bits == 4 and size == 32:  # `view_as_float`
        tensors["a.W_q"] = tensors["a.W_q"].view(np.float16)
    found = opened(tmp_path, tensors)
    assert set(found) == {"a.weight", "a.bias"}
    tensor = found["a.weight"]
    np.testing.assert_array_equal(tensor.dequantise(), values)
    np.testing.assert_array_equal(tensor.rows(3, 30).take([7, 0, 0]).dequantise(), values[[10, 3, 3]])
    kind = f"AFFINE{max(2, bits)}_32_F32" if axis and size != 60 else f"HQQ{bits}"
    assert (tensor.type, tensor.shape) == (kind, (N, K))
    if axis and size != 60:
        blocks = tensor.data.reshape(N, K // 32, 40)
        scales, biases = (blocks[..., at : at + 4].copy().view(np.float32) for at in (32, 36))
        kept = blocks[..., :32].astype(np.float32) * scales + biases
        np.testing.assert_allclose(kept.reshape(N, K), values, rtol=1e-6, atol=1e-6)
    assert tensor.nbytes == sum(each.nbytes for name, each in tensors.items() if name != "a.bias")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a.packing": np.frombuffer(b"5bit_x", np.uint8)}, "HQQ packed a as '5bit_x'"),
        ({"a.shape": np.array([N, K, 1])}, r"of shape \(40, 96, 1\)"),
        ({"a.shape": np.array([N, K + 32])}, r"a\.W_q is U8 .*4bit_u8 codes of shape \(40, 128\)"),
        ({"a.group_size": np.array(0, np.int32)}, "groups of 0 values"),
        ({"a.axis": np.ones(2, np.int32)}, r"a\.axis is I32 of shape \(2,\), but one number"),
        ({"a.zero": np.ones((3, 1), np.float16)}, r"a\.zero is F16 of shape \(3, 1\)"),
        ({"a.scale": np.ones((120, 1), np.uint8)}, r"a\.scale is U8"),
        ({"a.scale": None}, r"a\.scale is missing"),
        ({"a.shape": None}, r"a\.shape is missing"),
        ({"a.packing": None}, r"a\.packing is missing"),
    ],
)
def test_what_is_broken_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    tensors = {name: each for name, each in (packed(4, 32, 1)[0] | change).items() if each is not None}
    with pytest.raises(EngineError, match=message) as caught:
        opened(tmp_path, tensors)
    assert "\n" not in str(caught.value)
