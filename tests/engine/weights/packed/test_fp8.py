"""8-bit floats with scales: value = number * scale, whatever the shape of the scales, against torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.tensors import RawTensor
from engine.weights import open_checkpoint
from tests.engine.models.oracle import load, logits
from tests.tiny import TINY, write_folder

N, K = 200, 300
NUMBERS = torch.randn(N, K, generator=torch.Generator().manual_seed(1)).to(torch.float8_e4m3fn)
GENERATOR = torch.Generator().manual_seed(2)


def opened(
    folder: Path, tensors: dict[str, torch.Tensor], settings: dict[str, Any] | None
) -> dict[str, RawTensor]:
    config: dict[str, Any] = {} if settings is None else {"quantization_config": settings}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return dict(open_checkpoint(folder).tensors)


def scales(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(*shape, generator=GENERATOR).add(0.5).to(dtype)


def blocks(scale: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    return scale.float().repeat_interleave(rows, 0).repeat_interleave(columns, 1)[:N, :K]


FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
BLOCKS, ODD_BLOCKS = scales(2, 3), scales(4, 5)
ROWS, ROW_COLUMN, ONE = scales(N), scales(N, 1, dtype=torch.bfloat16), scales(1)
EXPONENTS = scales(2, 3).mul(200).to(torch.float8_e8m0fnu)
BYTES = torch.randint(100, 140, (N, 10), generator=GENERATOR, dtype=torch.uint8)
_POWERS = torch.exp2(BYTES.float() - 127)
CASES: dict[str, tuple[str, torch.Tensor, dict[str, Any], torch.Tensor]] = {
    "DeepSeek": ("weight_scale_inv", BLOCKS, FP8, blocks(BLOCKS, 128, 128)),
    "other blocks": (
        "weight_scale_inv",
        ODD_BLOCKS,
        FP8 | {"weight_block_size": [64, 60]},
        blocks(ODD_BLOCKS, 64, 60),
    ),
    "rows": ("weight_scale", ROWS, {"quant_method": "fbgemm_fp8"}, ROWS[:, None]),
    "a column of bf16": ("weight_scale", ROW_COLUMN, {"quant_method": "fbgemm_fp8"}, ROW_COLUMN.float()),
    "DeepSeek V4": ("scale", EXPONENTS, FP8 | {"scale_fmt": "ue8m0"}, blocks(EXPONENTS, 128, 128)),
    "MXFP8": ("weight_scale_inv", BYTES, {"quant_method": "mxfp8"}, blocks(_POWERS, 1, 30)),
    "Mistral": ("qscale_weight", ONE, {"quant_method": "fp8"}, ONE),
    "one": ("weight_scale", ONE, {"quant_method": "fp8", "activation_scheme": "static"}, ONE),
    "scalar": ("weight_scale", ONE[0], {"quant_method": "modelopt", "quant_algo": "FP8"}, ONE[0]),
}


@pytest.mark.parametrize(("name", "scale", "settings", "factor"), CASES.values(), ids=CASES.keys())
def test_values_are_numbers_times_scales(
    tmp_path: Path, name: str, scale: torch.Tensor, settings: dict[str, Any], factor: torch.Tensor
) -> None:
    others = {"a.input_scale": scales(1), "a.bias": scales(N), "norm.weight": scales(K, dtype=torch.bfloat16)}
    found = opened(tmp_path, {"a.weight": NUMBERS, f"a.{name}": scale.clone()} | others, settings)
    assert set(found) == {"a.weight", "a.bias", "norm.weight"}
    tensor, expected = found["a.weight"], (NUMBERS.float() * factor).numpy()
    assert (tensor.type, tensor.shape, tensor.nbytes) == ("F8_E4M3", (N, K), N * K)
    np.testing.assert_array_equal(tensor.data, NUMBERS.view(torch.uint8).numpy().reshape(-1))
    np.testing.assert_array_equal(tensor.dequantise(), expected)
    np.testing.assert_array_equal(tensor.rows(120, 140).dequantise(), expected[120:140])
    order = np.random.default_rng(4).permutation(N)
    np.testing.assert_array_equal(tensor.take(order).rows(50, 90).dequantise(), expected[order][50:90])


def test_numbers_without_scales_are_the_values(tmp_path: Path) -> None:
    other = NUMBERS.float().to(torch.float8_e5m2)
    for settings in (None, FP8):
        found = opened(tmp_path, {"a.weight": NUMBERS, "b.weight": other}, settings)
        np.testing.assert_array_equal(found["a.weight"].dequantise(), NUMBERS.float().numpy())
        np.testing.assert_array_equal(found["b.weight"].dequantise(), other.float().numpy())


@pytest.mark.parametrize("shape", [(3, 2, 3), (3, N), (3, N, 1), (3, 1, 1), (3,), (1,)])
def test_stacks_of_experts(tmp_path: Path, shape: tuple[int, ...]) -> None:
    numbers = torch.randn(3, N, K).to(torch.float8_e4m3fn)
    scale = scales(*shape)
    tensor = opened(tmp_path, {"e.weight": numbers, "e.weight_scale_inv": scale}, FP8)["e.weight"]
    for index in range(3):
        own = scale[index if shape[0] == 3 else 0]
        factor = blocks(own, 128, 128) if own.shape == (2, 3) else own.reshape(-1, 1)
        expected = (numbers[index].float() * factor).numpy()
        np.testing.assert_array_equal(tensor.part(index).dequantise(), expected)
        np.testing.assert_array_equal(tensor.dequantise()[index], expected)
        np.testing.assert_array_equal(tensor.take([2, index]).part(1).dequantise(), expected)
        np.testing.assert_array_equal(tensor.rows(index, 3).part(0).dequantise(), expected)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        BadCheckpoint, match=r"a\.weight_scale_inv has the shape \(3, 3\).*a\.weight of shape \(200, 300\)"
    ):
        opened(tmp_path, {"a.weight": NUMBERS, "a.weight_scale_inv": scales(3, 3)}, FP8)
    with pytest.raises(BadCheckpoint, match=r"weight_block_size is \[0, 128\]"):
        opened(tmp_path, {"a.weight": NUMBERS}, FP8 | {"weight_block_size": [0, 128]})
    packed = {"a.weight": NUMBERS.view(torch.uint8), "a.weight_scale": scales(N, 2)}
    with pytest.raises(UnsupportedModel, match=r"a\.weight is U8 .*'INT4_AWQ'"):
        opened(tmp_path, packed, {"quant_method": "modelopt", "quant_algo": "INT4_AWQ"})
    with pytest.raises(UnsupportedModel, match=r"'spqr'.*GGUF"):
        opened(tmp_path, {"a.weight": NUMBERS}, {"quant_method": "spqr"})
    with pytest.raises(UnsupportedModel, match="None"):
        opened(tmp_path, {"a.weight": NUMBERS}, {})
    (tmp_path / "config.json").write_text('{"quantization_config": 5}')
    with pytest.raises(BadCheckpoint, match="quantization_config is not a table"):
        open_checkpoint(tmp_path)


def test_experts_in_mxfp4(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(5)
    packed = torch.randint(0, 256, (3, 10, 4, 16), dtype=torch.uint8, generator=generator)
    exponents = torch.randint(0, 255, (3, 10, 4), dtype=torch.uint8, generator=generator)
    exponents[0, 0] = torch.tensor([0, 1, 2, 254])
    names = {"e.up_proj_blocks": packed, "e.up_proj_scales": exponents, "e.up_proj_bias": torch.zeros(3, 10)}
    found = opened(tmp_path, names, {"quant_method": "mxfp4"})
    assert set(found) == {"e.up_proj", "e.up_proj_bias"}
    tensor = found["e.up_proj"]
    assert (tensor.type, tensor.shape, tensor.nbytes) == ("MXFP4", (3, 10, 128), 3 * 10 * 4 * 17)
    levels = torch.tensor(
        [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64
    )
    # neighbours share a byte
    nibbles = torch.stack([packed & 15, packed >> 4], dim=-1).reshape(3, 10, 4, 32).long()
    values = (
        torch.ldexp(levels[nibbles], exponents[..., None].int() - 127).float().reshape(3, 10, 128).numpy()
    )
    np.testing.assert_array_equal(tensor.dequantise(), values)
    np.testing.assert_array_equal(tensor.part(2).dequantise(), values[2])
    np.testing.assert_array_equal(tensor.part(1).rows(3, 7).dequantise(), values[1, 3:7])
    np.testing.assert_array_equal(tensor.part(1).take([9, 0, 3]).dequantise(), values[1][[9, 0, 3]])
    assert tensor.part(1).rows(3, 7).data.size == 4 * 4 * 17
    with pytest.raises(BadCheckpoint, match=r"e\.up_proj_blocks has no scales"):
        opened(tmp_path, {"e.up_proj_blocks": packed}, {"quant_method": "mxfp4"})
    with pytest.raises(BadCheckpoint, match=r"e\.up_proj_scales of U8 \(3, 10, 3\) do not belong together"):
        opened(
            tmp_path,
            names | {"e.up_proj_scales": exponents[:, :, :3].contiguous()},
            {"quant_method": "mxfp4"},
        )


def test_a_whole_model_computes_with_what_its_numbers_mean(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", TINY)
    quantised: dict[str, torch.Tensor] = {}
    plain: dict[str, torch.Tensor] = {}
    for name, values in load_file(folder / "model.safetensors").items():
        quantised[name] = plain[name] = values
        if "_proj.weight" in name:
            scale = values.abs().amax() / 448
            quantised[name] = (values / scale).to(torch.float8_e4m3fn)
            quantised[f"{name}_scale_inv"] = scale.expand(
                -(-values.shape[0] // 128), -(-values.shape[1] // 128)
            ).contiguous()
            plain[name] = quantised[name].float() * scale
    save_file(plain, folder / "model.safetensors")
    expected = logits(load(folder), range(3, 30))
    config = json.loads((folder / "config.json").read_text())
    opened(folder, quantised, FP8)  # writes the weights
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": FP8}))
    np.testing.assert_array_equal(logits(load(folder), range(3, 30)), expected)


@pytest.mark.parametrize("transposed", [True, False])
def test_scales_of_square_stacks(tmp_path: Path, transposed: bool) -> None:
    """FBGEMM has the scales of the last stack as a column, though they are of its outputs: columns where the
    fused stack is transposed, else rows.
    """
    numbers = torch.randn(2, 16, 16, generator=GENERATOR).to(torch.float8_e4m3fn)
    scale, fused = scales(2, 16, 1), scales(2, 1, 32) if transposed else scales(2, 32, 1)
    tensors = {"a.down_proj": numbers, "a.down_proj_scale": scale, "a.gate_up_proj_scale": fused}
    found = opened(tmp_path, tensors, {"quant_method": "fbgemm_fp8"})["a.down_proj"].dequantise()
    np.testing.assert_array_equal(found, (numbers.float() * (scale.mT if transposed else scale)).numpy())
