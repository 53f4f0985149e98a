"""Baichuan M1, which transformers has no class for, against its makers' forward written out in PyTorch, in
any cut, on both backends; and the head of Baichuan 2.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from torch.nn.functional import linear, normalize, pad, rms_norm, silu

from engine.backends.base import Backend
from engine.backends.cpu.backend import CpuBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.errors import BadCheckpoint, EngineError, UnsupportedModel
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import SMALL, Floats, ids, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import after_rewinding, load, logits
from tests.tiny import write_tokenizer

TOKENS, CUTS, WINDOW, WIDTH, LAYERS, SLIDING = ids(60), [1, 7, 8, 21, 59], 9, 96, 4, [0, 2]
HEADS, NEAR_HEADS = (4, 2), (6, 3)
CONFIG: dict[str, Any] = {
    **SMALL, "architectures": ["BaichuanM1ForCausalLM"], "model_type": "baichuan_m1", "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS[0], "num_key_value_heads": HEADS[1],
    "num_swa_attention_heads": NEAR_HEADS[0], "num_swa_key_value_heads": NEAR_HEADS[1],
    "rms_norm_eps": 1e-5, "rope_theta": 700.0, "sliding_window": WINDOW, "sliding_window_layers": SLIDING,
    "conv_window": 2, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


@cache
def tensors() -> dict[str, Floats]:
    rng, inner = np.random.default_rng(9), CONFIG["intermediate_size"]

    def drawn(*shape: int, scale: float = 1.5) -> Floats:
        return (rng.standard_normal(shape) * scale / shape[-1] ** 0.5).astype(np.float32)

    def near_one() -> Floats:
        return (1 + 0.2 * rng.standard_normal(WIDTH)).astype(np.float32)

    found = {"model.embed_tokens.weight": drawn(307, WIDTH, scale=3.0), "model.norm.weight": near_one()}
    found["lm_head.weight"] = drawn(307, WIDTH) * rng.uniform(0.2, 3, (307, 1)).astype(np.float32)
    for layer in range(LAYERS):
        at, (heads, groups) = f"model.layers.{layer}.", NEAR_HEADS if layer in SLIDING else HEADS
        keys = groups * WIDTH // heads
        found[at + "self_attn.W_pack.weight"] = drawn(WIDTH + 2 * keys, WIDTH)
        found[at + "self_attn.o_proj.weight"] = drawn(WIDTH, WIDTH)
        found |= {f"{at}self_attn.conv_{name}": drawn(1, 1, groups, 1, 2) for name in "kv"}
        found |= {f"{at}{name}_layernorm.weight": near_one() for name in ("input", "post_attention")}
        found |= {f"{at}mlp.{name}_proj.weight": drawn(inner, WIDTH) for name in ("gate", "up")}
        found[at + "mlp.down_proj.weight"] = drawn(WIDTH, inner)
    return found


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Heads (H, T, D), in halves, rotated by rope."""
    first, second = x.chunk(2, -1)
    half = first.shape[-1]
    angles = torch.arange(x.shape[1])[:, None] / 700.0 ** (torch.arange(half) / half)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def convolved(x: torch.Tensor, taps: torch.Tensor) -> torch.Tensor:
    """Heads (G, T, D): the row before times a head's first tap, plus the row times its second."""
    before, own = taps.reshape(-1, 2, 1, 1).unbind(1)
    return before * pad(x, (0, 0, 1, 0))[:, :-1] + own * x


def attended(own: dict[str, torch.Tensor], x: torch.Tensor, sliding: bool) -> torch.Tensor:
    heads, groups = NEAR_HEADS if sliding else HEADS
    dim, count = WIDTH // heads, len(x)
    rows = linear(x, own["self_attn.W_pack.weight"]).view(count, -1, dim).transpose(0, 1)
    q, k, v = rows.split([heads, groups, groups])
    k, v = convolved(k, own["self_attn.conv_k"]), convolved(v, own["self_attn.conv_v"])
    each = heads // groups
    scores = rotated(q) @ rotated(k).repeat_interleave(each, 0).transpose(1, 2) / dim**0.5
    ahead = torch.arange(count)[:, None] - torch.arange(count)
    hidden = (ahead < 0) | (ahead >= (WINDOW if sliding else count))
    shares = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    found = (shares @ v.repeat_interleave(each, 0)).transpose(0, 1).reshape(count, WIDTH)
    return linear(found, own["self_attn.o_proj.weight"])


@cache
def forward() -> Floats:
    """The logits (T, V) in float64."""
    weights = {name: torch.from_numpy(values).double() for name, values in tensors().items()}
    x = weights["model.embed_tokens.weight"][TOKENS]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        own = {name.removeprefix(at): values for name, values in weights.items() if name.startswith(at)}
        h = rms_norm(x, (WIDTH,), own["input_layernorm.weight"], 1e-5)
        x = x + attended(own, h, layer in SLIDING)
        h = rms_norm(x, (WIDTH,), own["post_attention_layernorm.weight"], 1e-5)
        gate, up = (linear(h, own[f"mlp.{name}_proj.weight"]) for name in ("gate", "up"))
        x = x + linear(silu(gate) * up, own["mlp.down_proj.weight"])
    x = rms_norm(x, (WIDTH,), weights["model.norm.weight"], 1e-5)
    found: Floats = linear(x, normalize(weights["lm_head.weight"])).numpy()
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


def test_without_windows_all_layers_have_the_same_heads(tmp_path: Path) -> None:
    config = read_config(open_checkpoint(write_folder(tmp_path / "m", sliding_window_layers=[])))
    assert (config.windows, config.rope_local) == ((), None)
    assert config.layer_heads == ((2, 24),) * LAYERS
    assert config.layer_queries == (4,) * LAYERS


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        ("conv_window", 3, UnsupportedModel, "conv_window to 3"),
        ("num_swa_attention_heads", 7, BadCheckpoint, "7 heads but a width of 96"),
        ("num_swa_key_value_heads", 4, BadCheckpoint, "6 heads and 4 key/value heads"),
        ("sliding_window_layers", [4], BadCheckpoint, "sliding_window_layers"),
        ("sliding_window", 0, BadCheckpoint, "sliding_window is 0"),
    ],
)
def test_what_is_refused(
    key: str, value: object, error: type[EngineError], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        read_config(open_checkpoint(write_folder(tmp_path / "m", **{key: value})))


@pytest.mark.parametrize("tied", [False, True])
def test_the_head_of_baichuan_2(tied: bool, tmp_path: Path) -> None:
    """Which is known by the size of its vocabulary: as a head of rows that were made of length 1 before, with
    a row less. A row of zeros stays one.
    """
    folder, rng = write_checkpoint(BY_NAME["Baichuan"], tmp_path / "m"), np.random.default_rng(4)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    held = load_file(folder / "model.safetensors")
    table, head = (rng.standard_normal((125_696, config["hidden_size"]), np.float32) for _unused in "ab")
    head = table if tied else 3 * head
    head[7] = 0.0
    lengths = np.maximum(np.linalg.norm(head, axis=1, keepdims=True), 1e-12)
    found = []
    for rows, last in ((125_696, head), (125_695, head / lengths)):
        own = {"vocab_size": rows, "tie_word_embeddings": tied and rows == 125_696}
        (folder / "config.json").write_text(json.dumps(config | own), "utf-8")
        held |= {"model.embed_tokens.weight": table[:rows], "lm_head.weight": last[:rows]}
        save_file({name: np.ascontiguousarray(values) for name, values in held.items()},
                  folder / "model.safetensors")  # fmt: skip
        found.append(logits(load(folder), TOKENS[:20], [1, 8])[:, :125_695])
    assert found[1].std() > 0.5
    assert not found[0][:, 7].any()
    assert np.abs(found[0] - found[1]).max() <= 1e-4 * np.abs(found[1]).max()
