"""Gear, which transformers has no class for: folders against the makers' forward written out in PyTorch, in
any cut, on both backends.
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
from torch.nn.functional import conv1d, gelu, linear, pad, rms_norm

from engine.backends.base import Backend
from engine.backends.cpu.backend import CpuBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.errors import BadCheckpoint, EngineError, UnsupportedModel
from engine.models.config.convolved import GatedValues
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import SMALL, Floats, ids
from tests.engine.models.oracle import after_rewinding, load, logits
from tests.tiny import write_tokenizer

TOKENS, CUTS, DIM, WINDOW, TAPS, WIDTH, EPS = ids(60), [1, 7, 8, 21, 59], 24, 9, 3, 64, 1e-5
KINDS = ["conv_mixer", "sliding_attention", "full_attention", "conv_mixer"]
BASES = {"sliding_attention": 300.0, "full_attention": 7000.0}
CONFIG: dict[str, Any] = {
    **SMALL, "architectures": ["GearForCausalLM"], "model_type": "gear", "num_hidden_layers": len(KINDS),
    "head_dim": DIM, "rms_norm_eps": EPS, "rope_theta": 7000.0, "rope_local_base_freq": 300.0,
    "layer_types": KINDS, "sliding_window": WINDOW, "conv_L_cache": TAPS, "query_pre_attn_scalar": 20,
    "attn_logit_softcapping": 3.0, "final_logit_softcapping": 20.0, "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh", "attention_bias": True, "use_bidirectional_attention": False,
}  # fmt: skip


@cache
def tensors() -> dict[str, Floats]:
    rng, inner = np.random.default_rng(9), CONFIG["intermediate_size"]

    def drawn(*shape: int) -> Floats:
        return (rng.standard_normal(shape) * 1.5 / shape[-1] ** 0.5).astype(np.float32)

    def near_zero(size: int = WIDTH) -> Floats:
        return (0.2 * rng.standard_normal(size)).astype(np.float32)

    found = {"model.embed_tokens.weight": drawn(307, WIDTH), "model.norm.weight": near_zero()}
    for layer, kind in enumerate(KINDS):
        at = f"model.layers.{layer}."
        mixer = at + ("local_mixer." if kind == "conv_mixer" else "self_attn.")
        for name, rows in (("q", 4 * DIM), ("k", 2 * DIM), ("v", 2 * DIM)):
            found[f"{mixer}{name}_proj.weight"] = drawn(rows, WIDTH)
            found[f"{mixer}{name}_proj.bias"] = near_zero(rows)
        found |= {mixer + "o_proj.weight": drawn(WIDTH, 4 * DIM), mixer + "o_proj.bias": near_zero()}
        found |= {f"{mixer}{name}_norm.weight": near_zero(DIM) for name in "qk"}
        for name in ("key", "value") if kind == "conv_mixer" else ():
            found[f"{mixer}{name}_conv.weight"] = drawn(2 * DIM, 1, TAPS)
            found[f"{mixer}{name}_conv.bias"] = near_zero(2 * DIM)
        for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            found[f"{at}{name}_layernorm.weight"] = near_zero()
        found |= {f"{at}mlp.{name}_proj.weight": drawn(inner, WIDTH) for name in ("gate", "up")}
        found[at + "mlp.down_proj.weight"] = drawn(WIDTH, inner)
    return found


Own = dict[str, torch.Tensor]


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return rms_norm(x, weight.shape, 1 + weight, EPS)


def made(own: Own, at: str, x: torch.Tensor) -> list[torch.Tensor]:
    """Queries, keys and values (T, heads, D); the first two are normed."""
    q, k, v = (
        linear(x, own[f"{at}{name}_proj.weight"], own[f"{at}{name}_proj.bias"]).view(len(x), -1, DIM)
        for name in "qkv"
    )
    return [normed(q, own[at + "q_norm.weight"]), normed(k, own[at + "k_norm.weight"]), v]


def convolved(own: Own, name: str, x: torch.Tensor) -> torch.Tensor:
    """Keys or values (T, heads, D), each channel convolved with those before it, for each query head."""
    rows = pad(x.flatten(1).T, (TAPS - 1, 0))
    found = conv1d(rows, own[name + ".weight"], own[name + ".bias"], groups=2 * DIM).T
    return found.reshape(x.shape).repeat_interleave(2, 1)


def mixed(own: Own, x: torch.Tensor) -> torch.Tensor:
    at = "local_mixer."
    q, k, v = made(own, at, x)
    gate = (q * convolved(own, at + "key_conv", k)).sigmoid()
    found = (gate * convolved(own, at + "value_conv", v)).flatten(1)
    return linear(found, own[at + "o_proj.weight"], own[at + "o_proj.bias"])


def rotated(x: torch.Tensor, base: float) -> torch.Tensor:
    """Heads (T, H, D), in halves, rotated by rope."""
    first, second = x.chunk(2, -1)
    angles = (torch.arange(len(x))[:, None] / base ** (torch.arange(DIM // 2) / (DIM / 2)))[:, None]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def attended(own: Own, x: torch.Tensor, kind: str) -> torch.Tensor:
    at, base = "self_attn.", BASES[kind]
    q, k, v = made(own, at, x)
    q, k, v = (part.transpose(0, 1) for part in (rotated(q, base), rotated(k, base), v))
    scores = 3 * (q @ k.repeat_interleave(2, 0).transpose(1, 2) / 20**0.5 / 3).tanh()
    ahead = torch.arange(len(x))[:, None] - torch.arange(len(x))
    hidden = (ahead < 0) | (ahead >= (WINDOW if kind == "sliding_attention" else len(x)))
    shares = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    found = (shares @ v.repeat_interleave(2, 0)).transpose(0, 1).flatten(1)
    return linear(found, own[at + "o_proj.weight"], own[at + "o_proj.bias"])


@cache
def forward() -> Floats:
    """The logits (T, V) in float64."""
    weights = {name: torch.from_numpy(values).double() for name, values in tensors().items()}
    x = WIDTH**0.5 * weights["model.embed_tokens.weight"][TOKENS]
    for layer, kind in enumerate(KINDS):
        at = f"model.layers.{layer}."
        own = {name.removeprefix(at): values for name, values in weights.items() if name.startswith(at)}
        h = normed(x, own["input_layernorm.weight"])
        h = mixed(own, h) if kind == "conv_mixer" else attended(own, h, kind)
        x = x + normed(h, own["post_attention_layernorm.weight"])
        h = normed(x, own["pre_feedforward_layernorm.weight"])
        gate, up = (linear(h, own[f"mlp.{name}_proj.weight"]) for name in ("gate", "up"))
        h = linear(gelu(gate, approximate="tanh") * up, own["mlp.down_proj.weight"])
        x = x + normed(h, own["post_feedforward_layernorm.weight"])
    x = linear(normed(x, weights["model.norm.weight"]), weights["model.embed_tokens.weight"])
    found: Floats = (20 * (x / 20).tanh()).numpy()
    assert found.std() > 0.5
    return found


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


def test_convolutions_as_mlx_has_them(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    stored = {
        name: np.ascontiguousarray(values.swapaxes(1, 2)) if "_conv.weight" in name else values
        for name, values in tensors().items()
    }
    save_file(stored, folder / "model.safetensors")
    assert np.abs(logits(load(folder), TOKENS) - forward()).max() <= 1e-4 * np.abs(forward()).max()


def test_what_is_absent(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    absent = ("query_pre_attn_scalar", "sliding_window", "conv_L_cache", "attn_logit_softcapping")
    kept = {key: value for key, value in CONFIG.items() if key not in absent}
    (folder / "config.json").write_text(json.dumps(kept), "utf-8")
    config = read_config(open_checkpoint(folder))
    assert (config.attention_scale, config.attention_cap) == (DIM**-0.5, 0.0)
    assert config.windows == (0, 512, 0, 0)
    assert config.recurrent_layers == {0, 3}
    assert config.recurrent == GatedValues(4, 2, DIM, 3)


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        ("use_bidirectional_attention", True, UnsupportedModel, "use_bidirectional_attention to True"),
        ("layer_types", [*KINDS[:3], "mixer"], UnsupportedModel, "of the kind 'mixer'"),
        ("layer_types", KINDS[:3], BadCheckpoint, "layer_types is not a list of 4 kinds"),
        ("conv_L_cache", 0, BadCheckpoint, "conv_L_cache is 0"),
    ],
)
def test_what_is_refused(
    key: str, value: object, error: type[EngineError], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        read_config(open_checkpoint(write_folder(tmp_path / "m", **{key: value})))
