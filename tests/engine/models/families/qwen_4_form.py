"""GGUF files of Qwen 4, as llama.cpp's converter writes them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.engine.models.architectures import Config, Tensors
from tests.engine.models.cases.mixture import qwen_3_5_moe_tensors
from tests.engine.models.cases.recurrent import qwen_3_5_keys
from tests.engine.models.gguf_form import GgufForm

_STREAMS = {
    "hc_norm": "norm", "input_mix_weight_down": "down", "input_mix_weight_up": "up",
    "block_inject_weight": "inject",
}  # fmt: skip
_NAMES = {
    "ple.key_proj": "ple_key", "ple.value_proj": "ple_value", "ple.norm_key": "ple_norm_key",
    "ple.norm_query": "ple_norm_query", "ple.norm_conv": "ple_norm_conv", "ple.conv1d": "ple_conv1d",
    "self_attn.indexer.q_layernorm": "indexer.q_norm", "self_attn.indexer.k_layernorm": "indexer.k_norm",
    **{f"attn_hyper_connection.{old}": f"hc_attn_{new}" for old, new in _STREAMS.items()},
    **{f"mlp_hyper_connection.{old}": f"hc_ffn_{new}" for old, new in _STREAMS.items()},
}  # fmt: skip
_HASHES = {
    "layer_multipliers": "ple.layer_multipliers", "ngram_heads_offsets": "ple.head_offsets",
    "ngram_heads_vocab_sizes": "ple.head_vocab_sizes",
}  # fmt: skip


def qwen_4_keys(config: Config) -> dict[str, Any]:
    """With the numbers that `qwen_4_tensors` found."""
    kinds = config["layer_types"]
    keys = qwen_3_5_keys(config) | {
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_feed_forward_length": config["shared_expert_intermediate_size"],
        "hyper_connection.count": config["hc_count"], "hyper_connection.low_rank": config["hc_lowrank"],
        "attention.indexer.head_count": config["indexer_n_heads"],
        "attention.indexer.key_length": config["indexer_head_dim"],
        "attention.indexer.top_k": config["indexer_budget"],
        "attention.compress_ratios": [
            0 if kind.startswith("linear") else config["indexer_compress_ratio"] for kind in kinds
        ],
        "attention.recurrent_layers": [kind.startswith("linear") for kind in kinds],
    }  # fmt: skip
    del keys["full_attention_interval"]
    if not config.get("ple_layer_ids"):
        return keys
    ends = config["eos_token_id"]
    heads = (config["ngram_size"] - 1) * config["heads_per_ngram"]
    return keys | config["found"] | {
        "ple.layers": [number - 1 for number in config["ple_layer_ids"]],
        "ple.ngram_size": config["ngram_size"], "ple.heads_per_ngram": config["heads_per_ngram"],
        "ple.conv_kernel": config["ple_conv_kernel_size"],
        "ple.eos_token_id": ends[0] if isinstance(ends, list) else ends,
        "embedding_length_per_layer_input": (config["ple_embed_dim"] or config["hidden_size"]) // heads,
    }  # fmt: skip


def qwen_4_tensors(config: Config, tensors: Tensors) -> Tensors:
    """The form of Qwen 3.5's mixtures with the names of what is Qwen 4's own; numbers go to the keys."""
    config["found"], out = {}, {}
    table = {}
    for name, values in qwen_3_5_moe_tensors(config, tensors).items():
        match = re.fullmatch(r"model\.layers\.(\d+)\.(.*)\.weight", name)
        at, part = (f"blk.{match[1]}.", match[2]) if match else ("", name)
        if name.rpartition(".")[2] in _HASHES:
            config["found"][_HASHES[name.rpartition(".")[2]]] = values.astype(np.uint64)
        elif ".ngram_embedding." in name:
            table[int((re.findall(r"shard_(\d+)", name) or ["0"])[0])] = values
        elif name.startswith("model.hyper_connection_mixer."):
            out[f"output_hc_{_STREAMS[name.split('.')[2]]}.weight"] = values
        elif part.endswith("index_qk_proj"):
            rows = config["indexer_n_heads"] * config["indexer_head_dim"]
            for half, one in zip("qk", np.split(values, [rows]), strict=True):
                out[f"{at}indexer.{half}_proj.weight"] = one
        elif part in _NAMES:
            one = values + 1 if part.startswith("ple.norm") else values
            out[f"{at}{_NAMES[part]}.weight"] = one.squeeze(1) if part == "ple.conv1d" else one
        else:
            out[name] = values
    if table:
        whole = np.concatenate([table[number] for number in sorted(table)])
        out["per_layer_token_embd.weight"] = whole
    return out


QWEN_4_FORM = GgufForm("qwen4exp", keys=qwen_4_keys, change=qwen_4_tensors, alike=("qwen35moe",))
