"""Xing 4: DeepSeek V3 with four streams of rows, which hyper-connections mix (arXiv 2512.24880) and whose
mean is normed last.

Source: `modeling_xing4_0.py` of its makers' folders, and the converter of llama.cpp's branch for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.architectures.latent import deepseek
from engine.models.architectures.latent.deepseek_v4 import hyper_connections
from engine.models.config import ModelConfig
from engine.models.config.hyper import HyperConnections
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import unsupported
from engine.tensors import RawTensor

HF_NAMES = replace(deepseek.HF_NAMES, hyper_attention="attn_hc.hc_", hyper_mlp="ffn_hc.hc_")
GGUF_NAMES = replace(deepseek.GGUF_NAMES, hyper_attention="hc_attn_{}.weight", hyper_mlp="hc_ffn_{}.weight")
_LIMIT = 30.0
_DEFAULTS = {
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 2, "n_routed_experts": 64,
    "num_experts_per_tok": 4, "moe_intermediate_size": 1024, "routed_scaling_factor": 2.0,
    "q_lora_rank": 768, "max_position_embeddings": 262_144,
}  # fmt: skip
_KEYS = {
    "hc_mult": "hyper_connection.count", "hc_eps": "hyper_connection.epsilon",
    "hc_sinkhorn_iters": "hyper_connection.sinkhorn_iterations",
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`Xing4_0ForCausalLM`."""
    high = keys.number("mhc_h_res_clamp_max", 0.0, 1e6, _LIMIT)
    if keys.number("mhc_h_res_clamp_min", -1e6, 0.0, -_LIMIT) != -high:
        raise unsupported("mhc_h_res_clamp_min", keys.raw("mhc_h_res_clamp_min"))
    return replace(deepseek.from_hf_3(keys.over(_DEFAULTS)), hyper=_hyper(keys, high))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`xing4_0`."""
    config = deepseek.from_gguf(keys, tensors, "xing4_0")
    return replace(config, hyper=_hyper(keys.renamed(**_KEYS), _LIMIT))


def _hyper(keys: Keys, limit: float) -> HyperConnections:
    found = hyper_connections(keys, mean=True)
    return replace(found, read_eps=0.0, inputs_first=True, limit=limit)


XING_4 = Architecture(("xing4_0",), ("Xing4_0ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES)
