"""What ExLlamaV2's configuration reads from a model's files, and what of it is not here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.core import ModelInfo
from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from engine.models.config import ModelConfig
    from engine.weights.checkpoint import Checkpoint

_VISION = (
    "model_type", "head_dim", "num_attention_heads", "num_key_value_heads", "num_key_value_groups",
    "hidden_size", "intermediate_size", "merger_intermediate_size", "hidden_act", "rope_theta",
    "feature_layer", "patch_size", "image_mean", "image_std", "resample", "rescale_factor", "size",
    "num_channels", "num_layers", "spatial_merge_size", "spatial_patch_size", "min_pixels", "max_pixels",
    "temporal_patch_size", "max_size", "fullatt_block_indexes", "window_size", "mm_tokens_per_image",
)  # fmt: skip
_POSITIONS = (
    "scale_long_factor", "scale_short_factor", "scale_pos_emb_alt", "pos_id_index",
    "rotary_embedding_base_alt", "l3_rope_factor", "l3_rope_low_freq_factor", "l3_rope_high_freq_factor",
    "l3_rope_original_max_position_embeddings", "original_max_seq_len", "partial_rotary_factor",
)  # fmt: skip
_FILES = (
    "arch", "tensor_file_map", "tensor_files", "tokenizer_path", "model_config", "generation_config",
    "checkpoint_fused_mlp", "checkpoint_offset_qzeros", "norm_head", "initializer_range",
    "attention_multiplier", "query_pre_attn_scalar", "scale_depth", "sliding_window_pattern",
)  # fmt: skip
MISSING: Mapping[str, str] = (
    {"vision_" + name: "the vision tower reads it from the model's files" for name in _VISION}
    | dict.fromkeys(("mrope_section", "multimodal_projector_bias"), "it is read from the model's files")
    | dict.fromkeys(
        _POSITIONS,
        "it is read from the model's files; set scale_pos_emb, scale_alpha_value or yarn_rope_factor",
    )
    | dict.fromkeys(("bos_token_id", "pad_token_id"), "the tokenizer has it")
    | dict.fromkeys(_FILES, "the engine finds the model's files without it")
)
"""Attributes of ExLlamaV2's configuration that are not here -> why."""

FACTS = frozenset({
    "architecture", "vocab_size", "num_hidden_layers", "eos_token_id", "hidden_size", "intermediate_size",
    "num_attention_heads", "num_key_value_heads", "num_key_value_groups", "head_dim", "norm_eps",
    "num_experts", "rotary_embedding_base", "sliding_window", "attn_logit_softcapping",
    "final_logit_softcapping", "logit_scale", "scale_emb", "use_qk_norm",
})  # fmt: skip
"""Attributes that can be read once the headers are, but not set."""


@dataclass(frozen=True, slots=True)
class FileScaling:
    """How the files scale positions: the linear factor (1: none); else the `method` "yarn", "llama3" or "su"
    with its factor over `original` tokens.
    """

    linear: float = 1.0
    method: str = ""
    factor: float = 1.0
    original: int = 0


def file_scaling(checkpoint: Checkpoint) -> FileScaling:
    """The scaling in the headers. Raises `BadCheckpoint` for a factor that is no number above 0."""
    metadata = checkpoint.metadata
    if checkpoint.format == "gguf":
        prefix = f"{metadata.get('general.architecture')}."
        linear = metadata.get(prefix + "rope.scale_linear")
        factor = linear or metadata.get(prefix + "rope.scaling.factor")
        kind = metadata.get(prefix + "rope.scaling.type", "linear" if factor else "none")
        original = metadata.get(prefix + "rope.scaling.original_context_length")
        original = original or metadata.get(prefix + "context_length")
    else:
        config = metadata["config"]
        inner = config.get("text_config") or {}
        places = (inner, config)
        table: Mapping[str, Any] = next(
            (
                place[name]
                for place in places
                for name in ("rope_parameters", "rope_scaling")
                if place.get(name)
            ),
            {},
        )
        kind, factor = table.get("rope_type", table.get("type", "none")), table.get("factor")
        original = table.get("original_max_position_embeddings") or next(
            (place["max_position_embeddings"] for place in places if "max_position_embeddings" in place), 0
        )
    method = {"longrope": "su", "su": "su", "yarn": "yarn", "llama3": "llama3"}.get(str(kind), "")
    if not factor or not (method or kind == "linear"):
        return FileScaling(method=method)
    if not isinstance(factor, int | float) or isinstance(factor, bool) or factor <= 0:
        raise BadCheckpoint(f"The headers scale positions by {factor!r}, but a number above 0 was expected.")
    if method:
        return FileScaling(1.0, method, float(factor), int(original or 0))
    return FileScaling(float(factor))


def facts_of(info: ModelInfo, config: ModelConfig) -> dict[str, Any]:
    """The values of `FACTS`."""
    return {
        "architecture": config.architecture, "vocab_size": info.vocab_size,
        "num_hidden_layers": info.layers, "eos_token_id": next(iter(info.stop_token_ids), None),
        "hidden_size": config.width, "intermediate_size": config.ffn_width,
        "num_attention_heads": config.heads, "num_key_value_heads": config.kv_heads,
        "num_key_value_groups": config.heads // config.kv_heads, "head_dim": config.head_dim,
        "norm_eps": config.norm_eps, "num_experts": None if config.experts is None else config.experts.count,
        "rotary_embedding_base": None if config.rope is None else config.rope.base,
        "sliding_window": max(config.windows, default=0),
        "attn_logit_softcapping": config.attention_cap or None,
        "final_logit_softcapping": config.logit_cap or None,
        "logit_scale": config.logit_scale, "scale_emb": config.embed_scale,
        "use_qk_norm": config.qk_norm != "none",
    }  # fmt: skip
