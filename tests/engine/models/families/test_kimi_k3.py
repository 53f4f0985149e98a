"""Kimi K3: GGUF files of random weights against llama.cpp, which alone knows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from engine.backends.cpu.backend import CpuBackend
from tests.engine.models.architectures import Floats, ids
from tests.engine.models.oracle import load, logits
from tests.engine.models.test_gguf_by_llama_cpp import CONTEXT, by_llama_cpp
from tests.tiny import TINY, _add_key, _gguf_metadata

WIDTH, LAYERS, HEADS, DIM, INNER, EXPERTS, NARROW, SHARED = 64, 5, 4, 16, 48, 6, 32, 2
NOPE, ROPE, VALUE, RANK, QUERY_RANK, TAPS = 24, 8, 20, 40, 24, 4
LINEAR = (0, 1, 3)
"""The layers with delta attention; the first one is dense."""
KEYS: dict[str, Any] = {
    "block_count": LAYERS, "context_length": 512, "embedding_length": WIDTH, "feed_forward_length": 96,
    "vocab_size": 307, "attention.head_count": HEADS,
    "attention.head_count_kv": [0 if layer in LINEAR else 1 for layer in range(LAYERS)],
    "attention.layer_norm_rms_epsilon": 1e-5, "attention.q_lora_rank": QUERY_RANK,
    "attention.kv_lora_rank": RANK, "attention.key_length": RANK + ROPE, "attention.value_length": RANK,
    "attention.key_length_mla": NOPE + ROPE, "attention.value_length_mla": VALUE,
    "rope.dimension_count": ROPE, "ssm.conv_kernel": TAPS, "kda.head_dim": DIM, "expert_count": EXPERTS,
    "expert_used_count": 2, "expert_feed_forward_length": INNER, "expert_shared_count": SHARED,
    "leading_dense_block_count": 1, "expert_weights_scale": 1.7, "expert_weights_norm": True,
    "expert_gating_func": 2, "attn_res.block_size": 2, "activation.situ_beta": 0.8,
    "activation.situ_linear_beta": 1.5,
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "all of its own": {"kda.gate_lower_bound": -5.0, "expert_latent_length": NARROW},
    "decays of any size, experts on whole rows, one sum of three layers, half a cap": {
        "attn_res.block_size": 3, "activation.situ_linear_beta": -1.0, "expert_weights_norm": False,
    },
}  # fmt: skip


def weights(narrow: int) -> dict[str, Floats]:
    """Random weights; `narrow`: whether experts work on a projection, and latent attention has gates."""
    rng, found = np.random.default_rng(4), dict[str, Floats]()
    inner, shape = HEADS * DIM, narrow or WIDTH

    def matrix(name: str, *sizes: int, scale: float = 1.5) -> None:
        found[name + ".weight"] = (rng.standard_normal(sizes) * scale / sizes[-1] ** 0.5).astype("f4")

    def vector(name: str, size: int, middle: float = 1.0) -> None:
        found[name] = (middle + 0.2 * rng.standard_normal(size)).astype("f4")

    matrix("token_embd", 307, WIDTH, scale=3.0)
    matrix("output", 307, WIDTH, scale=2.0)
    vector("output_norm.weight", WIDTH)
    vector("output_res_score.weight", WIDTH, 0.0)
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        for name in ("attn_norm", "ffn_norm"):
            vector(f"{at}{name}.weight", WIDTH)
        for name in ("attn_res_score", "ffn_res_score"):
            vector(f"{at}{name}.weight", WIDTH, 0.0)
        if layer in LINEAR:
            for part in "qkv":
                matrix(f"{at}attn_{part}", inner, WIDTH)
                found[f"{at}ssm_conv1d_{part}.weight"] = rng.standard_normal((1, inner, 1, TAPS)).astype("f4")
            for name, *sizes in (
                ("ssm_f_a", DIM, WIDTH), ("ssm_f_b", inner, DIM), ("ssm_beta", HEADS, WIDTH),
                ("ssm_g", inner, WIDTH), ("attn_output", WIDTH, inner),
            ):  # fmt: skip
                matrix(at + name, *sizes)
            found[at + "ssm_a"] = -np.exp(rng.standard_normal(HEADS)).astype("f4")
            vector(at + "ssm_dt.bias", inner, 0.0)
            vector(at + "ssm_norm.weight", DIM)
        else:
            for name, *sizes in (
                ("attn_q_a", QUERY_RANK, WIDTH), ("attn_q_b", HEADS * (NOPE + ROPE), QUERY_RANK),
                ("attn_kv_a_mqa", RANK + ROPE, WIDTH), ("attn_k_b", HEADS, RANK, NOPE),
                ("attn_v_b", HEADS, VALUE, RANK), ("attn_output", WIDTH, HEADS * VALUE),
            ):  # fmt: skip
                matrix(at + name, *sizes)
            vector(at + "attn_q_a_norm.weight", QUERY_RANK)
            vector(at + "attn_kv_a_norm.weight", RANK)
            if narrow:
                matrix(at + "attn_gate", HEADS * VALUE, WIDTH)
        if not layer:
            for name, *sizes in (("gate", 96, WIDTH), ("up", 96, WIDTH), ("down", WIDTH, 96)):
                matrix(f"{at}ffn_{name}", *sizes)
            continue
        matrix(at + "ffn_gate_inp", EXPERTS, WIDTH)
        vector(at + "exp_probs_b.bias", EXPERTS, 0.0)
        for name, *sizes in (
            ("gate_exps", EXPERTS, INNER, shape), ("up_exps", EXPERTS, INNER, shape),
            ("down_exps", EXPERTS, shape, INNER), ("gate_shexp", SHARED * INNER, WIDTH),
            ("up_shexp", SHARED * INNER, WIDTH), ("down_shexp", WIDTH, SHARED * INNER),
        ):  # fmt: skip
            matrix(f"{at}ffn_{name}", *sizes)
        if narrow:
            matrix(at + "ffn_routed_down", narrow, WIDTH)
            matrix(at + "ffn_routed_up", WIDTH, narrow)
            vector(at + "ffn_routed_norm.weight", narrow)
    return found


def written(path: Path, more: dict[str, Any]) -> Path:
    writer = gguf.GGUFWriter(path, "kimi-k3")
    tokenizer = {key: value for key, value in _gguf_metadata(TINY).items() if key.startswith("tokenizer.")}
    own = {f"kimi-k3.{key}": value for key, value in (KEYS | more).items()}
    for key, value in (tokenizer | own).items():
        _add_key(writer, key, value)
    for name, values in weights(more.get("expert_latent_length", 0)).items():
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_gguf_file_agrees_with_llama_cpp(name: str, tmp_path: Path) -> None:
    """At once, and in steps on the CPU backend."""
    tokens, file = ids(60), written(tmp_path / "m.gguf", VARIANTS[name])
    expected = by_llama_cpp(file, tokens)
    assert expected.std() > 0.5
    found = logits(load(file), tokens, context=CONTEXT)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
    model = load(file, CpuBackend(threads=2))
    stepped = logits(model, tokens, [1, 7, 8, 21, 59], context=CONTEXT)
    model.close()
    assert np.abs(stepped - found).max() <= 2e-4 * np.abs(found).max()


def test_steps_give_the_same(tmp_path: Path) -> None:
    model, tokens = load(written(tmp_path / "m.gguf", VARIANTS["all of its own"])), ids(30)
    whole = logits(model, tokens)
    assert np.isfinite(whole).all()
    assert whole.std() > 0.5
    assert np.abs(logits(model, tokens, [1, 7, 21]) - whole).max() <= 2e-5 * np.abs(whole).max()
