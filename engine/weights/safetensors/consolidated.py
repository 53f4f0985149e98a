"""Mistral AI's own folders: params.json and consolidated.safetensors, without a config.json.

`params.json` becomes the config of the same model in a Hugging Face folder, and the tensors get the names of
that. The rows of queries and keys are stored in the order of interleaved rope; they are read in halves.
Source: the tables of transformers' `convert_mistral_weights_to_hf.py`, `convert_ministral3_weights_to_hf.py`
and `convert_mistral4_weight_to_hf.py`, and mistral-inference's `TransformerArgs`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.printable import one_line
from engine.tensors import RawTensor
from engine.weights.safetensors.json import read_json_object
from engine.words import _

PARAMS = "params.json"
WHOLE, INDEX = "consolidated.safetensors", "consolidated.safetensors.index.json"
_SIZES = {
    "dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size", "vocab_size": "vocab_size",
}  # fmt: skip
_LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_EXPERTS = {
    "num_experts": "n_routed_experts", "first_k_dense_replace": "first_k_dense_replace",
    "num_shared_experts": "n_shared_experts", "expert_hidden_dim": "moe_intermediate_size",
    "routed_scale": "routed_scaling_factor", "num_expert_groups": "n_group",
    "num_expert_groups_per_tok": "topk_group",
}  # fmt: skip
_YARN = {"factor": "factor", "beta": "beta_fast", "alpha": "beta_slow"}
_ORIGINAL = "original_max_position_embeddings"
_MOST_LAYERS = 1 << 12
_OUTER = {
    "tok_embeddings": "model.embed_tokens",
    "mm_whisper_embeddings.tok_embeddings": "model.embed_tokens",
    "norm": "model.norm",
    "output": "lm_head",
}
_LAYER = re.compile(r"layers\.(\d+)\.(.+)")
_MODULES = (
    (r"attention_norm", "input_layernorm"),
    (r"ffn_norm", "post_attention_layernorm"),
    (r"attention\.w([qkvo])", r"self_attn.\1_proj"),
    (r"attention\.wkv_a_with_mqa", "self_attn.kv_a_proj_with_mqa"),
    (r"attention\.wkv_b", "self_attn.kv_b_proj"),
    (r"attention\.wq_([ab])", r"self_attn.q_\1_proj"),
    (r"attention\.(q|kv)_a_norm", r"self_attn.\1_a_layernorm"),
    (r"(?:feed_forward|block_sparse_moe)\.(gate|experts\.\d+\.w[123])", r"block_sparse_moe.\1"),
    (r"gate", "mlp.gate"),
    (r"feed_forward\.w1", "mlp.gate_proj"),
    (r"feed_forward\.w2", "mlp.down_proj"),
    (r"feed_forward\.w3", "mlp.up_proj"),
    (r"((?:shared_experts|experts\.\d+)\.)w1", r"mlp.\1gate_proj"),
    (r"((?:shared_experts|experts\.\d+)\.)w2", r"mlp.\1down_proj"),
    (r"((?:shared_experts|experts\.\d+)\.)w3", r"mlp.\1up_proj"),
)
"""A layer's modules, and their names in Hugging Face folders."""
_VISION_SIZES = {"max_image_size": "image_size"}
_VISION = (
    (r"vision_encoder\.(.*\.attention\.)w([qkvo])", r"vision_tower.\1\2_proj"),
    (r"vision_encoder\.(.*\.feed_forward\.)w1", r"vision_tower.\1gate_proj"),
    (r"vision_encoder\.(.*\.feed_forward\.)w2", r"vision_tower.\1down_proj"),
    (r"vision_encoder\.(.*\.feed_forward\.)w3", r"vision_tower.\1up_proj"),
    (r"vision_encoder\.(.+)", r"vision_tower.\1"),
    (r"vision_language_adapter\.w_in", "multi_modal_projector.linear_1"),
    (r"vision_language_adapter\.w_out", "multi_modal_projector.linear_2"),
    (r"patch_merger\.(.+)", r"multi_modal_projector.patch_merger.\1"),
    (r"pre_mm_projector_norm", "multi_modal_projector.norm"),
)
"""Modules of the part for pictures, and their names in Hugging Face folders."""
_ROTATED = re.compile(r"(vision_tower\..*\.attention|.*\.self_attn)\.([qk])_proj\.weight")


def is_consolidated(folder: Path) -> bool:
    """Whether a folder holds a model as Mistral AI publishes it, and no config.json, which would count."""
    if (folder / "config.json").is_file() or not (folder / PARAMS).is_file():
        return False
    return any(folder.glob("consolidated*.safetensors*"))


def read_params(path: Path) -> dict[str, Any]:
    """What config.json would say, from params.json. Raises `BadCheckpoint`, `ModelNotFound` and
    `UnsupportedModel`.
    """
    params = read_json_object(path)
    if str(params.get("model_type", "")).startswith("mamba"):
        raise own_format(path.parent)
    config: dict[str, Any] = {there: read_size(params, name, path) for name, there in _SIZES.items()}
    heads, latent = config["num_attention_heads"], bool(params.get("kv_lora_rank"))
    moe, scaling = _table(params, "moe", path), _table(params, "llama_4_scaling", path)
    config |= {
        "num_key_value_heads": read_size(params, "n_kv_heads", path, heads),
        "rms_norm_eps": read_number(params, "norm_eps", path, 1e-5),
        "tie_word_embeddings": params.get("tied_embeddings") is True,
        **_windows(params, config["num_hidden_layers"], path),
        **_rope(params, scaling, latent, path),
    }
    if latent:
        config |= _latent(params, moe, path)
    else:
        config["head_dim"] = read_size(params, "head_dim", path, config["hidden_size"] // heads)
        if moe is not None:
            config["num_local_experts"] = read_size(moe, "num_experts", path)
    if moe is not None:
        config["num_experts_per_tok"] = read_size(moe, "num_experts_per_tok", path)
    kind = "Mistral4" if latent else "Mixtral" if moe is not None else "Ministral3" if scaling else "Mistral"
    name = "Ministral" if kind == "Mistral" and "layer_types" in config else kind
    config |= {"architectures": [f"{name}ForCausalLM"], "model_type": name.lower()}
    return config | _quantisation(params, path) | _further_parts(params, path)


def own_format(folder: Path) -> UnsupportedModel:
    """The error for a folder in its maker's own format that cannot be read."""
    return UnsupportedModel(
        _(
            "{folder} holds a model in its author's own format (consolidated files and params.json), "
            "which cannot be read; get the variant with a config.json, or a GGUF file.",
            folder=folder,
        )
    )


def _latent(params: Mapping[str, Any], moe: Mapping[str, Any] | None, path: Path) -> dict[str, Any]:
    """Latent attention's sizes, and those of the experts; without these, all layers are dense."""
    sizes = {name: read_size(params, name, path) for name in _LATENT if params.get(name) is not None}
    layers = read_size(params, "n_layers", path)
    dense = {"num_experts": 1, "first_k_dense_replace": layers}
    found = moe if moe is not None else {**dense, "expert_hidden_dim": params["hidden_dim"]}
    experts = {there: found[name] for name, there in _EXPERTS.items() if found.get(name) is not None}
    return {**sizes, "norm_topk_prob": True, "num_experts_per_tok": 1, **experts}


def _rope(
    params: Mapping[str, Any], scaling: Mapping[str, Any] | None, latent: bool, path: Path
) -> dict[str, Any]:
    """The rotary settings, and the length of texts that the model knows."""
    # The oldest files leave the base out: they are of the models with windows.
    usual = 10_000.0 if latent or params.get("sliding_window") else 1e6
    rope: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": read_number(params, "rope_theta", path, usual),
    }
    length = params.get("max_position_embeddings") or params.get("max_seq_len")
    yarn = _table(params, "yarn", path)
    if yarn is not None:
        factor, original = read_number(yarn, "factor", path), read_size(yarn, _ORIGINAL, path)
        rope |= {there: read_number(yarn, name, path) for name, there in _YARN.items() if name in yarn}
        rope |= {"rope_type": "yarn", _ORIGINAL: original}
        length = length or int(factor * original)
        if latent or scaling is not None:
            rope |= {"mscale": 1.0, "mscale_all_dim": 1.0}
        elif yarn.get("apply_scale") is False:
            rope["attention_factor"] = 1.0
    if scaling is not None:
        rope["llama_4_scaling_beta"] = read_number(scaling, "beta", path)
        rope.setdefault(_ORIGINAL, read_size(scaling, _ORIGINAL, path))
    return {"rope_parameters": rope} | ({"max_position_embeddings": length} if length else {})


def _windows(params: Mapping[str, Any], layers: int, path: Path) -> dict[str, Any]:
    """The sliding window of all layers (null: none), or of those in a pattern that repeats."""
    found = params.get("sliding_window")
    if found is None:
        return {"sliding_window": None}
    pattern = found if isinstance(found, list) else [found]
    sizes = {
        read_size({"sliding_window": size}, "sliding_window", path) for size in pattern if size is not None
    }
    if not pattern or len(sizes) > 1 or layers > _MOST_LAYERS or layers % len(pattern):
        raise BadCheckpoint(
            _(
                "{path}: sliding_window is {value}, which is neither one window for {layers} layers nor "
                "a pattern of one size and null that repeats; the file is damaged. Download it again.",
                path=path,
                value=one_line(str(found))[:60],
                layers=layers,
            )
        )
    size = next(iter(sizes), None)
    if size is None or not isinstance(found, list):
        return {"sliding_window": size}
    kinds = ["full_attention" if each is None else "sliding_attention" for each in pattern]
    return {"sliding_window": size, "layer_types": kinds * (layers // len(pattern))}


def _quantisation(params: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The quantization_config: that of fp8 weights, or what the file says itself."""
    table = _table(params, "quantization", path)
    if not table:
        return {}
    if table.get("qformat_weight") == "fp8_e4m3":
        return {"quantization_config": {"quant_method": "fp8"}}
    method = str(table.get("quant_method") or table.get("qformat_weight")).lower().replace("_", "-")
    return {"quantization_config": {**table, "quant_method": method}}


def _further_parts(params: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The part for pictures, in the words of config.json, and that for sounds, which is only named."""
    beside = _table(params, "multimodal", path) or {}
    vision = _table(params, "vision_encoder", path) or _table(beside, "vision_encoder_args", path)
    found: dict[str, Any] = {}
    if vision:
        renamed = {_VISION_SIZES.get(name, name): value for name, value in vision.items()}
        found["vision_config"] = {"model_type": "pixtral", "hidden_act": "silu", **renamed}
        found["spatial_merge_size"] = vision.get("spatial_merge_size", 1)
    if beside.get("whisper_model_args"):
        found["audio_config"] = {}
    return found


def _table(params: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any] | None:
    """The object under a name; None where it is absent or null."""
    value = params.get(name)
    if value is not None and not isinstance(value, dict):
        raise _bad(path, name, value, "{}")
    return value


def read_size(params: Mapping[str, Any], name: str, path: Path, default: int | None = None) -> int:
    """A whole number above 0, which the oldest files may have as text. Raises `BadCheckpoint` for anything
    else.
    """
    value = params.get(name)
    value = default if value is None else value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    if type(value) is not int or not 0 < value < 1 << 48:
        raise _bad(path, name, value, "32")
    return value


def read_number(params: Mapping[str, Any], name: str, path: Path, default: float | None = None) -> float:
    """A number from 0 on. Raises `BadCheckpoint` for anything else."""
    value = params.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise _bad(path, name, value, "0.5")
    return float(value)


def _bad(path: Path, name: str, value: object, example: str) -> BadCheckpoint:
    if value is None:
        return BadCheckpoint(
            _(
                "{path} does not give {name}, so it is incomplete; download it again, or get the variant "
                "with a config.json.",
                path=path,
                name=name,
            )
        )
    return BadCheckpoint(
        _(
            "{path}: {name} is {value}, but a value such as {example} was expected; the file is damaged. "
            "Download it again.",
            path=path,
            name=name,
            value=one_line(repr(value))[:60],
            example=example,
        )
    )


def with_hf_names(tensors: Mapping[str, RawTensor], config: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors by the names of Hugging Face folders, the rows of queries and keys in halves. `config` is
    what `read_params` returns.
    """
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
    head_dim = config.get("head_dim", 0)  # latent attention has none: its rope is interleaved there, too
    eyes = config.get("vision_config", {}).get("num_attention_heads")
    out: dict[str, RawTensor] = {}
    for name, tensor in tensors.items():
        plain = _plain_name(name)
        out[plain] = tensor
        found = _ROTATED.fullmatch(plain)
        if found is None or len(tensor.shape) != 2:
            continue
        # Of another size, they are refused when the model is built, which names the tensor.
        if found[1].startswith("vision_tower."):
            if type(eyes) is int and eyes > 0 and tensor.shape[0] % (2 * eyes) == 0:
                out[plain] = _in_halves(tensor, eyes)
        elif head_dim and not head_dim % 2 and tensor.shape[0] == heads[found[2]] * head_dim:
            out[plain] = _in_halves(tensor, heads[found[2]])
    return out


def _in_halves(tensor: RawTensor, heads: int) -> RawTensor:
    """Rows in the order of interleaved rope as those of halves."""
    order = np.arange(tensor.shape[0]).reshape(heads, -1, 2).transpose(0, 2, 1)
    return tensor.take(order.reshape(-1))


def _plain_name(name: str) -> str:
    module, dot, end = name.rpartition(".")
    if module in _OUTER:
        return _OUTER[module] + dot + end
    for pattern, there in _VISION:
        if match := re.fullmatch(pattern, module):
            return match.expand(there) + dot + end
    layer = _LAYER.fullmatch(module)
    if layer is None:
        return name
    for pattern, there in _MODULES:
        if match := re.fullmatch(pattern, layer[2]):
            return f"model.layers.{layer[1]}.{match.expand(there)}{dot}{end}"
    return name
