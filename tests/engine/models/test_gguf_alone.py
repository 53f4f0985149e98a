"""Architectures that are read from GGUF files alone, against llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu.backend import CpuBackend
from engine.models.load import read_config
from engine.models.remarks import remarks
from engine.weights import open_checkpoint
from tests.engine.models.architectures import Floats, ids
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.engine.models.oracle import load, logits
from tests.engine.models.test_gguf_by_llama_cpp import CONTEXT, by_llama_cpp

TOKENS, CUTS, LAYERS, WIDTH, INNER, HEADS, DIM = ids(60), [1, 7, 8, 21, 59], 3, 64, 96, 4, 16
KEYS, EXPERTS, SMALL = 2 * DIM, 6, 32
Sizes = dict[str, tuple[int, ...]]
ATTENTION: Sizes = {
    "attn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (KEYS, WIDTH), "attn_v": (KEYS, WIDTH),
    "attn_output": (WIDTH, WIDTH), "ffn_norm": (WIDTH,),
}  # fmt: skip


def plain(inner: int = INNER, end: str = "") -> Sizes:
    """A gated feed-forward part."""
    return {
        f"ffn_gate{end}": (inner, WIDTH), f"ffn_up{end}": (inner, WIDTH), f"ffn_down{end}": (WIDTH, inner),
    }  # fmt: skip


def experts(inner: int = SMALL, count: int = EXPERTS, end: str = "_exps") -> Sizes:
    """The stacks of a mixture, and its router."""
    found: Sizes = {
        f"ffn_gate{end}": (count, inner, WIDTH), f"ffn_up{end}": (count, inner, WIDTH),
        f"ffn_down{end}": (count, WIDTH, inner), "ffn_gate_inp": (EXPERTS, WIDTH),
    }  # fmt: skip
    return found


@dataclass(frozen=True)
class File:
    """An architecture as a file has it: `layer` has the sizes of a layer's tensors."""

    layer: Callable[[int], Sizes]
    keys: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-5
    vocabulary: int = 307


MIXTURE = {"expert_count": EXPERTS, "expert_used_count": 2, "expert_feed_forward_length": SMALL}
GROK = ATTENTION | experts() | {"attn_output_norm": (WIDTH,)}
GROUPED = {
    "experts_per_group": 2, "expert_chunk_feed_forward_length": 24, "expert_group_scale": 0.25,
}  # fmt: skip
PICTURED = 8200
TOKENIZER = {
    "tokenizer.ggml.tokens": [f"t{i}" for i in range(PICTURED)], "tokenizer.ggml.token_type": [1] * PICTURED,
    "tokenizer.ggml.merges": ["t 0"], "tokenizer.ggml.pre": "chameleon",
}  # fmt: skip
CHAMELEON = ATTENTION | plain() | {
    "attn_q_norm": (HEADS, DIM), "attn_q_norm.bias": (HEADS, DIM), "attn_k_norm": (2, DIM),
    "attn_k_norm.bias": (2, DIM),
}  # fmt: skip
FILES = {
    "deepseek2-ocr": File(
        lambda layer: ATTENTION
        | {"attn_k": (WIDTH, WIDTH), "attn_v": (WIDTH, WIDTH)}
        | (experts() | plain(2 * SMALL, "_shexp") if layer else plain()),
        {
            **MIXTURE, "attention.head_count_kv": HEADS, "leading_dense_block_count": 1,
            "expert_shared_count": 2,
        },
    ),
    # llama.cpp looks GELU up in a table of 16-bit numbers.
    "grok": File(
        lambda layer: GROK | plain() | {"post_ffw_norm": (WIDTH,)},
        {
            **MIXTURE, "attention.output_scale": 0.1, "attn_logit_softcapping": 2.0, "logit_scale": 0.7,
            "final_logit_softcapping": 20.0, "embedding_scale": 9.0, "expert_weights_scale": 1.0,
        }, 5e-4,
    ),
    "grok, the first": File(lambda layer: GROK | {"layer_output_norm": (WIDTH,)}, MIXTURE, 5e-4),
    "arctic": File(
        lambda layer: ATTENTION | plain(WIDTH) | experts(INNER) | {"ffn_norm_exps": (WIDTH,)},
        {**MIXTURE, "expert_feed_forward_length": None},
    ),
    "chameleon": File(lambda layer: CHAMELEON, TOKENIZER, vocabulary=PICTURED),
}  # fmt: skip
GROVE = File(
    lambda layer: ATTENTION | experts() | experts(24, EXPERTS // 2, "_chexps")
    | {"attn_q_norm": (DIM,), "attn_k_norm": (DIM,)}
)  # fmt: skip
MOST = float(np.finfo(np.float32).max)


def weights(file: File) -> dict[str, Floats]:
    """Random weights under the names of GGUF files."""
    rng = np.random.default_rng(3)
    sizes: Sizes = {"token_embd": (file.vocabulary, WIDTH), "output": (file.vocabulary, WIDTH),
                    "output_norm": (WIDTH,)}  # fmt: skip
    for layer in range(LAYERS):
        sizes |= {f"blk.{layer}.{name}": size for name, size in file.layer(layer).items()}
    found = {}
    for name, size in sizes.items():
        drawn = rng.standard_normal(size)
        norm = "norm" in name or len(size) == 1
        values = 1 + 0.2 * drawn if norm else 2.0 * size[-1] ** -0.5 * drawn
        found[name if name.endswith(".bias") else name + ".weight"] = values.astype(np.float32)
    return found


CONFIG: dict[str, Any] = {
    "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": 2, "vocab_size": 307,
    "intermediate_size": INNER, "num_hidden_layers": LAYERS, "max_position_embeddings": 512,
    "rope_parameters": {"rope_theta": 10000.0}, "rms_norm_eps": 1e-5, "head_dim": DIM,
}  # fmt: skip


def write(path: Path, architecture: str, keys: Mapping[str, Any], stored: Mapping[str, Floats]) -> Path:
    """A file with these tensors; keys that are None are left out."""
    kept = {key: value for key, value in keys.items() if value is not None}
    return write_gguf(path, GgufForm(architecture, keys=lambda config: kept), CONFIG, {}, dict(stored))


def written(name: str, path: Path) -> Path:
    return write(path, name.partition(",")[0], FILES[name].keys, weights(FILES[name]))


def assert_near(found: Floats, expected: Floats, share: float) -> None:
    assert expected.std() > 0.5
    assert np.abs(found - expected).max() <= share * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_gguf_file_agrees_with_llama_cpp(name: str, tmp_path: Path) -> None:
    """At once, and in steps on the CPU backend."""
    path, columns = written(name, tmp_path / "m.gguf"), slice(None)
    expected = by_llama_cpp(path, TOKENS)
    found = logits(load(path), TOKENS, context=CONTEXT)
    if name == "chameleon":
        # llama.cpp silences the tokens of pictures in the first row alone.
        assert (found[:, 4:8196].max(), expected[0, 4:8196].max()) == (-MOST, -MOST)
        columns = np.r_[:4, 8196:PICTURED]
    assert_near(found[:, columns], expected[:, columns], FILES[name].tolerance)
    model = load(path, CpuBackend(threads=2))
    stepped = logits(model, TOKENS, CUTS, context=CONTEXT)
    model.close()
    assert_near(stepped[:, columns], found[:, columns], 2e-4)


@pytest.mark.slow
def test_adjugate_experts_are_parts_of_wider_experts(tmp_path: Path) -> None:
    """By their definition: an expert and its adjugate make what one expert as wide as both makes. llama.cpp
    runs that one as a mixture of Qwen 3; it gives adjugates other input and weights than their authors do.
    """
    stored, wider = weights(GROVE), {}
    for name, values in stored.items():
        if name.endswith("_exps.weight"):
            other = np.repeat(stored[name.replace("_exps", "_chexps")], 2, axis=0)
            down = "_down" in name
            factor = np.float32(GROUPED["expert_group_scale"] if down else 1)
            wider[name] = np.concatenate([values, factor * other], axis=2 if down else 1)
        elif "_chexps" not in name:
            wider[name] = values
    keys = MIXTURE | GROUPED
    own = write(tmp_path / "own.gguf", "grovemoe", keys, stored)
    other = write(tmp_path / "m.gguf", "qwen3moe", keys | {"expert_feed_forward_length": SMALL + 24}, wider)
    expected = by_llama_cpp(other, TOKENS)
    assert_near(logits(load(own), TOKENS, context=CONTEXT), expected, 1e-5)
    model = load(own, CpuBackend(threads=2))
    assert_near(logits(model, TOKENS, CUTS, context=CONTEXT), expected, 2e-4)
    model.close()
    checkpoint = open_checkpoint(own)
    assert "adjugate" in " ".join(remarks(checkpoint, read_config(checkpoint)))


@pytest.mark.slow
def test_chameleon_with_norms_behind_agrees_with_transformers(tmp_path: Path) -> None:
    """llama.cpp feeds the second half of a block what attention made, without what it is added to."""
    import torch
    from transformers.models.chameleon import modeling_chameleon as chameleon

    file = FILES["chameleon"]
    stored = weights(file)
    config = chameleon.ChameleonConfig(**CONFIG, swin_norm=True)
    config._attn_implementation = "eager"
    rotary, positions = chameleon.ChameleonRotaryEmbedding(config), torch.arange(len(TOKENS))[None]
    x = torch.from_numpy(stored["token_embd.weight"])[TOKENS][None]
    mask = torch.full((len(TOKENS),) * 2, -torch.inf).triu(1)[None, None]
    names = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm", "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    for number in range(LAYERS):
        layer = chameleon.ChameleonSwinDecoderLayer(config, number).eval()
        state = {}
        for name in layer.state_dict():
            stem, _unused, end = name.rpartition(".")
            values = stored[f"blk.{number}.{names[stem]}.{end}"]
            if stem.startswith(("self_attn.q_", "self_attn.k_")):
                values = in_halves(values)
            state[name] = torch.from_numpy(values)
        layer.load_state_dict(state)
        with torch.inference_mode():
            x = layer(
                x, attention_mask=mask, position_ids=positions, position_embeddings=rotary(x, positions)
            )
        x = x[0] if isinstance(x, tuple) else x
    with torch.inference_mode():
        norm = chameleon.ChameleonRMSNorm(WIDTH, CONFIG["rms_norm_eps"])
        norm.weight.data = torch.from_numpy(stored["output_norm.weight"])
        expected = (norm(x) @ torch.from_numpy(stored["output.weight"]).T)[0].numpy()
    path = write(tmp_path / "m.gguf", "chameleon", {**file.keys, "swin_norm": True}, stored)
    found = logits(load(path), TOKENS, CUTS, context=CONTEXT)
    columns = np.r_[:4, 8196:PICTURED]
    assert_near(found[:, columns], expected[:, columns], 1e-5)


def in_halves(values: Floats) -> Floats:
    """The rows of queries, of keys or of the numbers of their norms for rope that is not interleaved."""
    rows = values.reshape(-1, DIM // 2, 2, WIDTH if values.shape[-1] == WIDTH else 1)
    return np.ascontiguousarray(rows.transpose(0, 2, 1, 3)).reshape(values.shape)
