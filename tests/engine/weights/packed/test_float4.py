"""4-bit floats under the names of several tools; what is broken is refused in one sentence.

Files of compressed-tensors 0.20.0 (nvfp4 and mxfp4) were read as its own `decompress` reads them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from engine.backends.cpu.weight import CpuWeight
from engine.backends.cuda.layouts.table import weight_layout_for
from engine.errors import BadCheckpoint
from engine.tensors import RawTensor
from engine.weights import open_checkpoint
from tests.engine.backends.cpu.test_weight_types import unpacked

GENERATOR = torch.Generator().manual_seed(8)
N, K = 12, 96
PACKED = torch.randint(0, 256, (N, K // 2), dtype=torch.uint8, generator=GENERATOR)
LEVELS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
VALUES = LEVELS[torch.stack([PACKED & 15, PACKED >> 4], dim=-1).reshape(N, K).long()]
POWERS = torch.randint(110, 140, (N, K // 32), dtype=torch.uint8, generator=GENERATOR)
SMALL = torch.rand(N, K // 16, generator=GENERATOR).mul(400).to(torch.float8_e4m3fn)
WHOLE = torch.tensor(0.0123)
INPUTS = torch.rand(K, generator=GENERATOR).to(torch.bfloat16)
MX = VALUES * torch.exp2(POWERS.float() - 127).repeat_interleave(32, 1)
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4"}


def compressed(name: str) -> dict[str, Any]:
    weights = {"num_bits": 4, "type": "float", "group_size": 16}
    return {
        "quant_method": "compressed-tensors", "format": name, "config_groups": {"g": {"weights": weights}},
    }  # fmt: skip


def opened(folder: Path, tensors: dict[str, torch.Tensor], settings: dict[str, Any]) -> dict[str, RawTensor]:
    (folder / "config.json").write_text(json.dumps({"quantization_config": settings}))
    save_file(tensors, folder / "model.safetensors")
    return dict(open_checkpoint(folder).tensors)


def scaled(factor: torch.Tensor) -> torch.Tensor:
    return VALUES * factor.repeat_interleave(16, 1)


CASES: dict[str, tuple[dict[str, torch.Tensor], dict[str, Any], str, torch.Tensor]] = {
    "DeepSeek V4": (
        {"a.weight": PACKED.view(torch.int8), "a.scale": POWERS.view(torch.float8_e8m0fnu)}, FP8, "MXFP4", MX,
    ),
    "Quark": ({"a.weight": PACKED, "a.weight_scale": POWERS}, {"quant_method": "quark"}, "MXFP4", MX),
    "mxfp4 of compressed-tensors": (
        {"a.weight_packed": PACKED, "a.weight_scale": POWERS}, compressed("mxfp4-pack-quantized"),
        "MXFP4", MX,
    ),
    "ModelOpt": (
        {
            "a.weight": PACKED, "a.weight_scale": SMALL, "a.weight_scale_2": WHOLE,
            "a.input_scale": WHOLE.clone(), "a.k_scale": WHOLE.clone(),
        }, MODELOPT, "NVFP4", scaled(SMALL.float() * WHOLE),
    ),
    "ModelOpt with AWQ": (
        {
            "a.weight": PACKED, "a.weight_scale": SMALL, "a.weight_scale_2": WHOLE,
            "a.pre_quant_scale": INPUTS,
        }, MODELOPT, "NVFP4", scaled(SMALL.float() * WHOLE) * INPUTS,
    ),
    "mxfp4 of AutoRound": (
        {"a.weight_packed": PACKED, "a.weight_scale": POWERS}, {
            "quant_method": "auto-round", "packing_format": "auto_round:llm_compressor", "data_type": "mx_fp",
        }, "MXFP4", MX,
    ),
    "nvfp4 of compressed-tensors": (
        {
            "a.weight_packed": PACKED, "a.weight_scale": SMALL, "a.weight_global_scale": WHOLE[None],
            "a.input_global_scale": WHOLE[None].clone(),
        }, compressed("nvfp4-pack-quantized"), "NVFP4", scaled(SMALL.float() / WHOLE),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tensors", "settings", "kind", "values"), CASES.values(), ids=CASES.keys())
def test_values(
    tmp_path: Path,
    tensors: dict[str, torch.Tensor],
    settings: dict[str, Any],
    kind: str,
    values: torch.Tensor,
) -> None:
    eight_bits = torch.ones(4, 4).to(torch.float8_e4m3fn)
    found = opened(tmp_path, tensors | {"b.weight": eight_bits, "norm.weight": torch.ones(4)}, settings)
    assert set(found) == {"a.weight", "b.weight", "norm.weight"}
    assert found["b.weight"].type == "F8_E4M3"
    tensor, expected = found["a.weight"], values.numpy()
    assert (tensor.type, tensor.shape) == (kind, (N, K))
    np.testing.assert_array_equal(tensor.dequantise(), expected)
    np.testing.assert_array_equal(tensor.rows(3, 9).take([5, 0, 0]).dequantise(), expected[[8, 3, 3]])
    used = [each for name, each in tensors.items() if not name.endswith(("input_scale", "k_scale"))]
    own = sum(each.nbytes for each in used) - (4 if "a.input_global_scale" in tensors else 0)
    assert tensor.nbytes == own


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("factor", [WHOLE, torch.tensor([[0.3], [0.0123]])], ids=["one", "halves"])
def test_nvfp4_is_held_packed(tmp_path: Path, factor: torch.Tensor, divided: bool) -> None:
    """In 5 bits on a CPU, to the last bit where the matrix's number multiplies. Where it divides, scales are
    multiplied by its inverse: one rounding more.
    """
    codes = torch.randint(0, 256, (20, 96), dtype=torch.uint8, generator=GENERATOR)
    small = torch.randint(0, 256, (20, 12), dtype=torch.uint8, generator=GENERATOR)
    small[(small & 127) == 127] = 0x05  # NaN; the other is subnormal
    values = LEVELS[torch.stack([codes & 15, codes >> 4], dim=-1).reshape(20, 192).long()]
    scale = small.view(torch.float8_e4m3fn)
    of_rows = factor.reshape(-1).repeat_interleave(20 // factor.numel())[:, None]
    scales = scale.float() / of_rows if divided else scale.float() * of_rows
    tensors = {"a.weight_scale": scale} | (
        {"a.weight_packed": codes, "a.weight_global_scale": factor}
        if divided
        else {"a.weight": codes, "a.weight_scale_2": factor}
    )
    settings = compressed("nvfp4-pack-quantized") if divided else MODELOPT
    tensor, expected = (
        opened(tmp_path, tensors, settings)["a.weight"],
        values * scales.repeat_interleave(16, 1),
    )
    assert (tensor.type, tensor.shape) == ("NVFP4_64", (20, 192))
    np.testing.assert_array_equal(tensor.dequantise(), expected.numpy())
    held = CpuWeight(tensor.take(np.arange(20)[::-1]))
    assert held.nbytes == 32 * 192 * 5 // 8
    np.testing.assert_allclose(unpacked(held)[::-1], expected.numpy(), rtol=2**-22 if divided else 0)
    layout = weight_layout_for(tensor.type)
    assert layout.types == (tensor.type,), "CUDA holds it packed, too"


FACTORS = {
    "one": WHOLE,
    "each": torch.tensor([0.5, 3.0]),
    "halves": torch.tensor([[0.5, 2], [3, 4]])[..., None],
}


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("factor", FACTORS.values(), ids=FACTORS.keys())
def test_stacks_of_nvfp4(tmp_path: Path, flipped: bool, factor: torch.Tensor) -> None:
    """Bytes run along the rows or, as in Llama 4's files of ModelOpt, along the columns; there is one number
    for all, for each expert, or for each expert's gate and up.
    """
    packed, small = torch.stack([PACKED, PACKED.flip(0)]), torch.stack([SMALL.float(), SMALL.float().flip(0)])
    of_rows = (
        factor.reshape(*factor.shape[:2], *[1] * (2 - factor.dim())).expand(2, 2).repeat_interleave(N // 2, 1)
    )
    values = torch.stack([VALUES, VALUES.flip(0)]) * (small * of_rows[..., None]).repeat_interleave(16, 2)
    scale = small.to(torch.float8_e4m3fn)
    if flipped:
        packed, scale = packed.mT.contiguous(), scale.view(torch.uint8).mT.contiguous().view(scale.dtype)
    stem = "experts.gate_up_proj"
    tensors = {stem: packed, f"{stem}_weight_scale": scale, f"{stem}_weight_scale_2": factor}
    found = opened(tmp_path, tensors | {f"{stem}_input_scale": WHOLE.clone()}, MODELOPT)
    assert set(found) == {stem + ".weight"}
    stack = found[stem + ".weight"]
    assert stack.shape == (2, N, K)
    np.testing.assert_array_equal(stack.dequantise(), values.numpy())
    part = stack.part(1).take([5, 0, 0]).rows(0, 2)
    np.testing.assert_array_equal(part.dequantise(), values[1][[5, 0]].numpy())
    assert stack.nbytes == sum(each.nbytes for each in tensors.values())


def test_settings_of_modelopt_in_a_file_of_their_own(tmp_path: Path) -> None:
    opened(tmp_path, CASES["ModelOpt"][0], MODELOPT)
    (tmp_path / "config.json").write_text("{}")
    own = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(own))
    tensor = open_checkpoint(tmp_path).tensors["a.weight"]
    np.testing.assert_array_equal(tensor.dequantise(), CASES["ModelOpt"][3].numpy())


def test_a_number_of_zero_is_no_warning(tmp_path: Path) -> None:
    tensors, settings, _kind, values = CASES["nvfp4 of compressed-tensors"]
    tensors = tensors | {"a.weight_global_scale": torch.zeros(1)}
    found = opened(tmp_path, tensors, settings)["a.weight"].dequantise()
    assert np.isinf(found[values.numpy() != 0]).all()


def test_what_is_broken_is_named(tmp_path: Path) -> None:
    plain = CASES["ModelOpt"][0]
    with pytest.raises(BadCheckpoint, match=r"a\.weight_scale_2 is missing"):
        opened(tmp_path, {name: each for name, each in plain.items() if name != "a.weight_scale_2"}, MODELOPT)
    with pytest.raises(BadCheckpoint, match=r"a\.weight_scale_2 is F32 of shape \(3,\).*one number"):
        opened(tmp_path, plain | {"a.weight_scale_2": torch.ones(3)}, MODELOPT)
    for cut in (SMALL[:, :5], SMALL[:5], SMALL[0], SMALL.view(1, N, K // 16)):
        with pytest.raises(BadCheckpoint, match=r"a\.weight_scale of shape .* for 16 inputs"):
            opened(tmp_path, plain | {"a.weight_scale": cut.contiguous()}, MODELOPT)
    with pytest.raises(BadCheckpoint, match=r"a\.pre_quant_scale is BF16 of shape \(5,\).*\(96,\)"):
        opened(tmp_path, plain | {"a.pre_quant_scale": INPUTS[:5].clone()}, MODELOPT)
    stack = {"a.weight": PACKED[None], "a.weight_scale": SMALL[None, :, :5], "a.weight_scale_2": WHOLE}
    for each in (stack, stack | {"a.weight_scale": SMALL.clone()}):
        with pytest.raises(BadCheckpoint, match=r"a\.weight of shape \((1, )?12, 48\)"):
            opened(tmp_path, {name: some.contiguous() for name, some in each.items()}, MODELOPT)
    short = POWERS[:, :2].contiguous().view(torch.float8_e8m0fnu)
    with pytest.raises(BadCheckpoint, match=r"a\.scale of shape \(12, 2\).* for 32 inputs"):
        opened(tmp_path, {"a.weight": PACKED, "a.scale": short}, FP8)
