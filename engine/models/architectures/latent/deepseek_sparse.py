"""DeepSeek V3.2 (arXiv 2512.02556) and GLM-5: DeepSeek V3 whose attention looks at the positions alone that
an indexer chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.architectures.latent.deepseek import GGUF_NAMES, HF_NAMES, by_sigmoid, dense_first
from engine.models.architectures.latent.deepseek import from_gguf as from_gguf_latent
from engine.models.config import ModelConfig
from engine.models.config.indexer import IndexerNames
from engine.models.headers.decoder import hf_layer_types
from engine.models.headers.experts import hf_experts, hf_groups
from engine.models.headers.keys import Keys
from engine.models.headers.latent import hf_latent_decoder
from engine.models.headers.sparse import gguf_indexer, hf_indexer
from engine.tensors import RawTensor

_AT = "self_attn.indexer."
INDEXED = replace(
    HF_NAMES, indexer=IndexerNames(_AT + "wq_b", _AT + "wk", _AT + "k_norm", _AT + "weights_proj")
)
"""The names in folders."""
GGUF_INDEXED = replace(
    GGUF_NAMES, indexer=IndexerNames("indexer.attn_q_b", "indexer.attn_k", "indexer.k_norm", "indexer.proj")
)
_DEFAULTS = {
    "n_routed_experts": 256, "n_shared_experts": 1, "moe_intermediate_size": 2048, "num_experts_per_tok": 8,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`DeepseekV32ForCausalLM`."""
    read = hf_sparse(
        keys, ((512, 1536), (128, 64, 128)), None, hf_groups(keys, 8, 4), 64, max_position_embeddings=163_840
    )
    return ModelConfig(**read)


def from_hf_glm(keys: Keys) -> ModelConfig:
    """`GlmMoeDsaForCausalLM`, whose layers may share a choice and whose indexers have interleaved rope."""
    read = hf_sparse(
        keys, ((512, 2048), (192, 64, 256)), None, hf_groups(keys), 32, sharing=True,
        max_position_embeddings=202_752, rms_norm_eps=1e-5,
    )  # fmt: skip
    return ModelConfig(**read)


def hf_sparse(
    keys: Keys, sizes: tuple[tuple[int, int], tuple[int, int, int]], sparse: list[int] | None,
    groups: dict[str, Any], index_heads: int, *, sharing: bool = False, **defaults: Any,
) -> dict[str, Any]:  # fmt: skip
    """The fields of `ModelConfig` that folders of this kind have. `sizes` and `defaults` are those of
    `hf_latent_decoder`, `sparse` the layers with experts where config.json does not list them (None: all
    after the dense first ones), `index_heads` the default of index_n_heads. Raises `BadCheckpoint` and
    `UnsupportedModel`.
    """
    keys = keys.over(_DEFAULTS)
    shape = hf_latent_decoder(keys, *sizes, **defaults)
    layers, width = shape["layers"], keys.integer("moe_intermediate_size", 1, 1 << 22)
    kinds = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    if kinds is not None:
        sparse = [layer for layer, kind in enumerate(kinds) if kind == "sparse"]
    experts = hf_experts(
        keys, dense_first(keys, layers, 3) if sparse is None else sparse, count="n_routed_experts",
        used="num_experts_per_tok", width=width,
        shared_width=width * keys.integer("n_shared_experts", 0, 1 << 10),
        **_scored(keys), **groups,
    )  # fmt: skip
    indexer = hf_indexer(keys, shape, index_heads, sharing=sharing, interleaved=sharing)
    return shape | {"experts": experts, "indexer": indexer}


def _scored(keys: Keys) -> dict[str, Any]:
    read = by_sigmoid(keys, 2.5)
    return read | {"scale": keys.number("routed_scaling_factor", 0.0, 1e6, read["scale"])}


def from_gguf_3_2(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`deepseek32`, whose last layers may be those of multi-token prediction."""
    config = from_gguf_latent(keys, tensors, "deepseek32")
    return replace(config, indexer=gguf_indexer(keys, config, range(config.layers), interleaved=False))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`glm-dsa`, whose last layers are those of multi-token prediction."""
    config = from_gguf_latent(keys, tensors, "glm-dsa")
    full = [layer for layer in range(config.layers) if f"blk.{layer}.indexer.attn_k.weight" in tensors]
    return replace(config, indexer=gguf_indexer(keys, config, full))


DEEPSEEK_3_2 = Architecture(
    ("deepseek32",), ("DeepseekV32ForCausalLM",), from_hf, from_gguf_3_2, INDEXED, GGUF_INDEXED
)
GLM_5 = Architecture(("glm-dsa",), ("GlmMoeDsaForCausalLM",), from_hf_glm, from_gguf, INDEXED, GGUF_INDEXED)
