"""PLM's GGUF files against llama.cpp."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.backends.cpu.backend import CpuBackend
from tests.engine.models.architectures import Floats, ids
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.engine.models.oracle import load, logits
from tests.engine.models.test_gguf_by_llama_cpp import CONTEXT, by_llama_cpp

WIDTH, INNER, HEADS, NOPE, ROPE, VALUE, RANK, LAYERS = 64, 96, 4, 24, 8, 20, 40, 3
CONFIG = {
    "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "vocab_size": 307,
    "intermediate_size": INNER, "num_hidden_layers": LAYERS, "max_position_embeddings": 512,
    "rope_parameters": {"rope_theta": 900.0}, "rms_norm_eps": 1e-5,
}  # fmt: skip
KEYS = {
    "attention.key_length": NOPE + ROPE, "attention.value_length": VALUE, "rope.dimension_count": ROPE,
    "attention.kv_lora_rank": RANK,
}  # fmt: skip


def weights() -> dict[str, Floats]:
    """Random weights under the names of GGUF files."""
    rng = np.random.default_rng(3)
    sizes = {"token_embd": (307, WIDTH), "output_norm": (WIDTH,)}
    for layer in range(LAYERS):
        own = {
            "attn_norm": (WIDTH,), "attn_q": (HEADS * (NOPE + ROPE), WIDTH), "attn_kv_a_norm": (RANK,),
            "attn_kv_a_mqa": (RANK + ROPE, WIDTH), "attn_kv_b": (HEADS * (NOPE + VALUE), RANK),
            "attn_output": (WIDTH, HEADS * VALUE), "ffn_norm": (WIDTH,), "ffn_up": (INNER, WIDTH),
            "ffn_down": (WIDTH, INNER),
        }  # fmt: skip
        sizes |= {f"blk.{layer}.{name}": size for name, size in own.items()}
    found = {}
    for name, size in sizes.items():
        drawn = rng.standard_normal(size)
        values = 1 + 0.2 * drawn if len(size) == 1 else 2.0 * size[1] ** -0.5 * drawn
        found[name + ".weight"] = values.astype(np.float32)
    return found


@pytest.mark.slow
def test_gguf_file_agrees_with_llama_cpp(tmp_path: Path) -> None:
    """At once, and in steps on the CPU backend."""
    tokens = ids(60)
    file = write_gguf(tmp_path / "m.gguf", GgufForm("plm", keys=lambda config: KEYS), CONFIG, weights())
    expected = by_llama_cpp(file, tokens)
    assert expected.std() > 0.5
    found = logits(load(file), tokens, context=CONTEXT)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    model = load(file, CpuBackend(threads=2))
    stepped = logits(model, tokens, [1, 7, 8, 21, 59], context=CONTEXT)
    model.close()
    assert np.abs(stepped - found).max() <= 2e-4 * np.abs(found).max()
