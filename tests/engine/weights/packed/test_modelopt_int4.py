"""ModelOpt's 4-bit integers (W4A16_AWQ) against the values that its tensors stand for."""

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

EXPERTS, ROWS, COLUMNS, GROUP = 3, 10, 128, 32
GENERATOR = torch.Generator().manual_seed(6)
CODES = torch.randint(-8, 8, (EXPERTS, ROWS, COLUMNS), generator=GENERATOR)
BYTES = (CODES[:, ::2] & 15 | (CODES[:, 1::2] & 15) << 4).to(torch.uint8)
SCALES = torch.rand(EXPERTS, ROWS, COLUMNS // GROUP, generator=GENERATOR).bfloat16()
FACTORS = torch.rand(COLUMNS, generator=GENERATOR)
VALUES = CODES * SCALES.float().repeat_interleave(GROUP, 2)


def opened(folder: Path, tensors: dict[str, torch.Tensor]) -> dict[str, RawTensor]:
    (folder / "config.json").write_text("{}")
    settings = {"quantization": {"quant_algo": "W4A16_AWQ", "group_size": GROUP}}
    (folder / "hf_quant_config.json").write_text(json.dumps(settings))
    save_file(
        {name: each.clone().contiguous() for name, each in tensors.items()}, folder / "model.safetensors"
    )
    assert quantisation_name(open_checkpoint(folder)) == "W4A16 AWQ"
    return dict(open_checkpoint(folder).tensors)


def test_matrices_and_stacks(tmp_path: Path) -> None:
    one = {"a.weight": BYTES[0], "a.weight_scale": SCALES[0], "a.input_scale": torch.ones(1)}
    two = {"b.weight": BYTES[1], "b.weight_scale": SCALES[1], "b.pre_quant_scale": FACTORS}
    stack = {"c.weight": BYTES, "c.weight_scale": SCALES, "norm.weight": torch.ones(4)}
    found = opened(tmp_path, one | two | stack)
    assert set(found) == {"a.weight", "b.weight", "c.weight", "norm.weight"}
    assert (found["a.weight"].type, found["a.weight"].shape) == ("AFFINE4_32_BF16", (ROWS, COLUMNS))
    np.testing.assert_array_equal(found["a.weight"].dequantise(), VALUES[0].numpy())
    np.testing.assert_array_equal(found["a.weight"].rows(3, 9).take([5, 0]).dequantise(), VALUES[0, [8, 3]])
    np.testing.assert_array_equal(found["b.weight"].dequantise(), (VALUES[1] * FACTORS).numpy())
    np.testing.assert_array_equal(found["c.weight"].part(2).dequantise(), VALUES[2].numpy())
    blocks = found["a.weight"].data.reshape(ROWS, COLUMNS // GROUP, GROUP + 8)
    scales, biases = (blocks[..., at : at + 4].copy().view(np.float32) for at in (GROUP, GROUP + 4))
    kept = blocks[..., :GROUP].astype(np.float32) * scales + biases
    np.testing.assert_allclose(kept.reshape(ROWS, COLUMNS), VALUES[0].numpy(), rtol=1e-6, atol=1e-6)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    one = {"a.weight": BYTES[0], "a.weight_scale": SCALES[0]}
    for more in ({"a.weight_scale_2": torch.ones(1)}, {"a.weight_scale": SCALES[0, :5]}):
        with pytest.raises(UnsupportedModel, match="'W4A16_AWQ' packs it, which cannot be read"):
            opened(tmp_path, one | more)
    with pytest.raises(BadCheckpoint, match="scales for equal groups of 128 inputs"):
        opened(tmp_path, one | {"a.weight_scale": SCALES[0, :, :3]})
    with pytest.raises(BadCheckpoint, match=r"pre_quant_scale is F32 of shape \(3,\)"):
        opened(tmp_path, one | {"a.pre_quant_scale": torch.ones(3)})
