"""Folders that Google quantised, against transformers' classes for them; what cannot be read is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.backends.cpu.backend import CpuBackend
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.tensors import RawTensor
from engine.weights import open_checkpoint
from engine.weights.facts import quantisation_name
from tests.engine.models.architectures import ids, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load, logits

GENERATOR = torch.Generator().manual_seed(5)
ROWS, COLUMNS = 12, 64
SETTINGS: dict[str, Any] = {"quant_method": "gemma", "num_bits": 4}


def packed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes from -2^(bits - 1) on, lowest bits first."""
    if bits == 8:
        return codes.to(torch.int8)
    shifted = (codes + (1 << (bits - 1))).to(torch.uint8)
    each = 8 // bits
    return sum(
        (shifted[:, at::each] << (bits * at) for at in range(each)), torch.zeros((), dtype=torch.uint8)
    )


def quantised(values: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The bytes, and a scale for each row."""
    half = 1 << (bits - 1)
    scale = values.abs().amax(1, keepdim=True).float() / half
    codes = (values / scale).round().clamp(-half, half - 1).int()
    return packed(codes, bits), scale


def opened(folder: Path, tensors: dict[str, torch.Tensor], **more: Any) -> dict[str, RawTensor]:
    (folder / "config.json").write_text(json.dumps({"quantization_config": SETTINGS | more}))
    save_file(
        {name: each.clone().contiguous() for name, each in tensors.items()}, folder / "model.safetensors"
    )
    assert quantisation_name(open_checkpoint(folder)) == "Gemma 4-bit"
    return dict(open_checkpoint(folder).tensors)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_matrices_and_tables(bits: int, tmp_path: Path) -> None:
    from transformers.integrations.gemma_quant import QuantizedEmbedding, QuantizedLinear

    codes = torch.randint(-(1 << (bits - 1)), 1 << (bits - 1), (ROWS, COLUMNS), generator=GENERATOR)
    linear = QuantizedLinear(COLUMNS, ROWS, num_bits=bits).requires_grad_(False)
    linear.weight.data, linear.weight_scale.data = (
        packed(codes, bits),
        torch.rand(ROWS, 1, generator=GENERATOR),
    )
    table = QuantizedEmbedding(ROWS, COLUMNS, torch.float32, num_bits=bits).requires_grad_(False)
    table.embedding_quantized.data = linear.weight.data
    table.embedding_scale.data = torch.rand(ROWS, 2, generator=GENERATOR)
    tensors = {f"m.a.{name}": each.data for name, each in linear.named_parameters()}
    tensors |= {f"e.{name}": each.data for name, each in table.named_parameters()}
    own = {r"\.a$": {"num_bits": bits}, "^e": {"num_bits": bits}, "a": {"num_bits": 2}}
    found = opened(tmp_path, tensors | {"m.norm.weight": torch.ones(3)}, module_quant_configs=own)
    assert set(found) == {"m.a.weight", "e.weight", "m.norm.weight"}
    np.testing.assert_array_equal(found["m.a.weight"].dequantise(), linear._dequantize_weights().numpy())
    np.testing.assert_array_equal(found["e.weight"].take([7, 2]).dequantise(), table.weight[[7, 2]].numpy())


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    tensors = {"a.weight": torch.zeros(ROWS, 32, dtype=torch.uint8), "a.weight_scale": torch.ones(ROWS, 1)}
    for pattern in ("a(", "(a*)*", "a{99999999999999999999}"):
        with pytest.raises(UnsupportedModel, match="states the bits of a by '"):
            opened(tmp_path, tensors, module_quant_configs={pattern: {"num_bits": 4}})
    with pytest.raises(UnsupportedModel, match="states the bits of a by 3,"):
        opened(tmp_path, tensors, module_quant_configs={"a": {"num_bits": 3}})
    with pytest.raises(BadCheckpoint, match="whole words of 4-bit codes"):
        opened(tmp_path, tensors | {"a.weight": torch.zeros(ROWS, 30, dtype=torch.uint8)})
    with pytest.raises(BadCheckpoint, match=r"weight_scale is F32 of shape \(5, 1\)"):
        opened(tmp_path, tensors | {"a.weight_scale": torch.ones(5, 1)})


@pytest.mark.slow
def test_a_model_with_quantised_embeddings(tmp_path: Path) -> None:
    """transformers' logits, with other bits for some modules; activations are not rounded without scales."""
    from transformers import AutoModelForCausalLM

    case = BY_NAME["Gemma 4, a second embedding and shared layers"]
    case = replace(case, settings={**case.settings, "tie_word_embeddings": False})
    write_checkpoint(case, tmp_path)
    made = dict[str, torch.Tensor]()
    for name, values in load_file(tmp_path / "model.safetensors").items():
        stem = name.removesuffix(".weight")
        if ".embed_tokens" in name:
            made[f"{stem}.embedding_quantized"], made[f"{stem}.embedding_scale"] = quantised(values, 8)
        elif values.ndim == 2 and name.endswith("proj.weight"):
            bits = 8 if ".mlp." in name else 4
            made[name], made[f"{stem}.weight_scale"] = quantised(values, bits)
            for end in ("input", "output"):
                made[f"{stem}.{end}_activation_scale"] = torch.tensor(0.0)
        else:
            made[name] = values
    save_file({name: each.contiguous() for name, each in made.items()}, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    own = {"embed_tokens": {"num_bits": 8}, r"\.mlp\.": {"num_bits": 8}}
    left = [
        name.removesuffix(".weight") for name in made if name.endswith(("gate.weight", "projection.weight"))
    ]
    config["quantization_config"] = {
        **SETTINGS, "quantize_embeddings": True, "module_quant_configs": own,
        "modules_to_not_convert": ["lm_head", *left],
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager")
    with torch.inference_mode():
        expected = model(torch.tensor([ids(case.length)]), use_cache=False).logits[0].numpy()
    assert expected.std() > 0.3
    for backend in (None, CpuBackend(threads=2)):
        ours = load(tmp_path, backend)
        found = logits(ours, ids(case.length), context=case.length)
        ours.close()
        assert np.abs(found - expected).max() <= 1e-3 * np.abs(expected).max()
