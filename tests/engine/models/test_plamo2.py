"""PLaMo 2's GGUF files against llama.cpp's formulas in float64: the program itself never ends on such small
files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from engine.backends.base import Backend
from engine.backends.cpu.backend import CpuBackend
from engine.backends.reference.backend import ReferenceBackend
from tests.engine.models.architectures import ids
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.engine.models.oracle import load, logits

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


def attention(of: dict[str, Values], x: Values) -> Values:
    q, k, v = np.split((x @ of["attn_qkv.weight"].T).reshape(len(x), -1, DIM), [HEADS, HEADS + GROUPS], 1)
    q, k = rotated(norm(q, of["attn_q_norm.weight"])), rotated(norm(k, of["attn_k_norm.weight"]))
    k, v = (np.repeat(each, HEADS // GROUPS, 1) for each in (k, v))
    scores = np.einsum("thd,shd->hts", q, k) / DIM**0.5
    scores = np.exp(np.where(np.tri(len(x)) > 0, scores, -np.inf))
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


def expected_logits(stored: dict[str, npt.NDArray[np.float32]]) -> Values:
    whole = {name: values.astype(np.float64) for name, values in stored.items()}
    x = whole["token_embd.weight"][TOKENS]
    for layer in range(3):
        at = f"blk.{layer}."
        of = {name.removeprefix(at): values for name, values in whole.items() if name.startswith(at)}
        mixed = (attention if layer == 1 else mamba)(of, norm(x, of["attn_norm.weight"]))
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
