"""Maple, which transformers has no class for: folders and GGUF files against its makers' forward written out
in PyTorch, in any cut, on both backends.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch.nn.functional import linear, rms_norm, silu

from engine.backends.cpu.backend import CpuBackend
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import ROPE, SMALL, ids
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.engine.models.oracle import load, logits
from tests.engine.models.test_gguf_by_llama_cpp import by_llama_cpp
from tests.tiny import write_tokenizer

TOKENS, LAYERS, EXPERTS, USED, DIM = ids(60), 4, 6, 2, 16
CUTS = [1, 7, 8, 21, 59]
KINDS = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
CONFIG: dict[str, Any] = {
    **SMALL, "architectures": ["MapleForCausalLM"], "model_type": "maple", "num_hidden_layers": LAYERS,
    "head_dim": DIM, "moe_intermediate_size": 32, "num_experts": EXPERTS, "num_experts_per_tok": USED,
    "rms_norm_eps": 1e-6, "rope_theta": 700.0, "partial_rotary_factor": 0.5, "sliding_window": 12,
    "layer_types": KINDS, "hidden_act": "silu", "norm_topk_prob": True, "num_shared_experts": 0,
    "use_qk_norm": True, "tie_word_embeddings": False, "rope_scaling": None, "use_bias": False,
}  # fmt: skip
Tensors = dict[str, Any]


def tensors() -> Tensors:
    """Random weights; gates and what they multiply are often beyond 7 and -7."""
    rng, width = np.random.default_rng(8), 64

    def matrix(rows: int, columns: int = width, scale: float = 1.5) -> Any:
        return (rng.standard_normal((rows, columns)) * scale / columns**0.5).astype(np.float32)

    def near_one(size: int = width) -> Any:
        return (1 + 0.2 * rng.standard_normal(size)).astype(np.float32)

    found = {"model.word_embeddings.weight": matrix(307, scale=3.0), "lm_head.weight": matrix(307, scale=2.0)}
    found["model.norm.weight"] = near_one()
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name, rows in (("q", 64), ("k", 32), ("v", 32), ("o", 64)):
            found[f"{at}self_attn.{name}_proj.weight"] = matrix(rows)
        found |= {f"{at}{name}_layernorm.weight": near_one() for name in ("input", "post_attention")}
        found |= {f"{at}self_attn.{name}_norm.weight": near_one(DIM) for name in "qk"}
        found[at + "mlp.gate.weight"] = matrix(EXPERTS, scale=4.0)
        for expert in range(EXPERTS):
            name = f"{at}mlp.experts.{expert}."
            found |= {f"{name}{part}_proj.weight": matrix(32, scale=6.0) for part in ("gate", "up")}
            found[name + "down_proj.weight"] = matrix(64, 32, 0.3)
    return found


def forward(limit: float = 7.0) -> Any:
    """The logits (T, V) in float64."""
    weights = {name: torch.from_numpy(values).double() for name, values in tensors().items()}
    x, count = weights["model.word_embeddings.weight"][TOKENS], len(TOKENS)
    ahead = torch.arange(count)[:, None] - torch.arange(count)
    for layer, kind in enumerate(KINDS):
        own = {
            name.removeprefix(f"model.layers.{layer}.").removesuffix(".weight"): values
            for name, values in weights.items()
            if name.startswith(f"model.layers.{layer}.")
        }
        normed = rms_norm(x, (64,), own["input_layernorm"], 1e-6)
        q, k, v = (
            linear(normed, own[f"self_attn.{name}_proj"]).view(count, -1, DIM).transpose(0, 1)
            for name in "qkv"
        )
        q, k = (
            rms_norm(part, (DIM,), own[f"self_attn.{name}_norm"], 1e-6) for part, name in ((q, "q"), (k, "k"))
        )
        seen = ahead >= 0
        if kind == "sliding_attention":
            q, k, seen = rotated(q), rotated(k), seen & (ahead < 12)
        scores = q @ k.repeat_interleave(2, 0).transpose(1, 2) / DIM**0.5
        shares = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        found = (shares @ v.repeat_interleave(2, 0)).transpose(0, 1).reshape(count, -1)
        x = x + linear(found, own["self_attn.o_proj"])
        x = x + mixture(own, rms_norm(x, (64,), own["post_attention_layernorm"], 1e-6), limit)
    return linear(rms_norm(x, (64,), weights["model.norm.weight"], 1e-6), weights["lm_head.weight"]).numpy()


def rotated(x: torch.Tensor) -> torch.Tensor:
    """The first half of each head, itself in halves, rotated by rope."""
    first, second, rest = x[..., : DIM // 4], x[..., DIM // 4 : DIM // 2], x[..., DIM // 2 :]
    angles = torch.arange(len(TOKENS))[:, None] / 700.0 ** (torch.arange(DIM // 4) / (DIM / 4))
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)


def mixture(own: Any, x: torch.Tensor, limit: float) -> torch.Tensor:
    shares, chosen = linear(x, own["mlp.gate"]).softmax(-1).topk(USED)
    shares = shares / shares.sum(-1, keepdim=True)
    out = torch.zeros_like(x)
    for row in range(len(x)):
        for share, expert in zip(shares[row], chosen[row].tolist(), strict=True):
            gate, up, down = (own[f"mlp.experts.{expert}.{name}_proj"] for name in ("gate", "up", "down"))
            inner = silu((gate @ x[row]).clamp(max=limit)) * (up @ x[row]).clamp(-limit, limit)
            out[row] += share * (down @ inner)
    return out


def write_folder(folder: Path, **changed: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | changed), "utf-8")
    save_file(tensors(), folder / "model.safetensors")
    write_tokenizer(folder)
    return folder


def write_file(path: Path, **changed: Any) -> Path:
    """As llama.cpp's converter writes it."""
    keys = {
        "expert_count": EXPERTS, "expert_used_count": USED, "expert_feed_forward_length": 32,
        "attention.sliding_window": 12, "feed_forward_length": None, "swiglu_clamp_exp": [7.0] * LAYERS,
        "attention.sliding_window_pattern": [kind != "full_attention" for kind in KINDS], **changed,
    }  # fmt: skip
    form = GgufForm("maple", keys=lambda config: keys, alike=("qwen3moe",))
    config = {
        **CONFIG, ROPE: {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.5}
    }  # fmt: skip
    config.pop("intermediate_size")
    names = {name.replace("word_embeddings", "embed_tokens"): values for name, values in tensors().items()}
    return write_gguf(path, form, config, names)


def assert_near(found: Any, expected: Any, share: float) -> None:
    assert expected.std() > 0.5
    assert np.abs(found - expected).max() <= share * np.abs(expected).max()


def test_folder_agrees_with_the_makers_forward(tmp_path: Path) -> None:
    assert_near(logits(load(write_folder(tmp_path / "m")), TOKENS, CUTS), forward(), 1e-4)


def test_gguf_file_agrees_with_the_makers_forward(tmp_path: Path) -> None:
    assert_near(logits(load(write_file(tmp_path / "m.gguf")), TOKENS, CUTS), forward(), 1e-4)


@pytest.mark.slow
def test_gguf_file_agrees_with_llama_cpp(tmp_path: Path) -> None:
    path = write_file(tmp_path / "m.gguf")
    assert_near(logits(load(path), TOKENS), by_llama_cpp(path, TOKENS), 1e-4)


@pytest.mark.parametrize(("stated", "limit"), [(None, 7.0), (3.0, 3.0), ([0.0] * LAYERS, 1e9)])
def test_limits_of_gguf_files(stated: Any, limit: float, tmp_path: Path) -> None:
    """Which are 7 in files that do not say, and none where they are 0."""
    path = write_file(tmp_path / "m.gguf", swiglu_clamp_exp=stated)
    found = logits(load(path), TOKENS)
    assert_near(found, forward(limit), 1e-4)
    assert limit == 7.0 or np.abs(found - forward()).max() > 0.05 * np.abs(found).max()


@pytest.mark.slow
def test_cpu_agrees_with_the_makers_forward(tmp_path: Path) -> None:
    model = load(write_folder(tmp_path / "m"), CpuBackend(threads=2))
    found = logits(model, TOKENS, CUTS)
    model.close()
    assert_near(found, forward(), 3e-4)


def test_settings_that_are_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", num_shared_experts=1)
    with pytest.raises(UnsupportedModel, match="sets num_shared_experts to 1"):
        read_config(open_checkpoint(folder))
    folder = write_folder(tmp_path / "n", layer_types=KINDS[:2])
    with pytest.raises(BadCheckpoint, match="layer_types"):
        read_config(open_checkpoint(folder))
    for stated, words in (
        ([7.0] * 2, "4 layers but states swiglu_clamp_exp of 2"),
        ("7", "swiglu_clamp_exp"),
    ):
        path = write_file(tmp_path / "m.gguf", swiglu_clamp_exp=stated)
        with pytest.raises(BadCheckpoint, match=words):
            read_config(open_checkpoint(path))
