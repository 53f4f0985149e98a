"""Tiny checkpoints of `transformers` in the form in which Mistral AI publishes models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.engine.models.architectures import ROPE, Floats

Params = dict[str, Any]
_SIZES = {
    "hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads", "intermediate_size": "hidden_dim", "vocab_size": "vocab_size",
    "rms_norm_eps": "norm_eps", "max_position_embeddings": "max_seq_len", "sliding_window": "sliding_window",
    "tie_word_embeddings": "tied_embeddings", "q_lora_rank": "q_lora_rank", "kv_lora_rank": "kv_lora_rank",
    "qk_nope_head_dim": "qk_nope_head_dim", "qk_rope_head_dim": "qk_rope_head_dim",
    "v_head_dim": "v_head_dim",
}  # fmt: skip
_EXPERTS = {
    "num_local_experts": "num_experts", "n_routed_experts": "num_experts",
    "num_experts_per_tok": "num_experts_per_tok", "n_shared_experts": "num_shared_experts",
    "moe_intermediate_size": "expert_hidden_dim", "first_k_dense_replace": "first_k_dense_replace",
    "routed_scaling_factor": "routed_scale", "n_group": "num_expert_groups",
    "topk_group": "num_expert_groups_per_tok",
}  # fmt: skip
_NAMES = (
    ("model.embed_tokens", "tok_embeddings"), ("model.layers", "layers"), ("model.norm", "norm"),
    ("lm_head", "output"), ("input_layernorm", "attention_norm"), ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_a_layernorm", "attention.q_a_norm"), ("self_attn.kv_a_layernorm", "attention.kv_a_norm"),
    ("self_attn.q_a_proj", "attention.wq_a"), ("self_attn.q_b_proj", "attention.wq_b"),
    ("self_attn.kv_a_proj_with_mqa", "attention.wkv_a_with_mqa"),
    ("self_attn.kv_b_proj", "attention.wkv_b"), ("self_attn.q_proj", "attention.wq"),
    ("self_attn.k_proj", "attention.wk"), ("self_attn.v_proj", "attention.wv"),
    ("self_attn.o_proj", "attention.wo"), ("block_sparse_moe", "feed_forward"),
    ("mlp.shared_experts", "shared_experts"), ("mlp.experts", "experts"), ("mlp.gate.", "gate."),
    ("mlp.", "feed_forward."), ("gate_proj", "w1"), ("down_proj", "w2"), ("up_proj", "w3"),
)  # fmt: skip


def params_of(config: dict[str, Any]) -> Params:
    """params.json of a model with this config.json."""
    params = {own: config[name] for name, own in _SIZES.items() if name in config}
    if "kv_lora_rank" not in config:
        params["head_dim"] = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    moe = {own: config[name] for name, own in _EXPERTS.items() if config.get(name) is not None}
    if "num_experts" in moe:
        params["moe"] = moe
    rope = config[ROPE]
    params["rope_theta"] = rope["rope_theta"]
    if rope["rope_type"] == "yarn":
        original = rope["original_max_position_embeddings"]
        params["yarn"] = {
            "factor": rope["factor"], "original_max_position_embeddings": original,
            "beta": int(rope["beta_fast"]), "alpha": int(rope["beta_slow"]),
            "apply_scale": "mscale" not in rope,
        }  # fmt: skip
        if "llama_4_scaling_beta" in rope:
            params["llama_4_scaling"] = {
                "original_max_position_embeddings": original, "beta": rope["llama_4_scaling_beta"],
            }  # fmt: skip
    kinds = config.get("layer_types")
    if kinds and len(set(kinds)) > 1:
        params["sliding_window"] = [
            config["sliding_window"] if kind == "sliding_attention" else None for kind in kinds
        ]
    return params


def published(tensors: dict[str, Floats], params: Params) -> dict[str, Floats]:
    """The tensors by Mistral's names, the rows of queries and keys in the order of interleaved rope."""
    out: dict[str, Floats] = {}
    for name, values in _each_expert(tensors).items():
        heads = {"q": params["n_heads"], "k": params["n_kv_heads"]}
        if found := re.search(r"self_attn\.([qk])_proj", name):
            halves = values.reshape(heads[found[1]], 2, -1, values.shape[1])
            values = np.ascontiguousarray(halves.transpose(0, 2, 1, 3)).reshape(values.shape)
        for theirs, own in _NAMES:
            name = name.replace(theirs, own)
        out[name] = values
    return out


def _each_expert(tensors: dict[str, Floats]) -> dict[str, Floats]:
    """Stacks of experts apart."""
    out: dict[str, Floats] = {}
    for name, values in tensors.items():
        at, found, part = name.partition("mlp.experts.")
        if not found or values.ndim != 3:
            out[name] = values
            continue
        for index, matrix in enumerate(values):
            parts = {"down_proj": matrix}
            if part.startswith("gate_up_proj"):
                parts = dict(zip(("gate_proj", "up_proj"), np.split(matrix, 2), strict=True))
            for each, rows in parts.items():
                out[f"{at}mlp.experts.{index}.{each}.weight"] = np.ascontiguousarray(rows)
    return out


def write_consolidated(source: Path, folder: Path, shards: int = 1) -> Params:
    """Write the model of a Hugging Face folder, without its tokenizer. Returns what params.json holds."""
    params = params_of(json.loads((source / "config.json").read_text("utf-8")))
    tensors = published(load_file(source / "model.safetensors"), params)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "params.json").write_text(json.dumps(params), "utf-8")
    write_tensors(folder, tensors, shards)
    return params


def write_tensors(folder: Path, tensors: dict[str, Any], shards: int = 1) -> None:
    """consolidated.safetensors, or its parts and their index."""
    if shards == 1:
        save_file(tensors, folder / "consolidated.safetensors")
        return
    names = sorted(tensors)
    files = {f"consolidated-{i + 1:05d}-of-{shards:05d}.safetensors": names[i::shards] for i in range(shards)}
    for file, part in files.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    index = {"metadata": {}, "weight_map": {name: file for file, part in files.items() for name in part}}
    (folder / "consolidated.safetensors.index.json").write_text(json.dumps(index), "utf-8")
