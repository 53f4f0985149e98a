"""BitNet's packed folders against the packing of transformers, and against the same numbers unpacked."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from engine.backends.cpu.backend import CpuBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.weights import open_checkpoint
from tests.engine.models.architectures import ids, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import SixteenBits, load, logits

SETTINGS = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}


def _folders(tmp_path: Path, wide: bool, settings: dict[str, Any]) -> tuple[Path, Path]:
    """The same model in plain numbers and packed; `wide` matrices have columns for whole blocks."""
    from dataclasses import replace

    with warnings.catch_warnings():  # the module compiles others of its functions in a way that torch left
        warnings.simplefilter("ignore", DeprecationWarning)
        from transformers.integrations.bitnet import pack_weights

    case = BY_NAME["BitNet"]
    sizes = {"hidden_size": 256, "intermediate_size": 512} if wide else {}
    plain = write_checkpoint(replace(case, settings={**case.settings, **sizes}), tmp_path / "plain")
    packed, rng = tmp_path / "packed", np.random.default_rng(3)
    packed.mkdir()
    tensors, small = load_file(plain / "model.safetensors"), {}
    for name, values in list(tensors.items()):
        small[name] = values
        if "_proj.weight" in name:
            ternary, scale = rng.integers(-1, 2, values.shape), np.float32(0.125)
            tensors[name] = (ternary * scale).astype(np.float32)
            small[name] = pack_weights(torch.from_numpy(ternary.astype(np.float32))).numpy()
            multiplied = settings["linear_class"] == "autobitlinear"
            small[name + "_scale"] = np.array([scale if multiplied else 1 / scale], np.float32)
    save_file(tensors, plain / "model.safetensors")
    save_file(small, packed / "model.safetensors")
    config = json.loads((plain / "config.json").read_text("utf-8"))
    (packed / "config.json").write_text(json.dumps(config | {"quantization_config": settings}), "utf-8")
    for file in plain.glob("tokenizer*"):
        (packed / file.name).write_bytes(file.read_bytes())
    return plain, packed


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("linear", ["autobitlinear", "bitlinear"])
@pytest.mark.parametrize("wide", [False, True])
def test_packed_matrices_are_the_plain_ones(tmp_path: Path, wide: bool, linear: str) -> None:
    plain, packed = _folders(tmp_path, wide, SETTINGS | {"linear_class": linear})
    expected, found = open_checkpoint(plain).tensors, open_checkpoint(packed).tensors
    assert set(found) == set(expected)
    name = "model.layers.1.mlp.down_proj.weight"
    assert found[name].type == ("TQ2_0" if wide else "F32")
    for each in (name, "model.layers.0.self_attn.q_proj.weight"):
        assert np.array_equal(found[each].dequantise(), expected[each].dequantise())
        assert found[each].nbytes == expected[each].dequantise().size // 4
        chosen = found[each].rows(8, 48).take([3, 1, 39])
        assert np.array_equal(chosen.dequantise(), expected[each].dequantise()[[11, 9, 47]])


@pytest.mark.slow
def test_a_packed_model_runs(tmp_path: Path) -> None:
    plain, packed = _folders(tmp_path, True, SETTINGS)
    tokens = ids(40)
    exact = logits(load(plain, ReferenceBackend()), tokens)
    np.testing.assert_allclose(
        logits(load(packed, ReferenceBackend()), tokens), exact, atol=1e-5 * np.abs(exact).max()
    )
    rounded = logits(load(packed, SixteenBits()), tokens)
    model = load(packed, CpuBackend(threads=1))
    found = logits(model, tokens)
    model.close()
    assert np.abs(found - rounded).max() <= 1e-3 * np.abs(exact).max()


def test_other_forms_are_refused(tmp_path: Path) -> None:
    _, packed = _folders(tmp_path, True, SETTINGS)
    config = json.loads((packed / "config.json").read_text("utf-8"))
    other = config | {"quantization_config": SETTINGS | {"quantization_mode": "online"}}
    (packed / "config.json").write_text(json.dumps(other), "utf-8")
    with pytest.raises(UnsupportedModel, match="weights of BitNet that are not packed"):
        open_checkpoint(packed)
    (packed / "config.json").write_text(json.dumps(config), "utf-8")
    tensors = load_file(packed / "model.safetensors")
    del tensors["model.layers.0.mlp.up_proj.weight_scale"]
    save_file(tensors, packed / "model.safetensors")
    with pytest.raises(BadCheckpoint, match=r"up_proj.weight of shape .* not a packed matrix"):
        open_checkpoint(packed)
