"""Families that llama.cpp alone has: GGUF files against it, folders of three against these files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
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

TOKENS, CUTS, LAYERS, WIDTH, INNER, DIM = ids(60), [1, 7, 8, 21, 59], 3, 64, 96, 16


@dataclass(frozen=True)
class Family:
    """A family as its GGUF files name it: `biases` of "qkv", "o" and "f", the matrices of each layer."""

    keys: Mapping[str, Any] = field(default_factory=dict)
    biases: tuple[str, ...] = ()
    kv_heads: int = 2
    qk_norm: bool = False
    fused: bool = False
    gated: bool = True
    layer_norm: bool = False
    gate_up: bool = False
    four_norms: bool = False
    one_norm: bool = False
    head_gates: bool = False
    alike: tuple[str, ...] = ()
    tolerance: float = 1e-5


SECTIONS = {"rope.dimension_sections": [2, 3, 3, 0]}
FAMILIES = {
    "hunyuan_vl": Family(SECTIONS, qk_norm=True),
    "paddleocr": Family(SECTIONS),
    "maincoder": Family(qk_norm=True),
    "pangu-embedded": Family(biases=("qkv", "o")),
    "plamo": Family(one_norm=True),
    "plamo3": Family(
        {
            "attention.sliding_window": 9, "attention.sliding_window_pattern": [True, True, False],
            "rope.freq_base_swa": 60.0,
        }, qk_norm=True, fused=True, gate_up=True, four_norms=True,
    ),
    # llama.cpp looks GELU up in a table of 16-bit numbers.
    "codeshell": Family(
        biases=("qkv", "o", "f"), fused=True, gated=False, layer_norm=True, tolerance=5e-4
    ),
    # llama.cpp's GELU is the approximation by tanh, which the makers' model is not made for.
    "spark2_5": Family(
        {
            "attention.sliding_window": 9, "attention.sliding_window_pattern": [True, False, True],
            "rope.freq_base_swa": 60.0, "rope.dimension_count": 8, "rope.dimension_count_swa": 12,
        }, fused=True, head_gates=True, tolerance=2e-3, alike=("llama",),
    ),
    "jais": Family(
        {"attention.max_alibi_bias": 8.0}, ("qkv", "o", "f"), kv_heads=4, fused=True, layer_norm=True
    ),
}  # fmt: skip


def weights(family: Family) -> dict[str, Floats]:
    """Random weights under the names of GGUF files."""
    rng, found = np.random.default_rng(3), dict[str, Floats]()

    def matrix(name: str, rows: int, columns: int = WIDTH, kind: str = "", scale: float = 1.5) -> None:
        found[name + ".weight"] = (rng.standard_normal((rows, columns)) * scale / columns**0.5).astype("f4")
        if kind in family.biases:
            found[name + ".bias"] = (0.3 * rng.standard_normal(rows)).astype("f4")

    def norm(name: str, size: int = WIDTH) -> None:
        found[name + ".weight"] = (1 + 0.2 * rng.standard_normal(size)).astype("f4")
        if family.layer_norm:
            found[name + ".bias"] = (0.3 * rng.standard_normal(size)).astype("f4")

    matrix("token_embd", 307, scale=3.0)
    matrix("output", 307, scale=2.0)
    norm("output_norm")
    keys = family.kv_heads * DIM
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        norm(at + "attn_norm")
        if not family.one_norm:
            norm(at + "ffn_norm")
        parts = {"qkv": WIDTH + 2 * keys} if family.fused else {"q": WIDTH, "k": keys, "v": keys}
        for part, rows in parts.items():
            matrix(f"{at}attn_{part}", rows, kind="qkv")
        matrix(at + "attn_output", WIDTH, kind="o")
        if family.head_gates:
            matrix(at + "attn_gate", 4)
        if family.qk_norm:
            norm(at + "attn_q_norm", DIM)
            norm(at + "attn_k_norm", DIM)
        if family.four_norms:  # named without an end
            for name in ("post_attention_norm", "post_ffw_norm"):
                norm(at + name)
                found[at + name] = found.pop(f"{at}{name}.weight")
        if family.gated and not family.gate_up:
            matrix(at + "ffn_gate", INNER, kind="f")
        matrix(at + "ffn_up", 2 * INNER if family.gate_up else INNER, kind="f")
        matrix(at + "ffn_down", WIDTH, INNER, kind="f")
    return found


def config_of(family: Family) -> dict[str, Any]:
    return {
        "hidden_size": WIDTH, "num_attention_heads": 4, "num_key_value_heads": family.kv_heads,
        "intermediate_size": INNER, "num_hidden_layers": LAYERS, "max_position_embeddings": 512,
        "vocab_size": 307, "rope_parameters": {"rope_theta": 10000.0}, "head_dim": DIM,
        "layer_norm_eps" if family.layer_norm else "rms_norm_eps": 1e-5,
    }  # fmt: skip


def written(name: str, path: Path) -> Path:
    family = FAMILIES[name]
    form = GgufForm(name, keys=lambda config: family.keys, alike=family.alike)
    return write_gguf(path, form, config_of(family), weights(family))


def test_base_of_hunyuan_vl_by_its_alpha(tmp_path: Path) -> None:
    """llama.cpp raises the base by alpha^(dim / (dim - 2))."""
    family, base = FAMILIES["hunyuan_vl"], 10000.0 * 50.0 ** (DIM / (DIM - 2))
    form = GgufForm("hunyuan_vl", keys=lambda config: {**family.keys, "rope.scaling.alpha": 50.0})
    file = write_gguf(tmp_path / "m.gguf", form, config_of(family), weights(family))
    rope = read_config(open_checkpoint(file)).rope
    assert rope is not None
    assert rope.base == pytest.approx(base)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_gguf_file_agrees_with_llama_cpp(name: str, tmp_path: Path) -> None:
    """At once, and in steps on the CPU backend."""
    file = written(name, tmp_path / "m.gguf")
    expected = by_llama_cpp(file, TOKENS)
    assert expected.std() > 0.5
    found = logits(load(file), TOKENS, context=CONTEXT)
    assert np.abs(found - expected).max() <= FAMILIES[name].tolerance * np.abs(expected).max()
    model = load(file, CpuBackend(threads=2))
    stepped = logits(model, TOKENS, CUTS, context=CONTEXT)
    model.close()
    assert np.abs(stepped - found).max() <= 2e-4 * np.abs(found).max()


GPT_2 = {
    "token_embd": "transformer.wte", "output_norm": "transformer.ln_f", "output": "lm_head",
    "attn_norm": "ln_1", "ffn_norm": "ln_2", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj",
    "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj", "ffn_gate": "mlp.c_fc2",
}  # fmt: skip
PLAIN = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
OLDER = {
    "n_embd": WIDTH, "n_head": 4, "n_layer": LAYERS, "n_positions": 512, "n_inner": INNER, "vocab_size": 307,
    "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip
CODE_SHELL = {
    **OLDER, "architectures": ["CodeShellForCausalLM"], "position_embedding_type": "rope",
    "num_query_groups": 2, "group_query_attention": True, "activation_function": "gelu_pytorch_tanh",
}  # fmt: skip
JAIS = {
    **OLDER, "architectures": ["JAISLMHeadModel"], "position_embedding_type": "alibi",
    "activation_function": "swiglu", "mup_scale_qk_dot_prod": True, "mup_embeddings_scale": 4.0,
    "mup_output_alpha": 2.0, "mup_width_scale": 0.25,
}  # fmt: skip
PANGU = {
    **config_of(FAMILIES["pangu-embedded"]), "architectures": ["PanguEmbeddedForCausalLM"], "bias": True,
    "tie_word_embeddings": False,
}  # fmt: skip
SPARK = {
    **config_of(FAMILIES["spark2_5"]), "architectures": ["Spark2_5ForCausalLM"], "sliding_window": 9,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "tie_word_embeddings": False,
    "rope_parameters": {
        "full_attention": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_theta": 60.0, "partial_rotary_factor": 0.75},
    },
}  # fmt: skip
PLAMO_3 = {
    **config_of(FAMILIES["plamo3"]), "architectures": ["Plamo3ForCausalLM"], "sliding_window": [9, 9, None],
    "rope_parameters": None, "rope_theta": 10000, "rope_local_theta": 60, "tie_word_embeddings": False,
}  # fmt: skip
PLAMO_3_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "pre_mixer_norm", "ffn_norm": "pre_mlp_norm", "attn_qkv": "mixer.qkv_proj",
    "attn_output": "mixer.o_proj", "attn_q_norm": "mixer.q_norm", "attn_k_norm": "mixer.k_norm",
    "post_attention_norm": "post_mixer_norm", "post_ffw_norm": "post_mlp_norm", "ffn_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip
POST_OFFSETS = {"post_attention_norm": 1 / 5, "post_ffw_norm": 1 / 5**1.5}
SPARK_NAMES = {
    **PLAIN, "token_embd": "model.embedding", "attn_qkv": "self_attn.q_k_v_proj",
    "attn_output": "self_attn.out_proj", "attn_gate": "self_attn.g_proj",
}  # fmt: skip


def folder(name: str, config: Mapping[str, Any], names: Mapping[str, str], at: str, path: Path) -> Path:
    """The same weights under the makers' names. Jais' matrices are transposed, its scales apart; norms of
    PLaMo 3 have offsets.
    """
    out: dict[str, Floats] = {}
    for full, values in weights(FAMILIES[name]).items():
        full = full if full.endswith((".weight", ".bias")) else full + ".weight"
        stem, _unused, end = full.rpartition(".")
        layer = stem.startswith("blk.")
        number, own = stem.split(".")[1:] if layer else ("", stem)
        if name == "jais" and layer and values.ndim == 2:
            values = np.ascontiguousarray(values.T)
        if name == "plamo3" and values.ndim == 1:
            values = values - np.float32(POST_OFFSETS.get(own, 1.0))
        scale = {"token_embd": 0.25, "output": 2.0}.get(own, 1.0) if name == "jais" else 1.0
        out[f"{at.format(number) if layer else ''}{names[own]}.{end}"] = values * np.float32(scale)
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config), "utf-8")
    save_file(out, path / "model.safetensors")
    write_tokenizer(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "config", "names", "at"),
    [
        ("codeshell", CODE_SHELL, GPT_2, "transformer.h.{}."),
        ("jais", JAIS, GPT_2, "transformer.h.{}."),
        ("pangu-embedded", PANGU, PLAIN, "model.layers.{}."),
        ("spark2_5", SPARK, SPARK_NAMES, "model.layers.{}."),
        ("plamo3", PLAMO_3, PLAMO_3_NAMES, "model.layers.layers.{}."),
    ],
)
def test_folder_agrees_with_the_gguf_file(
    name: str, config: Mapping[str, Any], names: Mapping[str, str], at: str, tmp_path: Path
) -> None:
    expected = logits(load(written(name, tmp_path / "m.gguf")), TOKENS)
    found = logits(load(folder(name, config, names, at, tmp_path / "m")), TOKENS, CUTS)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    "changed",
    [
        {"sliding_window": None, "window_size": 9, "sliding_window_pattern": 3},
        {
            "window_size": 9, "sliding_window": None, "sliding_window_pattern": 3, "rope_theta": None,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 60.0},
            },
        },
    ],
    ids=["a pattern", "ropes by kinds of layers"],
)  # fmt: skip
def test_plamo_3_says_the_same_otherwise(changed: dict[str, Any], tmp_path: Path) -> None:
    read = []
    for number, config in enumerate((PLAMO_3, {**PLAMO_3, **changed})):
        path = folder("plamo3", config, PLAMO_3_NAMES, "model.layers.layers.{}.", tmp_path / str(number))
        read.append(read_config(open_checkpoint(path)))
    assert read[0] == read[1]
    assert read[0].windows == (9, 9, 0)


@pytest.mark.parametrize(
    ("config", "changed"),
    [
        (CODE_SHELL, {"position_embedding_type": "learned"}),
        (JAIS, {"activation_function": "gelu"}),
        (JAIS, {"position_embedding_type": "learned"}),
        (JAIS, {"mup_scale_qk_dot_prod": False}),
        (SPARK, {"headwise_attn_output_gate": False}),
        (SPARK, {"hadamard_spin": True}),
    ],
)
def test_what_is_not_supported(config: Mapping[str, Any], changed: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**config, **changed}), "utf-8")
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedModel, match=f"sets {next(iter(changed))} to"):
        read_config(open_checkpoint(tmp_path))
