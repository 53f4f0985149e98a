"""Tiny models as Ollama's own converter writes them, with the vision encoder in the same file.

The names are those of the converters in https://github.com/ollama/ollama, convert/convert_*.go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from tests.engine.models.cases.expert_routing import llama_4_keys, llama_4_tensors
from tests.engine.models.gguf_form import Config, GgufForm, Tensors, write_gguf
from tests.tiny import _interleaved


@dataclass(frozen=True)
class OllamaForm:
    """The form of a text model, the parts of names of the encoder's tensors, in order, with Ollama's, and how
    its tensors change once they are renamed.
    """

    text: GgufForm
    names: tuple[tuple[str, str], ...]
    change: Callable[[Tensors], Tensors] = lambda tensors: tensors


def written(form: OllamaForm, folder: Path, path: Path) -> Path:
    """Write the model in `folder` to `path`, which is returned."""
    config: Config = json.loads((folder / "config.json").read_text("utf-8"))
    tensors = load_file(folder / "model.safetensors")
    encoder = dict[str, Any]()
    for name, values in tensors.items():
        if re.match(r"(model\.)?(vision_tower|vision_model|visual|multi_modal_projector)\.", name):
            new = name
            for old, other in form.names:
                new = new.replace(old, other)
            encoder[new] = values
    text = {name: values for name, values in tensors.items() if not _of_head(name)}
    encoder = {name: values for name, values in encoder.items() if not name.startswith("v.head.")}
    return write_gguf(path, form.text, config, text, form.change(encoder))


def _of_head(name: str) -> bool:
    """Whether a tensor is of the vision encoder that the text model's converter would not know."""
    return name.startswith(("vision_model.", "model.vision_model."))


def split(tensors: Tensors, name: str, parts: tuple[str, ...]) -> Tensors:
    """The tensors with rows of several matrices in one, named `name`, under the names of these."""
    found: Tensors = {}
    for each, values in tensors.items():
        if name in each:
            pieces = np.split(values, len(parts))
            found |= {each.replace(name, part): piece for part, piece in zip(parts, pieces, strict=True)}
        else:
            found[each] = values
    return found


def _gemma_3_text(config: Config) -> Mapping[str, Any]:
    vision = config["vision_config"]
    names = {
        "num_hidden_layers": "block_count", "hidden_size": "embedding_length", "image_size": "image_size",
        "intermediate_size": "feed_forward_length", "num_attention_heads": "attention.head_count",
        "patch_size": "patch_size", "layer_norm_eps": "attention.layer_norm_epsilon",
    }  # fmt: skip
    return {
        "attention.layer_norm_rms_epsilon": None, "rope.freq_base": None, "context_length": 4096,
        "rope.dimension_count": None, "attention.sliding_window": config["sliding_window"],
        "attention.sliding_window_pattern": [
            kind == "sliding_attention" for kind in config["layer_types"]
        ],
        "mm.tokens_per_image": config["mm_tokens_per_image"],
        **{f"vision.{new}": vision[old] for old, new in names.items()},
    }  # fmt: skip


def _scale_of_heads(config: Config, tensors: Tensors) -> Tensors:
    """Queries are scaled by the size of heads, as in published models, and not by `query_pre_attn_scalar`."""
    factor = np.float32((config["head_dim"] / config["query_pre_attn_scalar"]) ** 0.5)
    return {
        name: (values + 1) * factor - 1 if name.endswith("q_norm.weight") else values
        for name, values in tensors.items()
    }


def _mistral_3_text(config: Config) -> Mapping[str, Any]:
    vision = config["vision_config"]
    return {
        "rope.scaling.type": "", "rope.scaling.factor": 0.0,
        "spatial_merge_size": config["spatial_merge_size"],
        "image_token_index": 10, "mm.projector_bias": False, "mm.projector_hidden_act": "gelu",
        "vision.block_count": vision["num_hidden_layers"], "vision.embedding_length": vision["hidden_size"],
        "vision.feed_forward_length": vision["intermediate_size"],
        "vision.attention.head_count": vision["num_attention_heads"],
        "vision.attention.key_length": vision["head_dim"], "vision.image_size": vision["image_size"],
        "vision.patch_size": vision["patch_size"], "vision.num_channels": 3, "vision.rope.freq_base": 1e4,
    }  # fmt: skip


def _llama_4_text(config: Config) -> Mapping[str, Any]:
    vision = config["vision_config"]
    return {
        **llama_4_keys(config), "vision.block_count": vision["num_hidden_layers"],
        "vision.embedding_length": vision["hidden_size"], "vision.image_size": vision["image_size"],
        "vision.feed_forward_length": vision["intermediate_size"], "vision.patch_size": vision["patch_size"],
        "vision.attention.head_count": vision["num_attention_heads"], "vision.rope.freq_base": 1e4,
        "vision.layer_norm_epsilon": 1e-5, "vision.pixel_shuffle_ratio": 0.5,
    }  # fmt: skip


def _llama_3_2_text(config: Config) -> Mapping[str, Any]:
    vision = config["vision_config"]
    names = {
        "num_hidden_layers": "block_count", "num_global_layers": "global.block_count",
        "intermediate_layers_indices": "intermediate_layers_indices", "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length", "attention_heads": "attention.head_count",
        "norm_eps": "attention.layer_norm_epsilon", "image_size": "image_size", "patch_size": "patch_size",
        "max_num_tiles": "max_num_tiles", "num_channels": "num_channels",
    }  # fmt: skip
    return {
        "attention.cross_attention_layers": config["cross_attention_layers"],
        **{f"vision.{new}": vision[old] for old, new in names.items()},
    }


def _llama_3_2_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Queries and keys of all layers are in the order of pairs."""
    found: Tensors = {}
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
    for name, values in tensors.items():
        name = re.sub(r"model\.(?:language_model\.)?layers\.(\d+)\.cross_attn", r"blk.\1.cross_attn", name)
        name = name.replace("cross_attn.", "cross_attn_")
        if looking := re.search(r"\.cross_attn_([qk])_proj\.", name):
            values = _interleaved(values, heads[looking[1]])
        found[name] = values
    return found


def _llama_3_2_encoder(tensors: Tensors) -> Tensors:
    """Gates are factors, of which the one of positions is kept twice."""
    found = {name: np.tanh(values) if name.endswith("gate") else values for name, values in tensors.items()}
    gate = found["v.position_embd.gate"]
    return found | {"v.tile_position_embd.gate": gate, "v.position_embd.gate": 1 - gate}


def _qwen_2_5_text(config: Config) -> Mapping[str, Any]:
    vision = config["vision_config"]
    return {
        "rope.mrope_section": config["rope_parameters"]["mrope_section"], "vision.num_channels": 3,
        "vision.block_count": vision["depth"], "vision.embedding_length": vision["hidden_size"],
        "vision.attention.head_count": vision["num_heads"], "vision.patch_size": vision["patch_size"],
        "vision.spatial_merge_size": 2, "vision.spatial_patch_size": 14, "vision.window_size": 112,
        "vision.attention.layer_norm_epsilon": 1e-6, "vision.rope.freq_base": 1e4,
        "vision.fullatt_block_indexes": vision["fullatt_block_indexes"], "vision.temporal_patch_size": 2,
    }  # fmt: skip


def _qwen_2_5_change(tensors: Tensors) -> Tensors:
    kernels = tensors.pop("v.patch_embed.proj.weight")
    both = {f"v.patch_embd_{frame}.weight": kernels[:, :, frame] for frame in (0, 1)}
    return split(tensors, "attn.qkv", ("attn_q", "attn_k", "attn_v")) | both


def _qwen_3_text(config: Config) -> Mapping[str, Any]:
    vision = config["vision_config"]
    return {
        "rope.dimension_sections": [*config["rope_parameters"]["mrope_section"], 0],
        "vision.block_count": vision["depth"], "vision.embedding_length": vision["hidden_size"],
        "vision.attention.head_count": vision["num_heads"], "vision.num_channels": 3,
        "vision.patch_size": vision["patch_size"], "vision.spatial_merge_size": 2,
        "vision.attention.layer_norm_epsilon": 1e-6, "vision.rope.freq_base": 1e4,
        "vision.temporal_patch_size": 2, "vision.shortest_edge": 4 * 32**2, "vision.longest_edge": 30 * 32**2,
        "vision.deepstack_visual_indexes": vision["deepstack_visual_indexes"],
        "vision.image_mean": [0.48145466, 0.4578275, 0.40821073],
        "vision.image_std": [0.26862954, 0.26130258, 0.27577711],
    }  # fmt: skip


def _qwen_3_change(tensors: Tensors) -> Tensors:
    name = next(name for name in tensors if name in ("v.patch_embd.weight", "v.patch_embed.weight"))
    kernels = tensors[name]
    tensors[name] = kernels.reshape(-1, *kernels.shape[2:])
    return split(tensors, "attn_qkv", ("attn_q", "attn_k", "attn_v"))


_QWEN_3 = (
    ("model.visual", "v"), ("patch_embed.proj", "patch_embd"), ("pos_embed", "position_embd"),
    ("blocks", "blk"), ("attn.qkv", "attn_qkv"), ("attn.proj", "attn_out"), ("norm1", "ln1"),
    ("norm2", "ln2"), ("mlp.linear_fc1", "ffn_up"), ("mlp.linear_fc2", "ffn_down"),
    ("deepstack_merger_list", "deepstack"),
)  # fmt: skip
_QWEN_3_FIRST = (
    ("model.visual", "v"), ("patch_embed.proj", "patch_embed"), ("blocks", "blk"), ("attn.qkv", "attn_qkv"),
    ("attn.proj", "attn_out"), ("deepstack_merger_list", "deepstack_merger"),
)  # fmt: skip
_VISION_GEMMA_3 = (
    ("vision_tower.embeddings", "v"), ("vision_tower", "v"), ("encoder.layers", "blk"),
    ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"), ("self_attn.v_proj", "attn_v"),
    ("self_attn.out_proj", "attn_output"), ("input_projection_weight", "input_projection.weight"),
    ("multi_modal_projector", "mm"),
)  # fmt: skip
_VISION_MISTRAL_3 = (
    ("transformer.layers", "blk"), ("vision_tower", "v"), ("ln_pre", "encoder_norm"),
    ("attention.q_proj", "attn_q"), ("attention.k_proj", "attn_k"), ("attention.v_proj", "attn_v"),
    ("attention.o_proj", "attn_output"), ("attention_norm", "attn_norm"),
    ("feed_forward.gate_proj", "ffn_gate"), ("feed_forward.down_proj", "ffn_down"),
    ("feed_forward.up_proj", "ffn_up"), ("multi_modal_projector", "mm"),
)  # fmt: skip
_VISION_QWEN_2_5 = (
    ("visual", "v"), ("blocks", "blk"), ("attn.proj", "attn_out"), ("norm1", "ln1"), ("norm2", "ln2"),
    ("mlp.gate_proj", "ffn_gate"), ("mlp.down_proj", "ffn_down"), ("mlp.up_proj", "ffn_up"),
)  # fmt: skip
_VISION_LLAMA_4 = (
    ("vision_model", "v"), ("multi_modal_projector", "mm"), ("model.layers", "blk"),
    ("input_layernorm", "attn_norm"), ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"),
    ("post_attention_layernorm", "ffn_norm"), ("patch_embedding.linear", "patch_embedding"),
)  # fmt: skip
_VISION_LLAMA_3_2 = (
    ("model.vision_model", "v"), ("vision_model", "v"), ("model.multi", "multi"),
    ("gate_attn", "attn_gate"), ("gate_ffn", "ffn_gate"), ("class_embedding", "class_embd"),
    ("patch_embedding", "patch_embd"), ("gated_positional_embedding.tile_embedding", "tile_position_embd"),
    ("gated_positional_embedding.embedding", "position_embd.weight"),
    ("gated_positional_embedding", "position_embd"), ("embedding.weight", "weight"),
    ("pre_tile_positional_embedding", "pre_tile_position_embd"),
    ("post_tile_positional_embedding", "post_tile_position_embd"), ("layernorm_pre", "pre_ln"),
    ("layernorm_post", "post_ln"), ("global_transformer.layers", "global.blk"), ("transformer.layers", "blk"),
    ("multi_modal_projector", "mm.0"), ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
)  # fmt: skip
_LLAMA_3_2_NOW = (
    ("input_layernorm", "attn_norm"), ("self_attn.o_proj", "attn_output"),
    ("post_attention_layernorm", "ffn_norm"), ("mlp.fc1", "ffn_up"), ("mlp.fc2", "ffn_down"),
)  # fmt: skip
_LLAMA_3_2_FIRST = (
    ("input_layernorm", "ln1"), ("self_attn.o_proj", "attn_out"), ("post_attention_layernorm", "ln2"),
    ("mlp.fc1", "ffn_down"), ("mlp.fc2", "ffn_up"),
)  # fmt: skip
_LLAMA_3_2 = GgufForm(
    "mllama", interleaved=True, keys=_llama_3_2_text, change=_llama_3_2_tensors, alike=("llama",)
)
FORMS: Mapping[str, OllamaForm] = {
    "gemma3": OllamaForm(
        GgufForm("gemma3", offset=1.0, keys=_gemma_3_text, change=_scale_of_heads),
        _VISION_GEMMA_3,
        lambda tensors: tensors | {"mm.mm_soft_emb_norm.weight": tensors["mm.mm_soft_emb_norm.weight"] + 1},
    ),
    "llama4": OllamaForm(
        GgufForm("llama4", keys=_llama_4_text, change=llama_4_tensors), _VISION_LLAMA_4
    ),
    "mllama": OllamaForm(_LLAMA_3_2, (*_VISION_LLAMA_3_2, *_LLAMA_3_2_NOW), _llama_3_2_encoder),
    "mllama, first": OllamaForm(_LLAMA_3_2, (*_VISION_LLAMA_3_2, *_LLAMA_3_2_FIRST), _llama_3_2_encoder),
    "mistral3": OllamaForm(
        GgufForm("mistral3", interleaved=True, keys=_mistral_3_text), _VISION_MISTRAL_3
    ),
    "qwen2_5_vl": OllamaForm(
        GgufForm("qwen25vl", keys=_qwen_2_5_text, alike=("qwen2vl",)), _VISION_QWEN_2_5, _qwen_2_5_change
    ),
    "qwen3_vl": OllamaForm(GgufForm("qwen3vl", keys=_qwen_3_text), _QWEN_3, _qwen_3_change),
    "qwen3_vl, first": OllamaForm(GgufForm("qwen3vl", keys=_qwen_3_text), _QWEN_3_FIRST, _qwen_3_change),
}  # fmt: skip
