"""SmallThinker, which transformers has no class for: GGUF files against llama.cpp, folders against the same
model as GGUF, in any cut, on both backends.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine.backends.cpu.backend import CpuBackend
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import ROPE, SMALL, ids
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.engine.models.oracle import load, logits
from tests.engine.models.test_gguf_by_llama_cpp import by_llama_cpp
from tests.tiny import write_tokenizer

TOKENS, LAYERS, EXPERTS = ids(60), 5, 6
CUTS = [1, 7, 8, 21, 59]
CONFIG: dict[str, Any] = {
    **SMALL, "architectures": ["SmallThinkerForCausalLM"], "model_type": "smallthinker",
    "num_hidden_layers": LAYERS, "head_dim": 16, "moe_ffn_hidden_size": 32, "intermediate_size": 32,
    "moe_num_primary_experts": EXPERTS, "moe_num_active_primary_experts": 2, "rms_norm_eps": 1e-6,
    "rope_theta": 1e6, "rope_layout": [0, 1, 1, 1, 0], "sliding_window_layout": [0, 1, 1, 1, 0],
    "sliding_window_size": 4096, "tie_word_embeddings": False,
}  # fmt: skip


def tensors() -> dict[str, Any]:
    """Random weights under the makers' names; routers are wide, so that their input matters."""
    rng, width = np.random.default_rng(6), 64

    def matrix(rows: int, columns: int = width, scale: float = 1.5) -> Any:
        return (rng.standard_normal((rows, columns)) * scale / columns**0.5).astype(np.float32)

    def near_one() -> Any:
        return (1 + 0.2 * rng.standard_normal(width)).astype(np.float32)

    found = {"model.embed_tokens.weight": matrix(307, scale=3.0), "lm_head.weight": matrix(307, scale=2.0)}
    found["model.norm.weight"] = near_one()
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name, rows, columns in (("q", 64, 64), ("k", 32, 64), ("v", 32, 64), ("o", 64, 64)):
            found[f"{at}self_attn.{name}_proj.weight"] = matrix(rows, columns)
        found |= {f"{at}{name}_layernorm.weight": near_one() for name in ("input", "post_attention")}
        found[at + "block_sparse_moe.primary_router.weight"] = matrix(EXPERTS, scale=4.0)
        for expert in range(EXPERTS):
            name = f"{at}block_sparse_moe.experts.{expert}."
            found |= {name + "gate.weight": matrix(32), name + "up.weight": matrix(32)}
            found[name + "down.weight"] = matrix(64, 32)
    return found


def write_folder(folder: Path, **changed: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | changed), "utf-8")
    save_file(tensors(), folder / "model.safetensors")
    write_tokenizer(folder)
    return folder


def write_file(path: Path, window: int, softmax: bool = False) -> Path:
    """As llama.cpp's converter writes it."""
    keys = {
        "expert_count": EXPERTS, "expert_used_count": 2, "expert_feed_forward_length": 32,
        "expert_gating_func": 1 if softmax else 2, "attention.sliding_window": window,
        "rope.freq_base": 1e6,
    }  # fmt: skip
    form = GgufForm("smallthinker", keys=lambda config: keys)
    config = {**CONFIG, ROPE: {"rope_type": "default", "rope_theta": 1e6}}
    return write_gguf(path, form, config, tensors())


def assert_near(found: Any, expected: Any, share: float) -> None:
    assert expected.std() > 0.5
    assert np.abs(found - expected).max() <= share * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.parametrize("softmax", [False, True], ids=["sigmoid", "softmax"])
def test_gguf_file_agrees_with_llama_cpp(softmax: bool, tmp_path: Path) -> None:
    """Which reads a window of 4,096 in any file, more than this text has."""
    path = write_file(tmp_path / "m.gguf", 4096, softmax)
    assert_near(logits(load(path), TOKENS), by_llama_cpp(path, TOKENS), 5e-4)


@pytest.mark.parametrize("window", [12, 4096])
def test_folder_agrees_with_the_gguf_file(window: int, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", sliding_window_size=window)
    expected = logits(load(write_file(tmp_path / "m.gguf", window)), TOKENS)
    assert_near(logits(load(folder), TOKENS, CUTS), expected, 2e-5)


def test_a_folder_says_of_each_layer_what_it_has(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", rope_layout=[1] * LAYERS, sliding_window_layout=[0] * LAYERS)
    config = read_config(open_checkpoint(folder))
    assert config.windows == ()
    assert config.nope_layers == frozenset()
    assert config.experts is not None
    assert config.experts.scores == "sigmoid"


@pytest.mark.slow
def test_cpu_agrees_with_the_reference(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", sliding_window_size=12, moe_primary_router_apply_softmax=True)
    expected = logits(load(folder), TOKENS)
    model = load(folder, CpuBackend(threads=2))
    found = logits(model, TOKENS, CUTS)
    model.close()
    assert_near(found, expected, 2e-4)
