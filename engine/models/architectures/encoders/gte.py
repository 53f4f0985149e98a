"""GTE (arXiv 2407.19669): BERT with rope and gates. Its authors call the class `NewModel`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.models.architecture import Architecture
from engine.models.architectures.encoders.bert import ENCODER
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_activation, hf_shape
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.headers.rope import rope_from_hf
from engine.models.layers.positions.rope import RopeConfig
from engine.models.names import TensorNames

_QUIRKS: Mapping[str, Any] = {
    **ENCODER, "placement": "after_sum", "norm_bias": True, "embed_norm": True, "final_norm": False,
    "attention_bias": True, "output_bias": True,
}  # fmt: skip
_NAMES = TensorNames(
    embed="embeddings.word_embeddings", norm="", head="lm_head.decoder", layer="encoder.layer.{}.",
    attention_norm="", query="", key="", value="", query_key_value="attention.qkv_proj",
    output="attention.o_proj", mlp_norm="", gate="", up="", gate_up="mlp.up_gate_proj", gate_last=True,
    down="mlp.down_proj", attention_post="attn_ln", mlp_post="mlp_ln", embed_norm="embeddings.LayerNorm",
    token_types="embeddings.token_type_embeddings",
)  # fmt: skip
_PLAIN = {"layer_norm_type": "layer_norm", "position_embedding_type": "rope", "logn_attention_scale": False}
_BASE, _MAKERS_BASE = 160_000.0, 10_000.0


def from_hf(keys: Keys) -> ModelConfig:
    """`GteModel` of transformers, and the authors' `NewModel`."""
    for name, usual in _PLAIN.items():
        refuse_other(keys, name, usual)
    defaults = {"layer_norm_eps": 1e-12, "max_position_embeddings": 8192, "tie_word_embeddings": True}
    shape = hf_shape(_unscaled(keys), "layer_norm_eps", **defaults)
    return ModelConfig(
        **shape, **_QUIRKS, activation=hf_activation(keys, default="gelu"), rope=_rope(keys, shape),
        token_types=keys.integer("type_vocab_size", 0, 1 << 16, 1),
    )  # fmt: skip


def _rope(keys: Keys, shape: Mapping[str, Any]) -> RopeConfig:
    """The authors' kind "ntk" multiplies the base by a factor f, and slows all frequencies by f^(2 / D)."""
    dim = shape["head_dim"]
    base = _MAKERS_BASE if shape["architecture"].startswith("New") else _BASE
    scaling = keys.table("rope_scaling")
    if scaling is None or scaling.raw("type") != "ntk" or scaling.has("mixed_b"):
        return rope_from_hf(keys, dim, base=base)
    factor = scaling.number("factor", 1.0, 1e6)
    base = keys.number("rope_theta", 1.0, 1e12, base)
    return RopeConfig(base * factor, dim, False, (factor ** (2 / dim),) * (dim // 2))


def _unscaled(keys: Keys) -> Keys:
    """The keys whose context is the length of training, which the authors state with all scaling."""
    return keys.without("rope_scaling")


GTE = Architecture(
    (), ("GteModel", "GteForMaskedLM", "NewModel", "NewForMaskedLM"), from_hf, None, _NAMES, None,
    prefixes=("", "new."),
)  # fmt: skip
