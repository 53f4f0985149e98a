"""Writes a tiny folder as GGUF as llama.cpp's converter does: names of the `gguf` package, its keys, its row
order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from tests.tiny import TINY, _add_key, _gguf_metadata, _interleaved

Floats = npt.NDArray[np.float32]
Config = dict[str, Any]
Tensors = dict[str, Floats]


@dataclass(frozen=True)
class GgufForm:
    """How llama.cpp's converter writes one architecture."""

    architecture: str
    """The value of general.architecture."""
    interleaved: bool = False
    """Whether the rows of queries and keys are stored in the order of interleaved rope."""
    offset: float = 0.0
    """Added to the weight of every norm."""
    keys: Callable[[Config], Mapping[str, Any]] = lambda config: {}
    """Further keys of the architecture from config.json; None leaves a common one out."""
    change: Callable[[Config, Tensors], Tensors] = lambda config, tensors: tensors
    """Prepares the folder's tensors before they are renamed; it may use names of GGUF."""
    alike: tuple[str, ...] = ()
    """Architectures that have its names, where the `gguf` package does not know it yet; the first counts."""


def write_gguf(
    path: Path, form: GgufForm, config: Config, tensors: Tensors, more: Tensors | None = None
) -> Path:
    """Write all tensors in F32, and those of `more` under their names, with the tokenizer of the tiny models.
    Returns `path`.
    """
    import gguf

    config = {**_gpt2_keys(config), **config, **config.get("text_config", {})}
    converted = _converted(form, config, tensors)  # first: it may add to `config` what `form.keys` reads
    writer = gguf.GGUFWriter(path, form.architecture)
    tokenizer = {key: value for key, value in _gguf_metadata(TINY).items() if key.startswith("tokenizer.")}
    common = {
        key if key.startswith(("xielu.", "tokenizer.")) else f"{form.architecture}.{key}": value
        for key, value in (_common_keys(config) | dict(form.keys(config))).items()
    }
    for key, value in (tokenizer | common).items():
        _add_key(writer, key, value)
    for name, values in (converted | (more or {})).items():
        writer.add_tensor(name, np.ascontiguousarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def layer_count(config: Config) -> int:
    """The number of layers, which a list of their kinds may say alone."""
    return int(config.get("num_hidden_layers") or len(config["layers_block_type"]))


def _gpt2_keys(config: Config) -> Config:
    """The names of keys that GPT-2, Bloom, MPT and EXAONE 3 have."""
    own = {
        "num_attention_heads": ("n_head", "n_heads"), "hidden_size": ("n_embd", "d_model", "dim"),
        "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
        "max_position_embeddings": ("n_positions", "seq_length", "max_seq_len"),
    }  # fmt: skip
    return {name: config[key] for name, keys in own.items() for key in keys if key in config}


def _common_keys(config: Config) -> dict[str, Any]:
    rope = config.get("rope_parameters") or {}
    heads, width = config.get("num_attention_heads", 0), config["hidden_size"]
    dim = config.get("head_dim") or width // max(1, heads)
    keys = {
        "block_count": layer_count(config), "context_length": config.get("max_position_embeddings"),
        "embedding_length": width, "feed_forward_length": config.get("intermediate_size"),
        "attention.head_count": heads, "attention.head_count_kv": config.get("num_key_value_heads") or heads,
        "attention.layer_norm_rms_epsilon": config.get("rms_norm_eps"),
        "attention.layer_norm_epsilon": config.get("layer_norm_eps"),
        "attention.key_length": config.get("head_dim"), "attention.value_length": config.get("head_dim"),
        "rope.dimension_count": int(dim * rope.get("partial_rotary_factor", 1.0)),
        "rope.freq_base": rope.get("rope_theta"),
        "expert_count": config.get("num_local_experts") or config.get("num_experts"),
        "expert_used_count": config.get("num_experts_per_tok"),
    }  # fmt: skip
    if rope.get("rope_type") in ("linear", "yarn"):
        keys |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": float(rope["factor"])}
    if rope.get("rope_type") == "yarn":
        keys["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    return {key: value for key, value in keys.items() if value is not None}


def _converted(form: GgufForm, config: Config, tensors: Tensors) -> Tensors:
    import gguf

    kinds = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}
    # making a map of an architecture with names of its own changes those of all later maps
    with mock.patch.object(
        gguf.TensorNameMap, "block_mappings_cfg", gguf.TensorNameMap.block_mappings_cfg.copy()
    ):
        maps = [
            gguf.get_tensor_name_map(kinds[name], layer_count(config))
            for name in form.alike or (form.architecture,)
        ]
    out = {}
    for name, values in stacked_experts(form.change(config, text_only(tensors))).items():
        if form.interleaved and re.search(r"\.[qk]_proj\.", name):
            heads = config["num_attention_heads"] if ".q_proj." in name else config["num_key_value_heads"]
            values = _interleaved(values, heads)
        if name.endswith("norm.weight"):
            values = values + np.float32(form.offset)
        found = next(
            filter(None, (names.get_name(name, (".weight", ".bias", ".scale")) for names in maps)), None
        )
        if found is None and name.startswith(("blk.", "output_hc_", "per_layer_", "hrm.")):
            found = name  # a name of GGUF that the package does not know yet
        assert found is not None, f"llama.cpp has no name for {name}"
        out[found] = values
    return out


def text_only(tensors: Tensors) -> Tensors:
    """The text model alone, without the vision encoder and without its prefix."""
    out = {}
    for name, values in tensors.items():
        if not re.match(r"(model\.)?(vision_tower|visual|multi_modal_projector)\.", name):
            plain = re.sub(r"^model\.language_model\.", "model.", name)
            out[re.sub(r"^language_model\.", "", plain)] = values
    return out


def stacked_experts(tensors: Tensors) -> Tensors:
    """Stack the matrices of all experts, (X, N, K)."""
    out: Tensors = {}
    parts: dict[str, dict[int, Floats]] = {}
    for name, values in tensors.items():
        match = re.fullmatch(r"(.*\.experts)\.(\d+)\.(.*)", name)
        if match is None:
            out[name] = values
        else:
            parts.setdefault(f"{match[1]}.{match[3]}", {})[int(match[2])] = values
    return out | {
        name: np.stack([experts[i] for i in range(len(experts))]) for name, experts in parts.items()
    }
