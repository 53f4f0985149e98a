"""OpenELM, which transformers does not have: GGUF files against llama.cpp, folders against these files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine.backends.cpu.backend import CpuBackend
from engine.errors import UnsupportedModel
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import Floats, ids
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.engine.models.oracle import load, logits
from tests.engine.models.test_gguf_by_llama_cpp import CONTEXT, by_llama_cpp
from tests.tiny import write_tokenizer

WIDTH, DIM, QUERIES, GROUPS, INNER = 64, 16, [2, 4, 6], [1, 2, 3], [32, 96, 160]
CONFIG: dict[str, Any] = {
    "architectures": ["OpenELMForCausalLM"], "model_type": "openelm", "vocab_size": 307, "model_dim": WIDTH,
    "num_transformer_layers": 3, "head_dim": DIM, "num_query_heads": QUERIES, "num_kv_heads": GROUPS,
    "ffn_multipliers": [0.5, 1.6, 2.3], "ffn_dim_divisor": 32, "ffn_with_glu": True,
    "normalize_qk_projections": True, "normalization_layer_name": "rms_norm", "max_context_length": 512,
    "rope_freq_constant": 700, "rope_max_length": 1024, "activation_fn_name": "swish",
    "share_input_output_layers": True,
}  # fmt: skip
TOKENS, CUTS = ids(60), [1, 7, 8, 21, 59]


def weights() -> dict[str, Floats]:
    """Random weights under the makers' names."""
    rng, found = np.random.default_rng(3), dict[str, Floats]()

    def matrix(name: str, rows: int, columns: int = WIDTH, scale: float = 1.5) -> None:
        found[name + ".weight"] = (rng.standard_normal((rows, columns)) * scale / columns**0.5).astype("f4")

    def norm(name: str, size: int = WIDTH) -> None:
        found[name + ".weight"] = (1 + 0.2 * rng.standard_normal(size)).astype("f4")

    matrix("transformer.token_embeddings", 307, scale=2.0)
    norm("transformer.norm")
    for layer, (heads, groups, inner) in enumerate(zip(QUERIES, GROUPS, INNER, strict=True)):
        at = f"transformer.layers.{layer}."
        matrix(at + "attn.qkv_proj", (heads + 2 * groups) * DIM)
        matrix(at + "attn.out_proj", WIDTH, heads * DIM)
        matrix(at + "ffn.proj_1", 2 * inner)
        matrix(at + "ffn.proj_2", WIDTH, inner)
        for name, size in (
            ("attn_norm", WIDTH),
            ("ffn_norm", WIDTH),
            ("attn.q_norm", DIM),
            ("attn.k_norm", DIM),
        ):
            norm(at + name, size)
    return found


def gguf_keys(config: dict[str, Any]) -> dict[str, Any]:
    return {
        "block_count": 3, "context_length": 512, "feed_forward_length": INNER, "rope.freq_base": 700.0,
        "attention.head_count": QUERIES, "attention.head_count_kv": GROUPS, "rope.dimension_count": DIM,
        "attention.layer_norm_rms_epsilon": 1e-6,
    }  # fmt: skip


def gates_apart(config: dict[str, Any], tensors: dict[str, Floats]) -> dict[str, Floats]:
    """As the converter cuts `proj_1`."""
    out: dict[str, Floats] = {}
    for name, values in tensors.items():
        if ".proj_1." in name:
            gate, up = np.split(values, 2)
            at = f"blk.{name.split('.')[2]}.ffn_"
            out |= {at + "gate.weight": gate, at + "up.weight": up}
        else:
            out[name] = values
    return out


@pytest.mark.slow
def test_gguf_file_agrees_with_llama_cpp_and_the_folder_with_it(tmp_path: Path) -> None:
    folder, tensors = tmp_path / "m", weights()
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    save_file(tensors, folder / "model.safetensors")
    write_tokenizer(folder)
    form = GgufForm("openelm", keys=gguf_keys, change=gates_apart)
    common = {"hidden_size": WIDTH, "num_hidden_layers": 3, "head_dim": DIM}
    file = write_gguf(tmp_path / "m.gguf", form, common, tensors)
    expected = by_llama_cpp(file, TOKENS)
    assert expected.std() > 0.5
    for made in (file, folder):
        found = logits(load(made), TOKENS, CUTS, context=CONTEXT)
        assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
    model = load(folder, CpuBackend(threads=2))
    found = logits(model, TOKENS, CUTS, context=CONTEXT)
    model.close()
    assert np.abs(found - expected).max() <= 2e-4 * np.abs(expected).max()


def test_what_is_not_supported(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "ffn_with_glu": False}), "utf-8")
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedModel, match="sets ffn_with_glu to"):
        read_config(open_checkpoint(tmp_path))
