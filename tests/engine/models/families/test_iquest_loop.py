"""IQuest-Coder Loop, which transformers has no class for: folders against the makers' forward written out in
PyTorch, in any cut, on both backends.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch.nn.functional import linear, rms_norm, silu

from engine.backends.base import Backend
from engine.backends.cpu.backend import CpuBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.errors import BadCheckpoint, EngineError, UnsupportedModel
from engine.models.config.hyper import Loops
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import SMALL, Floats, ids
from tests.engine.models.oracle import after_rewinding, load, logits
from tests.tiny import write_tokenizer

TOKENS, CUTS, LAYERS, DIM, WINDOW = ids(60), [1, 7, 8, 21, 59], 3, 24, 9
CONFIG: dict[str, Any] = {
    **SMALL, "architectures": ["IQuestLoopCoderForCausalLM"], "model_type": "iquestloopcoder",
    "num_hidden_layers": LAYERS, "head_dim": DIM, "rms_norm_eps": 1e-5, "rope_theta": 700.0,
    "loop_num": 2, "loop_window_size": WINDOW, "tie_word_embeddings": False, "attention_bias": False,
    "mlp_bias": False,
}  # fmt: skip


@cache
def tensors() -> dict[str, Floats]:
    rng, width, inner = np.random.default_rng(9), 64, CONFIG["intermediate_size"]

    def matrix(rows: int, columns: int = width, scale: float = 1.5) -> Floats:
        return (rng.standard_normal((rows, columns)) * scale / columns**0.5).astype(np.float32)

    def near_one() -> Floats:
        return (1 + 0.2 * rng.standard_normal(width)).astype(np.float32)

    found = {"model.embed_tokens.weight": matrix(307, scale=3.0), "lm_head.weight": matrix(307, scale=2.0)}
    found["model.norm.weight"] = near_one()
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name, rows in (("q", 4 * DIM), ("k", 2 * DIM), ("v", 2 * DIM)):
            found[f"{at}self_attn.{name}_proj.weight"] = matrix(rows)
        found[at + "self_attn.o_proj.weight"] = matrix(width, 4 * DIM)
        found |= {f"{at}{name}_layernorm.weight": near_one() for name in ("input", "post_attention")}
        found |= {f"{at}mlp.{name}_proj.weight": matrix(inner) for name in ("gate", "up")}
        found[at + "mlp.down_proj.weight"] = matrix(width, inner)
        gate = f"model.gate_projections.{layer}."
        found |= {gate + "weight": matrix(4, DIM), gate + "bias": matrix(4, 1)[:, 0]}
    return found


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Heads (H, T, D), in halves, rotated by rope."""
    first, second = x.chunk(2, -1)
    angles = torch.arange(x.shape[1])[:, None] / 700.0 ** (torch.arange(DIM // 2) / (DIM / 2))
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int) -> torch.Tensor:
    ahead = torch.arange(q.shape[1])[:, None] - torch.arange(q.shape[1])
    scores = q @ k.repeat_interleave(2, 0).transpose(1, 2) / DIM**0.5
    shares = scores.masked_fill((ahead < 0) | (ahead >= window), -torch.inf).softmax(-1)
    return shares @ v.repeat_interleave(2, 0)


@cache
def forward() -> Floats:
    """The logits (T, V) in float64."""
    weights = {name: torch.from_numpy(values).double() for name, values in tensors().items()}
    x, count = weights["model.embed_tokens.weight"][TOKENS], len(TOKENS)
    earlier: list[tuple[torch.Tensor, torch.Tensor]] = []
    for run in range(2):
        for layer in range(LAYERS):
            at = f"model.layers.{layer}."
            normed = rms_norm(x, (64,), weights[at + "input_layernorm.weight"], 1e-5)
            q, k, v = (
                linear(normed, weights[f"{at}self_attn.{name}_proj.weight"])
                .view(count, -1, DIM)
                .transpose(0, 1)
                for name in "qkv"
            )
            q, k = rotated(q), rotated(k)
            if run == 0:
                earlier.append((k, v))
                found = attended(q, k, v, count)
            else:
                gate = f"model.gate_projections.{layer}."
                share = (q * weights[gate + "weight"][:, None]).sum(-1) + weights[gate + "bias"][:, None]
                share = share.sigmoid()[..., None]
                found = share * attended(q, *earlier[layer], count)
                found = found + (1 - share) * attended(q, k, v, WINDOW)
            found = found.transpose(0, 1).reshape(count, -1)
            x = x + linear(found, weights[at + "self_attn.o_proj.weight"])
            normed = rms_norm(x, (64,), weights[at + "post_attention_layernorm.weight"], 1e-5)
            gate_up = [linear(normed, weights[f"{at}mlp.{name}_proj.weight"]) for name in ("gate", "up")]
            x = x + linear(silu(gate_up[0]) * gate_up[1], weights[at + "mlp.down_proj.weight"])
    x = rms_norm(x, (64,), weights["model.norm.weight"], 1e-5)
    made: Floats = linear(x, weights["lm_head.weight"]).numpy()
    assert made.std() > 0.5
    return made


def write_folder(folder: Path, **changed: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | changed), "utf-8")
    save_file(tensors(), folder / "model.safetensors")
    write_tokenizer(folder)
    return folder


@pytest.mark.parametrize("backend", [ReferenceBackend, CpuBackend])
def test_folder_agrees_with_the_makers_forward(backend: type[Backend], tmp_path: Path) -> None:
    """At once, in steps, and after tokens that are taken back."""
    model, right = load(write_folder(tmp_path / "m"), backend()), forward()
    most = (1e-4 if backend is ReferenceBackend else 1e-3) * np.abs(right).max()
    for found in (
        logits(model, TOKENS), logits(model, TOKENS, CUTS), after_rewinding(model, TOKENS, 33, TOKENS[:9]),
    ):  # fmt: skip
        assert np.abs(found - right).max() <= most
    model.close()


def test_each_run_has_its_own_keys(tmp_path: Path) -> None:
    config = read_config(open_checkpoint(write_folder(tmp_path / "m")))
    assert config.cached_layers == (0, 1, 2, 0, 1, 2)
    assert isinstance(config.cycles, Loops)
    assert (config.cycles.window, config.windows) == (WINDOW, ())


@pytest.mark.parametrize(
    ("key", "value", "error"), [("loop_num", 3, UnsupportedModel), ("loop_window_size", 0, BadCheckpoint)]
)
def test_what_is_refused(key: str, value: int, error: type[EngineError], tmp_path: Path) -> None:
    with pytest.raises(error, match=f"{key} (to|is) {value}"):
        read_config(open_checkpoint(write_folder(tmp_path / "m", **{key: value})))
