"""6-bit floats of compressed-tensors against their values; what is broken is refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from engine.backends.cpu.weight import CpuWeight
from engine.errors import BadCheckpoint
from engine.tensors import RawTensor
from engine.weights import open_checkpoint
from engine.weights.facts import quantisation_name
from engine.weights.packed.grouped import GroupedTensor
from tests.engine.backends.cpu.test_weight_types import unpacked

EXPERTS, N, K = 3, 12, 128
GENERATOR = torch.Generator().manual_seed(9)
CODES = torch.randint(0, 64, (EXPERTS, N, K), generator=GENERATOR)
POWERS = torch.randint(110, 140, (EXPERTS, N, K // 32), dtype=torch.uint8, generator=GENERATOR)
SETTINGS = {
    "quant_method": "compressed-tensors", "format": "mxfp6-pack-quantized",
    "config_groups": {"g": {"weights": {"num_bits": 6, "type": "float", "group_size": 32}}},
}  # fmt: skip


def value(code: int) -> float:
    """Of two bits of exponent, biased by 1, and three of mantissa."""
    exponent, mantissa = code >> 3 & 3, code & 7
    size = mantissa / 8 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 1)
    return -size if code & 32 else size


VALUES = torch.tensor([value(code) for code in range(64)])[CODES]
VALUES = VALUES * torch.exp2(POWERS.float() - 127).repeat_interleave(32, 2)
_FOURS = CODES.reshape(EXPERTS, N, K // 4, 4)
_WORDS = sum((_FOURS[..., at] << 6 * at for at in range(4)), torch.zeros((), dtype=torch.int64))
BYTES = (
    torch.stack([_WORDS >> shift & 255 for shift in (0, 8, 16)], -1).to(torch.uint8).reshape(EXPERTS, N, -1)
)


def opened(folder: Path, tensors: dict[str, torch.Tensor]) -> dict[str, RawTensor]:
    (folder / "config.json").write_text(json.dumps({"quantization_config": SETTINGS}))
    save_file(
        {name: each.clone().contiguous() for name, each in tensors.items()}, folder / "model.safetensors"
    )
    assert quantisation_name(open_checkpoint(folder)) == "MXFP6"
    return dict(open_checkpoint(folder).tensors)


def test_matrices_and_stacks(tmp_path: Path) -> None:
    one = {"a.weight_packed": BYTES[0], "a.weight_scale": POWERS[0]}
    found = opened(
        tmp_path, one | {"b.weight_packed": BYTES, "b.weight_scale": POWERS, "c.bias": POWERS[0, 0]}
    )
    assert set(found) == {"a.weight", "b.weight", "c.bias"}
    tensor = found["a.weight"]
    assert tensor.shape == (N, K)
    np.testing.assert_array_equal(tensor.dequantise(), VALUES[0].numpy())
    np.testing.assert_array_equal(tensor.rows(3, 9).take([5, 0]).dequantise(), VALUES[0, [8, 3]].numpy())
    np.testing.assert_array_equal(found["b.weight"].part(2).dequantise(), VALUES[2].numpy())
    assert tensor.nbytes == sum(each.nbytes for each in one.values())
    assert isinstance(tensor, GroupedTensor)
    [piece] = tensor.pieces()
    np.testing.assert_array_equal(unpacked(CpuWeight(piece)), VALUES[0].numpy())


def test_what_is_broken(tmp_path: Path) -> None:
    for shape in ((N, 93), (N + 1, 96), (N, 3, 32)):
        with pytest.raises(BadCheckpoint, match="do not belong together"):
            opened(
                tmp_path,
                {"a.weight_packed": torch.zeros(shape, dtype=torch.uint8), "a.weight_scale": POWERS[0]},
            )
