"""Ring-linear, which transformers has no class for: folders against its makers' forward written out in
PyTorch, in any cut, on both backends.
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
from tests.engine.models.architectures import SMALL, ids
from tests.engine.models.oracle import load, logits
from tests.tiny import write_tokenizer

TOKENS, LAYERS, EXPERTS, USED, HEADS, DIM, EPS = ids(60), 5, 8, 3, 4, 16, 1e-6
CUTS = [1, 7, 8, 21, 59]
FULL = (1, 3, 4)
"""The second of each two layers, and what is left of five."""
CONFIG: dict[str, Any] = {
    **SMALL, "architectures": ["BailingMoeLinearV2ForCausalLM"], "model_type": "bailing_moe_linear",
    "num_hidden_layers": LAYERS, "head_dim": DIM, "num_key_value_heads": 2, "layer_group_size": 2,
    "group_norm_size": 2, "first_k_dense_replace": 1, "moe_intermediate_size": 32, "num_experts": EXPERTS,
    "num_experts_per_tok": USED, "num_shared_experts": 1, "n_group": 4, "topk_group": 2,
    "norm_topk_prob": True, "routed_scaling_factor": 2.5, "score_function": "sigmoid",
    "moe_router_enable_expert_bias": True, "rms_norm_eps": EPS, "rope_theta": 700.0,
    "partial_rotary_factor": 0.5, "rope_scaling": None, "use_qk_norm": True, "use_qkv_bias": False,
    "use_bias": False, "hidden_act": "silu", "tie_word_embeddings": False, "norm_head": False,
}  # fmt: skip
Tensors = dict[str, Any]


def tensors() -> Tensors:
    rng, width = np.random.default_rng(5), 64

    def matrix(rows: int, columns: int = width, scale: float = 1.5) -> Any:
        return (rng.standard_normal((rows, columns)) * scale / columns**0.5).astype(np.float32)

    def near_one(size: int = width) -> Any:
        return (1 + 0.2 * rng.standard_normal(size)).astype(np.float32)

    found = {"model.word_embeddings.weight": matrix(307, scale=3.0), "lm_head.weight": matrix(307, scale=2.0)}
    found["model.norm.weight"] = near_one()
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        rows = HEADS + 2 * (2 if layer in FULL else HEADS)
        found[at + "attention.query_key_value.weight"] = matrix(rows * DIM)
        found[at + "attention.dense.weight"] = matrix(width)
        found |= {f"{at}attention.{name}_layernorm.weight": near_one(DIM) for name in ("query", "key")}
        if layer not in FULL:
            found[at + "attention.g_proj.weight"] = matrix(width)
            found[at + "attention.g_norm.weight"] = near_one()
        found |= {f"{at}{name}_layernorm.weight": near_one() for name in ("input", "post_attention")}
        names = [("mlp", 96)]
        if layer:
            found[at + "mlp.gate.weight"] = matrix(EXPERTS, scale=3.0)
            found[at + "mlp.gate.expert_bias"] = (0.3 * rng.standard_normal(EXPERTS)).astype(np.float32)
            names = [(f"mlp.experts.{expert}", 32) for expert in range(EXPERTS)]
            names.append(("mlp.shared_experts", 32))
        for name, inner in names:
            found |= {f"{at}{name}.{part}_proj.weight": matrix(inner) for part in ("gate", "up")}
            found[f"{at}{name}.down_proj.weight"] = matrix(width, inner)
    return found


def forward() -> Any:
    """The logits (T, V) in float64."""
    weights = {name: torch.from_numpy(values).double() for name, values in tensors().items()}
    x = weights["model.word_embeddings.weight"][TOKENS]
    for layer in range(LAYERS):
        own = {
            name.removeprefix(f"model.layers.{layer}.").removesuffix(".weight"): values
            for name, values in weights.items()
            if name.startswith(f"model.layers.{layer}.")
        }
        normed = rms_norm(x, (64,), own["input_layernorm"], EPS)
        found = softmax_attention(own, normed) if layer in FULL else lightning(own, normed, layer)
        x = x + linear(found, own["attention.dense"])
        normed = rms_norm(x, (64,), own["post_attention_layernorm"], EPS)
        x = x + (mixture(own, normed) if layer else network(own, "mlp", normed))
    return linear(rms_norm(x, (64,), weights["model.norm.weight"], EPS), weights["lm_head.weight"]).numpy()


def prepared(own: Any, x: torch.Tensor, kv_heads: int) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values (heads, T, D), the first two normed and rotated."""
    qkv = linear(x, own["attention.query_key_value"]).view(len(x), -1, DIM).transpose(0, 1)
    q, k, v = qkv.split([HEADS, kv_heads, kv_heads])
    q, k = (
        rotated(rms_norm(part, (DIM,), own[f"attention.{name}_layernorm"], EPS))
        for part, name in ((q, "query"), (k, "key"))
    )
    return q, k, v


def softmax_attention(own: Any, x: torch.Tensor) -> torch.Tensor:
    q, k, v = prepared(own, x, 2)
    scores = q @ k.repeat_interleave(2, 0).transpose(1, 2) / DIM**0.5
    seen = torch.ones(len(x), len(x), dtype=torch.bool).tril()
    shares = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return (shares @ v.repeat_interleave(2, 0)).transpose(0, 1).reshape(len(x), -1)


def lightning(own: Any, x: torch.Tensor, layer: int) -> torch.Tensor:
    """Each head's memory decays by e^-slope a token; the first layer's slopes are more than whole."""
    q, k, v = prepared(own, x, HEADS)
    slopes = torch.tensor([2.0 ** (-8 * i / HEADS) for i in range(1, HEADS + 1)]).double()
    slopes = slopes * (1 - (layer - 1) / (LAYERS - 1) + 1e-5)
    memory, rows = torch.zeros(HEADS, DIM, DIM).double(), []
    for t in range(len(x)):
        memory = memory * (-slopes).exp()[:, None, None] + k[:, t, :, None] * v[:, t, None]
        rows.append(torch.einsum("hk,hkv->hv", q[:, t] / DIM**0.5, memory).reshape(-1))
    found = torch.stack(rows)
    parts = rms_norm(found.view(len(x), 2, -1), (found.shape[1] // 2,), None, EPS).flatten(1)
    return parts * own["attention.g_norm"] * linear(x, own["attention.g_proj"]).sigmoid()


def rotated(x: torch.Tensor) -> torch.Tensor:
    """The first half of each head, itself in halves, rotated by rope."""
    first, second, rest = x[..., : DIM // 4], x[..., DIM // 4 : DIM // 2], x[..., DIM // 2 :]
    angles = torch.arange(len(TOKENS))[:, None] / 700.0 ** (torch.arange(DIM // 4) / (DIM / 4))
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)


def network(own: Any, name: str, x: torch.Tensor) -> torch.Tensor:
    gate, up = (linear(x, own[f"{name}.{part}_proj"]) for part in ("gate", "up"))
    return linear(silu(gate) * up, own[f"{name}.down_proj"])


def mixture(own: Any, x: torch.Tensor) -> torch.Tensor:
    scores = linear(x, own["mlp.gate"]).sigmoid()
    ranked = (scores + own["mlp.gate.expert_bias"]).view(len(x), 4, -1)
    kept = ranked.topk(2).values.sum(-1).topk(2).indices
    left = torch.full_like(ranked, -torch.inf).scatter(
        1, kept[..., None].expand(-1, -1, 2), ranked.gather(1, kept[..., None].expand(-1, -1, 2))
    )
    chosen = left.flatten(1).topk(USED).indices
    shares = scores.gather(1, chosen)
    shares = shares / shares.sum(-1, keepdim=True) * 2.5
    out = network(own, "mlp.shared_experts", x)
    for row in range(len(x)):
        for share, expert in zip(shares[row], chosen[row].tolist(), strict=True):
            out[row] += share * network(own, f"mlp.experts.{expert}", x[row])
    return out


def write_folder(folder: Path, **changed: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | changed), "utf-8")
    save_file(tensors(), folder / "model.safetensors")
    write_tokenizer(folder)
    return folder


def assert_near(found: Any, expected: Any, share: float) -> None:
    assert expected.std() > 0.5
    assert np.abs(found - expected).max() <= share * np.abs(expected).max()


@pytest.mark.parametrize("name", ["BailingMoeLinearV2ForCausalLM", "BailingMoeLinearForCausalLM"])
def test_folder_agrees_with_the_makers_forward(name: str, tmp_path: Path) -> None:
    model = load(write_folder(tmp_path / "m", architectures=[name]))
    assert_near(logits(model, TOKENS, CUTS), forward(), 1e-4)


@pytest.mark.slow
def test_cpu_agrees_with_the_makers_forward(tmp_path: Path) -> None:
    model = load(write_folder(tmp_path / "m"), CpuBackend(threads=2))
    found = logits(model, TOKENS, CUTS)
    model.close()
    assert_near(found, forward(), 3e-4)


def test_settings_that_are_refused(tmp_path: Path) -> None:
    for number, (setting, value) in enumerate([("linear_silu", True), ("group_norm_size", 3)]):
        folder = write_folder(tmp_path / str(number), **{setting: value})
        with pytest.raises(UnsupportedModel, match=f"sets {setting} to {value}"):
            read_config(open_checkpoint(folder))
    folder = write_folder(tmp_path / "zero", layer_group_size=0)
    with pytest.raises(BadCheckpoint, match="layer_group_size"):
        read_config(open_checkpoint(folder))
