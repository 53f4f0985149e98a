"""PLaMo 2's GGUF files against llama.cpp's formulas in float64, as the program itself never ends on such
small files; and its folders, which have windows, against the makers'.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from engine.backends.base import Backend
from engine.backends.cpu.backend import CpuBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.architectures.recurrent.plamo2 import from_hf
from engine.models.config import ModelConfig
from engine.models.config.recurrent import SelectiveScan
from engine.models.headers.keys import Keys
from tests.engine.models.architectures import ids
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.engine.models.oracle import load, logits
from tests.tiny import write_tokenizer

Values = npt.NDArray[np.float64]
TOKENS, WIDTH, INNER, HEADS, GROUPS, DIM, EPS, BASE = ids(40), 64, 48, 4, 2, 16, 1e-6, 10000.0
SCANS, CHANNELS, STATE, RANK, TAPS = 5, 80, 12, 64, 4
"""Heads of Mamba, their channels, numbers of each channel, and those that make steps."""
CONFIG = {
    "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "vocab_size": 307,
    "intermediate_size": INNER, "num_hidden_layers": 3, "max_position_embeddings": 512, "head_dim": DIM,
    "rope_parameters": {"rope_theta": BASE}, "rms_norm_eps": EPS,
}  # fmt: skip
KEYS = {
    "ssm.conv_kernel": TAPS, "ssm.inner_size": CHANNELS, "ssm.state_size": STATE, "ssm.group_count": 0,
    "ssm.time_step_rank": SCANS, "attention.head_count": [0, HEADS, 0],
    "attention.head_count_kv": [0, GROUPS, 0],
}  # fmt: skip
EVERY = {
    "attn_norm.weight": (WIDTH,), "ffn_norm.weight": (WIDTH,), "post_attention_norm": (WIDTH,),
    "post_ffw_norm": (WIDTH,), "ffn_up.weight": (2 * INNER, WIDTH), "ffn_down.weight": (WIDTH, INNER),
}  # fmt: skip
ATTENTION = {
    "attn_qkv.weight": ((HEADS + 2 * GROUPS) * DIM, WIDTH), "attn_q_norm.weight": (HEADS, DIM),
    "attn_k_norm.weight": (GROUPS, DIM), "attn_output.weight": (WIDTH, HEADS * DIM),
}  # fmt: skip
MAMBA = {
    "ssm_in.weight": (2 * CHANNELS, WIDTH), "ssm_conv1d.weight": (CHANNELS, TAPS),
    "ssm_x.weight": (2 * STATE + RANK, CHANNELS), "ssm_dt.weight": (SCANS, RANK), "ssm_dt.bias": (SCANS,),
    "ssm_a": (SCANS,), "ssm_d": (SCANS,), "ssm_out.weight": (WIDTH, CHANNELS), "ssm_dt_norm": (RANK,),
    "ssm_b_norm": (STATE,), "ssm_c_norm": (STATE,),
}  # fmt: skip


def weights() -> dict[str, npt.NDArray[np.float32]]:
    """Random weights under the names of GGUF files."""
    rng = np.random.default_rng(3)
    sizes: dict[str, tuple[int, ...]] = {"token_embd.weight": (307, WIDTH), "output_norm.weight": (WIDTH,)}
    for layer in range(3):
        own = EVERY | (ATTENTION if layer == 1 else MAMBA)
        sizes |= {f"blk.{layer}.{name}": size for name, size in own.items()}
    found = {}
    for name, size in sizes.items():
        drawn = rng.standard_normal(size)
        values = 1 + 0.2 * drawn if "norm" in name or len(size) == 1 else 2.0 * size[-1] ** -0.5 * drawn
        found[name] = (-np.abs(values) if name.endswith("ssm_a") else values).astype(np.float32)
    return found


def norm(x: Values, weight: Values) -> Values:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def silu(x: Values) -> Values:
    return x / (1 + np.exp(-x))


def rotated(x: Values) -> Values:
    """(T, heads, D), with halves."""
    angles = np.arange(len(x))[:, None] * BASE ** (-np.arange(DIM // 2) / (DIM // 2))
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = x[..., : DIM // 2], x[..., DIM // 2 :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attention(of: dict[str, Values], x: Values, before: int) -> Values:
    """A token reads itself and so many before it."""
    q, k, v = np.split((x @ of["attn_qkv.weight"].T).reshape(len(x), -1, DIM), [HEADS, HEADS + GROUPS], 1)
    q, k = rotated(norm(q, of["attn_q_norm.weight"])), rotated(norm(k, of["attn_k_norm.weight"]))
    k, v = (np.repeat(each, HEADS // GROUPS, 1) for each in (k, v))
    scores = np.einsum("thd,shd->hts", q, k) / DIM**0.5
    scores = np.exp(np.where(np.tri(len(x)) > np.tri(len(x), k=-before - 1), scores, -np.inf))
    mixed = np.einsum("hts,shd->thd", scores / scores.sum(-1, keepdims=True), v)
    return mixed.reshape(len(x), -1) @ of["attn_output.weight"].T


def mamba(of: dict[str, Values], x: Values) -> Values:
    both = (x @ of["ssm_in.weight"].T).reshape(len(x), SCANS, 2, -1)
    gate, v = both[:, :, 0], both[:, :, 1].reshape(len(x), -1)
    padded = np.concatenate([np.zeros((TAPS - 1, CHANNELS)), v])
    v = silu(sum(padded[j : j + len(x)] * of["ssm_conv1d.weight"][:, j] for j in range(TAPS)))
    key, query, step = np.split(v @ of["ssm_x.weight"].T, [STATE, 2 * STATE], 1)
    key, query = norm(key, of["ssm_b_norm"]), norm(query, of["ssm_c_norm"])
    step = np.log1p(np.exp(norm(step, of["ssm_dt_norm"]) @ of["ssm_dt.weight"].T + of["ssm_dt.bias"]))
    v, state, out = v.reshape(gate.shape), np.zeros((*gate.shape[1:], STATE)), np.empty_like(gate)
    for t in range(len(x)):
        state = state * np.exp(step[t] * of["ssm_a"])[:, None, None]
        state = state + (step[t][:, None] * v[t])[..., None] * key[t]
        out[t] = state @ query[t] + of["ssm_d"][:, None] * v[t]
    return (silu(gate) * out).reshape(len(x), -1) @ of["ssm_out.weight"].T


def expected_logits(stored: dict[str, npt.NDArray[np.float32]], before: int = len(TOKENS)) -> Values:
    whole = {name: values.astype(np.float64) for name, values in stored.items()}
    x = whole["token_embd.weight"][TOKENS]
    for layer in range(3):
        at = f"blk.{layer}."
        of = {name.removeprefix(at): values for name, values in whole.items() if name.startswith(at)}
        normed = norm(x, of["attn_norm.weight"])
        mixed = attention(of, normed, before) if layer == 1 else mamba(of, normed)
        x = x + norm(mixed, of["post_attention_norm"])
        gate, up = np.split(norm(x, of["ffn_norm.weight"]) @ of["ffn_up.weight"].T, 2, 1)
        x = x + norm((silu(gate) * up) @ of["ffn_down.weight"].T, of["post_ffw_norm"])
    return norm(x, whole["output_norm.weight"]) @ whole["token_embd.weight"].T


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_gguf_file_agrees_with_the_formulas(backend: str, tmp_path: Path) -> None:
    """In steps, so that states are kept between these."""
    stored = weights()
    file = write_gguf(tmp_path / "m.gguf", GgufForm("plamo2", keys=lambda config: KEYS), CONFIG, {}, stored)
    made: Backend = ReferenceBackend() if backend == "reference" else CpuBackend(threads=2)
    model = load(file, made)
    found, expected = logits(model, TOKENS, [1, 7, 8, 21]), expected_logits(stored)
    model.close()
    assert expected.std() > 0.5
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


FOLDER: dict[str, Any] = {
    "architectures": ["Plamo2ForCausalLM"], "model_type": "plamo2", "hidden_size": WIDTH,
    "num_hidden_layers": 3, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS,
    "hidden_size_per_head": DIM, "intermediate_size": INNER, "vocab_size": 307, "mamba_d_state": STATE,
    "mamba_d_conv": TAPS, "mamba_num_heads": SCANS, "mamba_step": 2, "attention_window_size": 9,
    "full_attention_idx": None, "max_position_embeddings": 10_485_760, "tie_word_embeddings": True,
    "linear_type": "normal", "eval_attention_n_bit": None,
}  # fmt: skip
NAMES = {
    "attn_norm.weight": "pre_mixer_norm.weight", "ffn_norm.weight": "pre_mlp_norm.weight",
    "post_attention_norm": "post_mixer_norm.weight", "post_ffw_norm": "post_mlp_norm.weight",
    "ffn_up.weight": "mlp.gate_up_proj.weight", "ffn_down.weight": "mlp.down_proj.weight",
    "attn_qkv.weight": "mixer.qkv_proj.weight", "attn_output.weight": "mixer.o_proj.weight",
    "attn_q_norm.weight": "mixer.q_weight", "attn_k_norm.weight": "mixer.k_weight",
    "ssm_in.weight": "mixer.in_proj.weight", "ssm_conv1d.weight": "mixer.conv1d.weight",
    "ssm_x.weight": "mixer.bcdt_proj.weight", "ssm_dt.weight": "mixer.dt_proj.weight",
    "ssm_dt.bias": "mixer.dt_bias", "ssm_a": "mixer.A_log", "ssm_d": "mixer.D",
    "ssm_out.weight": "mixer.out_proj.weight", "ssm_dt_norm": "mixer.dt_norm_weight",
    "ssm_b_norm": "mixer.B_norm_weight", "ssm_c_norm": "mixer.C_norm_weight",
}  # fmt: skip
OFFSETS = {
    "attn_norm.weight": 1.0, "ffn_norm.weight": 1.0, "post_attention_norm": 1 / 5,
    "post_ffw_norm": 1 / 5**1.5,
}  # fmt: skip


def folder(stored: dict[str, npt.NDArray[np.float32]], path: Path, **changed: Any) -> Path:
    """The weights as the makers have them."""
    out = {
        "model.embed_tokens.weight": stored["token_embd.weight"],
        "model.norm.weight": stored["output_norm.weight"] - np.float32(1),
    }
    for name, values in stored.items():
        if name.startswith("blk."):
            layer, own = name.removeprefix("blk.").split(".", 1)
            values = values - np.float32(OFFSETS.get(own, 0.0))
            values = np.log(-values) if own == "ssm_a" else values
            values = values[:, None] if own == "ssm_conv1d.weight" else values
            out[f"model.layers.layers.{layer}.{NAMES[own]}"] = np.ascontiguousarray(values)
    path.mkdir()
    (path / "config.json").write_text(json.dumps(FOLDER | changed), "utf-8")
    save_file(out, path / "model.safetensors")
    write_tokenizer(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "whole"), [("reference", None), ("cpu", None), ("reference", [1])], ids=str
)
def test_folder_agrees_with_the_formulas(backend: str, whole: list[int] | None, tmp_path: Path) -> None:
    stored = weights()
    made: Backend = ReferenceBackend() if backend == "reference" else CpuBackend(threads=2)
    model = load(folder(stored, tmp_path / "m", full_attention_idx=whole), made)
    found = logits(model, TOKENS, [1, 7, 8, 21])
    model.close()
    expected = expected_logits(stored, 9 if whole is None else len(TOKENS))
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
    other = expected_logits(stored, 8)  # a window that is one shorter would be noticed
    assert np.abs(other - expected).max() > 1e-2 * np.abs(expected).max()


def read(**changed: Any) -> ModelConfig:
    return from_hf(Keys(FOLDER | changed, "config.json"))


@pytest.mark.parametrize(
    ("changed", "attention"),
    [
        ({}, [1]),
        ({"num_hidden_layers": 9, "mamba_step": 4}, [2, 6]),
        ({"num_hidden_layers": 2, "mamba_step": 5}, [1]),
        ({"mamba_enabled": False}, [0, 1, 2]),
    ],
)
def test_layers_with_attention(changed: dict[str, Any], attention: list[int]) -> None:
    config = read(**changed)
    assert list(config.cached_layers) == attention
    assert [config.windows[layer] for layer in attention] == [10] * len(attention)


def test_defaults_of_folders() -> None:
    config = from_hf(Keys({"architectures": ["Plamo2ForCausalLM"]}, "config.json"))
    assert (config.layers, config.width, config.heads, config.kv_heads, config.head_dim) == (
        32, 4096, 32, 4, 128
    )  # fmt: skip
    assert (config.ffn_width, config.vocab_size, config.tied, config.windows[1]) == (
        13_312,
        32_000,
        True,
        2049,
    )
    assert config.recurrent == SelectiveScan(64 * 128, 64, 4, 256, "weights", 1e-6, 64)
    assert config.recurrent_layers == frozenset(range(0, 32, 2))


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"linear_type": "fp8"}, UnsupportedModel, "sets linear_type to 'fp8'"),
        ({"mamba_step": 1}, BadCheckpoint, "mamba_step is 1"),
        ({"full_attention_idx": [3]}, BadCheckpoint, "full_attention_idx"),
        ({"mamba_num_heads": 0}, BadCheckpoint, "mamba_num_heads is 0"),
    ],
)
def test_what_folders_are_refused(changed: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        read(**changed)
