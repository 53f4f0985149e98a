"""Mixtures and latent attention as mlx-lm writes them: stacks of quantised experts, and of a matrix for each
head, against folders of decoded weights.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.backends.cpu.backend import CpuBackend
from engine.models.load import survey
from engine.weights import open_checkpoint
from tests.engine.models.architectures import ids, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.gguf_form import stacked_experts
from tests.engine.models.oracle import load, logits
from tests.engine.weights.packed.test_mlx import affine
from tests.tiny_packed import Tensors

_STACK = re.compile(r"(.*)\.experts\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.weight")
_MIXTRAL = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def apart(tensors: Tensors, alternate: bool) -> Tensors:
    """The makers' stacks as (X, N, K), gate and up apart, and biases likewise."""
    out = stacked_experts(tensors)
    for name in [name for name in out if ".experts.gate_up_proj" in name or ".experts.down_proj" in name]:
        if name.endswith(".weight"):
            continue
        values, end = out.pop(name), ".bias" if name.endswith("_bias") else ".weight"
        at = name.removesuffix("_bias")
        values = values if end == ".bias" else values.swapaxes(1, 2)
        if at.endswith("down_proj"):
            out[at + end] = values
            continue
        half = values.shape[1] // 2
        gate, up = (values[:, ::2], values[:, 1::2]) if alternate else (values[:, :half], values[:, half:])
        out |= {at.replace("gate_up", "gate") + end: gate, at.replace("gate_up", "up") + end: up}
    return out


def written(folder: Path, alternate: bool, bits: int, switch: bool) -> Tensors:
    """Turn the folder into MLX's. Returns the makers' tensors with the values that it holds."""
    tensors: Tensors = load_file(folder / "model.safetensors")
    stored: Tensors = {}
    for name, values in apart(tensors, alternate).items():
        match = _STACK.fullmatch(name)
        if match is None:
            stored[name] = np.ascontiguousarray(values)
            continue
        stem = f"{match[1]}.{'switch_mlp' if switch else 'experts'}.{_MIXTRAL.get(match[2], match[2])}"
        drawn = []
        for _expert in values:
            parts, _unused = affine(
                bits, 32 if values.shape[2] % 32 == 0 else values.shape[2], *values.shape[1:]
            )
            drawn.append(parts | {part: parts[part] * np.float16(0.1) for part in ("a.scales", "a.biases")})
        stored |= {part.replace("a", stem, 1): np.stack([each[part] for each in drawn]) for part in drawn[0]}
    save_file(stored, folder / "model.safetensors")
    config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
    settings = {"bits": bits, "group_size": 32}
    (folder / "config.json").write_text(json.dumps(config | {"quantization": settings}), "utf-8")
    return _meant(folder, tensors, alternate)


def _meant(folder: Path, tensors: Tensors, alternate: bool) -> Tensors:
    found = {name: tensor.dequantise() for name, tensor in open_checkpoint(folder).tensors.items()}
    out = dict(tensors)
    for name, values in tensors.items():
        match = re.fullmatch(r"(.*\.experts)\.(\d+)\.(.*)", name)
        if match is not None:
            out[name] = found[f"{match[1]}.{match[3]}"][int(match[2])]
        elif name.endswith(".experts.down_proj"):
            out[name] = np.ascontiguousarray(found[name + ".weight"].swapaxes(1, 2))
        elif name.endswith(".experts.gate_up_proj"):
            both = [found[name.replace("gate_up", part) + ".weight"] for part in ("gate", "up")]
            joined = (
                np.stack(both, 2).reshape(values.shape[0], -1, values.shape[1])
                if alternate
                else (np.concatenate(both, 1))
            )
            out[name] = np.ascontiguousarray(joined.swapaxes(1, 2))
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "bits", "switch"),
    [
        ("Qwen 3 mixture of experts", 4, True), ("Mixtral", 8, True), ("GPT-OSS", 4, False),
        ("Llama 4", 4, False),
    ],
)  # fmt: skip
def test_stacks_of_experts(tmp_path: Path, name: str, bits: int, switch: bool) -> None:
    """The reference to the last bit, the CPU backend nearly so; the memory estimate is exact."""
    folder = write_checkpoint(BY_NAME[name], tmp_path / "m")
    plain = (folder / "config.json").read_text("utf-8")
    meant = written(folder, name == "GPT-OSS", bits, switch)
    ids = list(range(3, 40))
    found, quick = logits(load(folder), ids), load(folder, CpuBackend(2))
    near = logits(quick, ids)
    assert survey(open_checkpoint(folder), CpuBackend(2)).bytes == quick.resident_bytes
    quick.close()
    save_file(meant, folder / "model.safetensors")
    (folder / "config.json").write_text(plain, "utf-8")
    np.testing.assert_array_equal(found, logits(load(folder), ids))
    assert np.abs(near - found).max() < 1e-2 * np.abs(found).max()


@pytest.mark.parametrize("name", ["DeepSeek V3", "LongCat-Flash", "GLM-4.7-Flash", "Ling 3", "DeepSeek V3.2"])
def test_a_matrix_for_each_head(name: str, tmp_path: Path) -> None:
    """Of queries to the latent, and of the latent to values, in place of one of all keys and values."""
    folder = write_checkpoint(BY_NAME[name], tmp_path / "m")
    config, tensors = json.loads((folder / "config.json").read_text("utf-8")), dict[str, Any]()
    heads, keys = config["num_attention_heads"], config["qk_nope_head_dim"]
    before, found = logits(load(folder), ids(30)), 0
    for key, values in load_file(folder / "model.safetensors").items():
        if not key.endswith(".kv_b_proj.weight"):
            tensors[key] = values
            continue
        at, stack = key.removesuffix("kv_b_proj.weight"), values.reshape(heads, -1, values.shape[1])
        tensors[at + "embed_q.weight"] = np.ascontiguousarray(stack[:, :keys].swapaxes(1, 2))
        tensors[at + "unembed_out.weight"] = np.ascontiguousarray(stack[:, keys:])
        found += 1
    assert found
    save_file(tensors, folder / "model.safetensors")
    np.testing.assert_array_equal(logits(load(folder), ids(30)), before)


@pytest.mark.parametrize("name", ["Qwen 3.5", "Qwen3-Next", "LFM2"])
def test_convolutions(name: str, tmp_path: Path) -> None:
    """Of another shape. Norms of Qwen's have their offset, and those of 3.5 are within the whole model."""
    folder, found = write_checkpoint(BY_NAME[name], tmp_path / "m"), 0
    before, tensors = logits(load(folder), ids(30)), dict[str, Any]()
    at, qwen = "language_model." if name == "Qwen 3.5" else "", name != "LFM2"
    norms = ("layernorm.weight", "model.norm.weight", ".q_norm.weight", ".k_norm.weight")
    for key, values in load_file(folder / "model.safetensors").items():
        if values.ndim == 3 and values.shape[1] == 1:
            values, found = np.ascontiguousarray(values.swapaxes(1, 2)), found + 1
        elif qwen and key.endswith(norms):
            values = values + 1
        tensors[at + key] = values
    assert found
    save_file(tensors, folder / "model.safetensors")
    np.testing.assert_allclose(logits(load(folder), ids(30)), before, atol=1e-5 * np.abs(before).max())
