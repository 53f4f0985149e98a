"""Talkie, which transformers has no class for: GGUF files against llama.cpp and against its makers' forward
written out in PyTorch, in any cut, on both backends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import linear, silu

from engine.backends.cpu.backend import CpuBackend
from engine.errors import BadCheckpoint
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import ROPE, SMALL, ids
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.engine.models.oracle import load, logits
from tests.engine.models.test_gguf_by_llama_cpp import by_llama_cpp

TOKENS, LAYERS, HEADS, DIM, BASE = ids(60), 3, 4, 16, 700.0
CUTS = [1, 7, 8, 21, 59]
EPS = float(np.finfo(np.float32).eps)
CONFIG: dict[str, Any] = {
    **SMALL, "num_hidden_layers": LAYERS, "num_key_value_heads": HEADS, "head_dim": DIM, "rms_norm_eps": EPS,
    ROPE: {"rope_type": "default", "rope_theta": BASE},
}  # fmt: skip
Tensors = dict[str, Any]


def tensors(gains: bool = True) -> Tensors:
    """Random weights under GGUF's names; without the `gains` of halves as converters fold them."""
    rng, width, inner = np.random.default_rng(9), 64, 96

    def matrix(rows: int, columns: int = width, scale: float = 1.5) -> Any:
        return (rng.standard_normal((rows, columns)) * scale / columns**0.5).astype(np.float32)

    def number() -> Any:
        return rng.uniform(0.4, 1.6, 1).astype(np.float32)

    found = {"model.embed_tokens.weight": matrix(307, scale=3.0), "lm_head.weight": matrix(307, scale=2.0)}
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        found |= {f"{at}attn_{name}.weight": matrix(64) for name in ("q", "k", "v", "output")}
        found[at + "attn_q_norm.weight"] = rng.uniform(0.5, 3, (HEADS, 1)).astype(np.float32)
        found |= {f"{at}ffn_{name}.weight": matrix(inner) for name in ("gate", "up")}
        found[at + "ffn_down.weight"] = matrix(width, inner)
        found[at + "layer_output_scale.weight"] = number()
        own = {f"{at}attn_output.scale": number(), f"{at}ffn_down.scale": number()}
        found |= own if gains else {}
    return found


def write_file(path: Path, gains: bool = True, **changed: Any) -> Path:
    """As llama.cpp's converter writes it."""
    form = GgufForm("talkie", keys=lambda config: {"logit_scale": 0.4, **changed}, alike=("llama",))
    return write_gguf(path, form, CONFIG, tensors(gains))


def normed(x: torch.Tensor) -> torch.Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + EPS).sqrt()


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Heads (H, T, D), in halves, rotated by rope."""
    angles = torch.arange(len(TOKENS))[:, None] / BASE ** (torch.arange(DIM // 2) / (DIM / 2))
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def forward(gains: bool = True) -> Any:
    """The logits (T, V) in float64."""
    weights = {name: torch.from_numpy(values).double() for name, values in tensors(gains).items()}
    count = len(TOKENS)
    x = first = normed(weights["model.embed_tokens.weight"][TOKENS])
    later = torch.ones(count, count, dtype=torch.bool).triu(1)
    for layer in range(LAYERS):
        own = {
            name.removeprefix(f"blk.{layer}."): values
            for name, values in weights.items()
            if name.startswith(f"blk.{layer}.")
        }
        h = normed(x)
        q, k, v = (
            linear(h, own[f"attn_{name}.weight"]).view(count, HEADS, DIM).transpose(0, 1) for name in "qkv"
        )
        q, k = normed(rotated(q)) * own["attn_q_norm.weight"][:, None], normed(rotated(k))
        shares = (q @ k.transpose(1, 2) / DIM**0.5).masked_fill(later, -torch.inf).softmax(-1)
        found = (shares @ v).transpose(0, 1).reshape(count, -1)
        x = x + linear(found, own["attn_output.weight"]) * own.get("attn_output.scale", 1.0)
        h = normed(x)
        inner = silu(linear(h, own["ffn_gate.weight"])) * linear(h, own["ffn_up.weight"])
        x = x + linear(inner, own["ffn_down.weight"]) * own.get("ffn_down.scale", 1.0)
        x = x + first * own["layer_output_scale.weight"]
    return (0.4 * linear(normed(x), weights["lm_head.weight"])).numpy()


def assert_near(found: Any, expected: Any, share: float) -> None:
    assert expected.std() > 0.3
    assert np.abs(found - expected).max() <= share * np.abs(expected).max()


@pytest.mark.parametrize("gains", [True, False], ids=["gains", "folded gains"])
def test_agrees_with_the_makers_forward(gains: bool, tmp_path: Path) -> None:
    found = logits(load(write_file(tmp_path / "m.gguf", gains)), TOKENS, CUTS)
    assert_near(found, forward(gains), 1e-4)


def test_cpu_agrees_with_the_makers_forward(tmp_path: Path) -> None:
    model = load(write_file(tmp_path / "m.gguf"), CpuBackend(threads=2))
    found = logits(model, TOKENS, CUTS)
    model.close()
    assert_near(found, forward(), 3e-4)


@pytest.mark.slow
def test_agrees_with_llama_cpp(tmp_path: Path) -> None:
    path = write_file(tmp_path / "m.gguf")
    assert_near(logits(load(path), TOKENS), by_llama_cpp(path, TOKENS), 1e-4)


def test_broken_files_are_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path / "m.gguf", block_count=LAYERS + 1)
    with pytest.raises(BadCheckpoint, match="lacks tensors"):
        load(path)
    path = write_file(tmp_path / "m.gguf", logit_scale=None)
    with pytest.raises(BadCheckpoint, match=r"no talkie\.logit_scale"):
        read_config(open_checkpoint(path))
