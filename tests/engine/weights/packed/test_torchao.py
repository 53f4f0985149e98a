"""torchao folders against the values that its tensors stand for; what cannot be read is named.

Files of torchao 0.18.0 (int8, float8, and 4-bit codes in bytes) were read to the last bit.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.tensors import RawTensor
from engine.weights import open_checkpoint
from engine.weights.facts import quantisation_name

N, K, GROUP = 12, 128, 32
GENERATOR = torch.Generator().manual_seed(4)
CODES = torch.randint(-8, 8, (N, K), generator=GENERATOR)
BYTES = (CODES[:, ::2] & 15 | CODES[:, 1::2] << 4).to(torch.int8)
SCALE, ZERO = (torch.rand(K // GROUP, N, generator=GENERATOR).bfloat16() for _each in range(2))
FOUR = {"a._weight_qdata": BYTES, "a._weight_scale": SCALE, "a._weight_zero_point": ZERO}
WIDE = [each.float().T.repeat_interleave(GROUP, 1) for each in (SCALE, ZERO)]
VALUES = CODES * WIDE[0] + WIDE[1]


def opened(folder: Path, tensors: dict[str, torch.Tensor]) -> dict[str, RawTensor]:
    (folder / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "torchao"}}))
    save_file(
        {name: each.clone().contiguous() for name, each in tensors.items()}, folder / "model.safetensors"
    )
    assert quantisation_name(open_checkpoint(folder)) == "torchao"
    return dict(open_checkpoint(folder).tensors)


def test_four_bits(tmp_path: Path) -> None:
    found = opened(tmp_path, FOUR | {"a.bias": torch.ones(N)})
    assert set(found) == {"a.weight", "a.bias"}
    tensor = found["a.weight"]
    assert (tensor.type, tensor.shape) == ("AFFINE4_32_F32", (N, K))
    np.testing.assert_array_equal(tensor.dequantise(), VALUES.numpy())
    np.testing.assert_array_equal(tensor.rows(3, 9).take([5, 0]).dequantise(), VALUES[[8, 3]].numpy())
    blocks = tensor.data.reshape(N, K // GROUP, GROUP + 8)
    scales, biases = (blocks[..., at : at + 4].copy().view(np.float32) for at in (GROUP, GROUP + 4))
    kept = blocks[..., :GROUP].astype(np.float32) * scales + biases
    np.testing.assert_allclose(kept.reshape(N, K), VALUES.numpy(), rtol=1e-6, atol=1e-6)
    assert tensor.nbytes == sum(each.nbytes for each in FOUR.values())


def test_inputs_that_are_multiplied(tmp_path: Path) -> None:
    factors = torch.rand(1, K, generator=GENERATOR).bfloat16()
    tensor = opened(tmp_path, FOUR | {"a._weight_act_pre_scale": factors})["a.weight"]
    np.testing.assert_array_equal(tensor.dequantise(), (VALUES * factors.float()).numpy())


@pytest.mark.parametrize("groups", [1, 4])
def test_whole_numbers_of_eight_bits(tmp_path: Path, groups: int) -> None:
    codes = torch.randint(-128, 128, (N, K), generator=GENERATOR).to(torch.int8)
    scale, zero = torch.rand(N, groups, generator=GENERATOR), torch.randint(-9, 9, (N, groups)).to(torch.int8)
    tensors = {"a._weight_qdata": codes, "a._weight_scale": scale, "a._weight_zero_point": zero}
    wide = [each.float().repeat_interleave(K // groups, 1) for each in (zero, scale)]
    found = opened(tmp_path, tensors)["a.weight"].dequantise()
    np.testing.assert_array_equal(found, ((codes.float() - wide[0]) * wide[1]).numpy())


@pytest.mark.parametrize("rows", [1, N])
def test_floats_of_eight_bits(tmp_path: Path, rows: int) -> None:
    data, scale = VALUES.to(torch.float8_e4m3fn), torch.rand(rows, 1, generator=GENERATOR)
    tensor = opened(tmp_path, {"a._weight_qdata": data, "a._weight_scale": scale})["a.weight"]
    np.testing.assert_array_equal(tensor.dequantise(), (data.float() * scale).numpy())


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    tiles = FOUR | {"a._weight_qdata": torch.zeros(2, 4, 32, 4, dtype=torch.int32)}
    eights = {"a._weight_scale": SCALE.to(torch.float8_e4m3fn)}
    eight = {"a._weight_qdata": VALUES.to(torch.float8_e4m3fn), "a._weight_act_pre_scale": torch.ones(K)}
    for tensors in (tiles, FOUR | eights, FOUR | eight, {"a._weight_qdata": BYTES}):
        with pytest.raises(UnsupportedModel, match=r"torchao packed a as .* of shape"):
            opened(tmp_path, tensors)
    for part, message in (
        ("scale", "for equal groups of 128 inputs"), ("zero_point", r"zero_point is BF16 of shape \(3, 12\)"),
    ):  # fmt: skip
        with pytest.raises(BadCheckpoint, match=message):
            opened(tmp_path, FOUR | {f"a._weight_{part}": SCALE[:3]})
    with pytest.raises(BadCheckpoint, match=r"act_pre_scale is F32 of shape \(5,\)"):
        opened(tmp_path, FOUR | {"a._weight_act_pre_scale": torch.ones(5)})
