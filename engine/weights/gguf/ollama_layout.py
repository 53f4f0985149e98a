"""Files of Ollama's own converter, read as if llama.cpp's had written them: they have other keys, other names
of tensors, and the vision encoder in the model's file.

Sources: convert/ and llama/compat/ of https://github.com/ollama/ollama.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from engine.lazy_dataclass import dataclass
from engine.tensors import RawTensor
from engine.weights.tensor import FileTensor

Metadata = Mapping[str, Any]
Tensors = Mapping[str, RawTensor]

_HALF, _CLIP_MEAN, _CLIP_STD = (
    [0.5] * 3, [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711],
)  # fmt: skip
_QWEN_2_5, _QWEN_2 = "qwen25vl", "qwen2vl"
_GPT_OSS = "gptoss"
_OWN_NAMES = ("gemma3", _GPT_OSS, _QWEN_2_5)
"""Architectures whose files differ also without an encoder."""
_ARCHITECTURE = "general.architecture"
_MOST_LAYERS = 1 << 10
_DEEP = re.compile(r"v\.deepstack(?:_merger|_merger_list)?\.(\d{1,4})\.")


class _Over(Mapping[str, Any]):
    """The entries of `base` with others before them."""

    def __init__(self, first: Metadata, base: Metadata) -> None:
        self._first, self._base = first, base

    def __getitem__(self, key: str) -> Any:
        return self._first[key] if key in self._first else self._base[key]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._base, *self._first)))

    def __len__(self) -> int:
        return len(list(iter(self)))


@dataclass(frozen=True, slots=True)
class _Encoder:
    """The vision encoder of an architecture: its clip.projector_type, the parts of its tensors' names that
    differ, in order, with those of llama.cpp, and the keys under "clip." that the file may leave out, by its
    keys and its renamed tensors.
    """

    kind: str
    renames: tuple[tuple[str, str], ...]
    keys: Callable[[Metadata, Tensors], Mapping[str, Any]]


def as_llama_cpp(metadata: Metadata, tensors: Tensors) -> tuple[Metadata, Tensors]:
    """The keys and tensors of a file as llama.cpp's converter names them, those of its vision encoder under
    "clip." and "v." as in an mmproj file; unchanged if the file is not one of Ollama's converter.
    """
    name = metadata.get(_ARCHITECTURE)
    if not isinstance(name, str):
        return metadata, tensors
    encoder = _ENCODERS.get(name) if f"{name}.vision.block_count" in metadata else None
    changes = dict[str, Any]()
    if name in _OWN_NAMES or encoder is not None:
        changes |= _TEXT_KEYS.get(name, _no_keys)(metadata)
    if name == _GPT_OSS:
        tensors = {_gpt_oss_name(each): tensor for each, tensor in tensors.items()}
    if encoder is not None:
        tensors = _renamed(name, encoder, metadata, tensors)
        tensors = _cross_attention(metadata, tensors) if name == "mllama" else tensors
        changes |= _clip_keys(name, encoder, metadata, tensors)
    return (_Over(changes, metadata), tensors) if changes else (metadata, tensors)


# -- the text model


def _no_keys(metadata: Metadata) -> dict[str, Any]:
    return {}


def _qwen_2_5(metadata: Metadata) -> dict[str, Any]:
    """Qwen2.5-VL's keys under the name that llama.cpp has for it and for Qwen2-VL."""
    found = _moved(metadata, _QWEN_2_5, _QWEN_2)
    sections = found.get(f"{_QWEN_2}.rope.mrope_section", [16, 24, 24])
    return {f"{_QWEN_2}.rope.dimension_sections": sections, **found}


def _moved(metadata: Metadata, name: str, other: str) -> dict[str, Any]:
    """The keys of an architecture under its other name, but those of its vision encoder."""
    keys = [key for key in metadata if key.startswith(f"{name}.") and ".vision." not in key]
    return {_ARCHITECTURE: other, **{other + key[len(name) :]: metadata[key] for key in keys}}


def _gpt_oss(metadata: Metadata) -> dict[str, Any]:
    """GPT-OSS under llama.cpp's name; its files name the wrong rule for cutting texts into words."""
    usual = {"gpt-oss.rope.scaling.type": "yarn"} if "gptoss.rope.scaling.factor" in metadata else {}
    return {**usual, **_moved(metadata, _GPT_OSS, "gpt-oss"), "tokenizer.ggml.pre": "gpt-4o"}


def _gpt_oss_name(name: str) -> str:
    """A tensor's name in llama.cpp's files."""
    name = name + ".weight" if name.endswith(".attn_sinks") else name
    return name.replace(".attn_out.", ".attn_output.").replace(".ffn_norm.", ".post_attention_norm.")


def _gemma_3(metadata: Metadata) -> dict[str, Any]:
    """What Gemma 3's files leave out is the same in all of its sizes but for the scale of rope, which models
    of 131,072 tokens have.
    """
    if "gemma3.attention.layer_norm_rms_epsilon" in metadata:
        return {}
    first = metadata.get("gemma3.rope.global.freq_base", 1e6)
    local = metadata.get("gemma3.rope.local.freq_base", 1e4)
    usual = {"attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": first, "rope.freq_base_swa": local}
    context = metadata.get("gemma3.context_length")
    if isinstance(context, int) and context >= 131072:
        usual |= {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
    return {f"gemma3.{key}": value for key, value in usual.items() if f"gemma3.{key}" not in metadata}


_MISTRAL_NAMES = {
    "rope.scaling.beta_fast": "rope.scaling.yarn_beta_fast",
    "rope.scaling.beta_slow": "rope.scaling.yarn_beta_slow",
    "rope.scaling.mscale_all_dim": "rope.scaling.yarn_log_multiplier",
    "rope.scaling_beta": "attention.temperature_scale",
}  # fmt: skip


def _mistral_3(metadata: Metadata) -> dict[str, Any]:
    """Names of YaRN's numbers, and no scaling where the model has none."""
    found = {
        f"mistral3.{new}": metadata[f"mistral3.{old}"]
        for old, new in _MISTRAL_NAMES.items()
        if f"mistral3.{old}" in metadata
    }
    if metadata.get("mistral3.rope.scaling.type") in ("", "default"):
        found |= {"mistral3.rope.scaling.type": "none", "mistral3.rope.scaling.factor": 1.0}
    if metadata.get("tokenizer.ggml.pre") in (None, "", "default"):
        found["tokenizer.ggml.pre"] = "tekken"
    return found


def _qwen_3(metadata: Metadata) -> dict[str, Any]:
    """The sections of rope, which are the same in all sizes."""
    key = f"{metadata[_ARCHITECTURE]}.rope.dimension_sections"
    return {} if key in metadata else {key: [24, 20, 20, 0]}


def _qwen_3_5(metadata: Metadata) -> dict[str, Any]:
    """The heads of layers with attention, where a list has none for the others."""
    key = f"{metadata[_ARCHITECTURE]}.attention.head_count_kv"
    heads = metadata.get(key)
    if not isinstance(heads, list) or not all(type(each) is int for each in heads):
        return {}
    return {key: max(heads, default=0)}


_TEXT_KEYS: Mapping[str, Callable[[Metadata], dict[str, Any]]] = {
    "gemma3": _gemma_3, _GPT_OSS: _gpt_oss, "mistral3": _mistral_3, _QWEN_2_5: _qwen_2_5, "qwen3vl": _qwen_3,
    "qwen3vlmoe": _qwen_3, "qwen35": _qwen_3_5, "qwen35moe": _qwen_3_5,
}  # fmt: skip


# -- the vision encoder


def _clip_keys(name: str, encoder: _Encoder, metadata: Metadata, tensors: Tensors) -> dict[str, Any]:
    start = f"{name}.vision."
    own = {f"clip.vision.{key[len(start) :]}": metadata[key] for key in metadata if key.startswith(start)}
    usual = {f"clip.{key}": value for key, value in encoder.keys(metadata, tensors).items()}
    width = {"clip.vision.projection_dim": metadata.get(f"{name}.embedding_length")}
    return {**usual, **own, **width, "clip.has_vision_encoder": True, "clip.projector_type": encoder.kind}


def _renamed(name: str, encoder: _Encoder, metadata: Metadata, tensors: Tensors) -> dict[str, RawTensor]:
    """All tensors, those of the encoder under llama.cpp's names and in its order."""
    deep, found = metadata.get(f"{name}.vision.deepstack_visual_indexes"), dict[str, RawTensor]()
    for old, tensor in tensors.items():
        new = old
        if old.startswith(("v.", "mm.")):
            new = _DEEP.sub(partial(_layer_of, deep), old)
            for part, other in encoder.renames:
                new = new.replace(part, other)
            tensor = _ordered(name, new, metadata, tensor)
        elif old.endswith(".ssm_dt"):
            new = old + ".bias"
        found[new] = tensor
    return found


def _cross_attention(metadata: Metadata, tensors: Tensors) -> Tensors:
    """Llama 3.2 Vision's layers that look at pictures under the names of folders. Their queries and keys have
    the order of pairs as those with rope have, but the weights of their norms do not.
    """
    found = dict[str, RawTensor]()
    for name, tensor in tensors.items():
        start, mark, end = name.partition(".cross_attn_")
        if mark and end.endswith(("_norm.weight", "_proj.weight")):
            key = {"q_proj.weight": "head_count", "k_proj.weight": "head_count_kv"}.get(end)
            heads = metadata.get(f"mllama.attention.{key}")
            rows = tensor.shape[0] if tensor.shape else 0
            if isinstance(heads, int) and heads > 0 and rows % (2 * heads) == 0:
                order = np.arange(rows).reshape(heads, rows // heads // 2, 2)
                tensor = tensor.take(order.transpose(0, 2, 1).reshape(-1))
            found[f"{start}.cross_attn.{end}"] = tensor
        else:
            found[name] = tensor
    return found


def _layer_of(deep: Any, name: re.Match[str]) -> str:
    """The layer in place of the number of a merger of deep rows."""
    number = int(name[1])
    known = isinstance(deep, list) and number < len(deep)
    return f"v.deepstack.{deep[number]}." if known else name[0]


def _ordered(name: str, tensor_name: str, metadata: Metadata, tensor: RawTensor) -> RawTensor:
    """Mistral's queries and keys in the order of pairs, and Qwen's patches of two frames as kernels."""
    if name == "mistral3" and tensor_name.endswith((".attn_q.weight", ".attn_k.weight")):
        heads, rows = metadata.get("mistral3.vision.attention.head_count"), tensor.shape[0]
        if isinstance(heads, int) and heads > 0 and rows % (2 * heads) == 0:
            order = np.arange(rows).reshape(heads, 2, rows // heads // 2)
            return tensor.take(order.transpose(0, 2, 1).reshape(-1))
    if name in _QWEN_3 and tensor_name == "v.patch_embd.weight" and isinstance(tensor, FileTensor):
        packed, *kernel = tensor.shape
        if len(kernel) == 3 and packed % 3 == 0:
            return tensor.retyped(tensor_name, tensor.type, (packed // 3, 3, *kernel))
    return tensor


def _gemma_3_clip(metadata: Metadata, tensors: Tensors) -> dict[str, Any]:
    side, patch, tokens = (
        metadata.get(f"gemma3.{key}", usual)
        for key, usual in (
            ("vision.image_size", 896),
            ("vision.patch_size", 14),
            ("mm.tokens_per_image", 256),
        )
    )
    factor = 4
    if all(type(each) is int and each > 0 for each in (side, patch, tokens)):
        factor = side // patch // math.isqrt(tokens)
    return {
        "use_gelu": True, "vision.projector.scale_factor": factor, "vision.image_mean": _HALF,
        "vision.image_std": _HALF, "vision.attention.layer_norm_epsilon": 1e-6,
    }  # fmt: skip


def _gemma_4_clip(metadata: Metadata, tensors: Tensors) -> dict[str, Any]:
    return {"vision.attention.layer_norm_epsilon": 1e-6}


def _mistral_3_clip(metadata: Metadata, tensors: Tensors) -> dict[str, Any]:
    return {
        "use_silu": True, "vision.spatial_merge_size": metadata.get("mistral3.spatial_merge_size", 2),
        "vision.image_mean": _CLIP_MEAN, "vision.image_std": _CLIP_STD,
        "vision.attention.layer_norm_epsilon": 1e-5,
    }  # fmt: skip


def _qwen_2_5_clip(metadata: Metadata, tensors: Tensors) -> dict[str, Any]:
    """The first of the layers over whole pictures says how often they come."""
    whole = metadata.get("qwen25vl.vision.fullatt_block_indexes")
    first = whole[0] if isinstance(whole, list) and whole and type(whole[0]) is int else 7
    return {
        "use_silu": True, "vision.n_wa_pattern": first + 1, "vision.image_mean": _CLIP_MEAN,
        "vision.image_std": _CLIP_STD, "vision.attention.layer_norm_epsilon": 1e-6,
        "vision.feed_forward_length": _rows(tensors, "v.blk.0.ffn_up.weight"),
    }  # fmt: skip


def _qwen_3_clip(metadata: Metadata, tensors: Tensors) -> dict[str, Any]:
    name = metadata[_ARCHITECTURE]
    patch, layers, deep = (
        metadata.get(f"{name}.vision.{key}")
        for key in ("patch_size", "block_count", "deepstack_visual_indexes")
    )
    side = math.isqrt(_rows(tensors, "v.position_embd.weight")) * patch if isinstance(patch, int) else None
    found: dict[str, Any] = {
        "use_gelu": True, "vision.image_size": side, "vision.image_mean": _HALF, "vision.image_std": _HALF,
        "vision.attention.layer_norm_epsilon": 1e-6,
        "vision.feed_forward_length": _rows(tensors, "v.blk.0.ffn_up.weight"),
    }  # fmt: skip
    if deep is not None:
        found["vision.is_deepstack_layers"] = _flags(deep, layers)
    for edge, pixels in (("shortest_edge", "image_min_pixels"), ("longest_edge", "image_max_pixels")):
        if limit := metadata.get(f"{name}.vision.{edge}"):
            found[f"vision.{pixels}"] = limit
    return found


def _flags(deep: object, layers: object) -> object:
    """Which of the layers are in a list; what is no list of layers stays as it is, and is refused later."""
    if not isinstance(deep, list) or not isinstance(layers, int) or layers > _MOST_LAYERS:
        return deep
    if not all(type(each) is int and 0 <= each < layers for each in deep):
        return deep
    return [layer in deep for layer in range(layers)]


def _llama_4_clip(metadata: Metadata, tensors: Tensors) -> dict[str, Any]:
    ratio = metadata.get("llama4.vision.pixel_shuffle_ratio")
    return {
        "use_gelu": True, "vision.image_mean": _HALF, "vision.image_std": _HALF,
        "vision.projector.scale_factor": round(1 / ratio) if isinstance(ratio, float) and ratio > 1e-2 else 2,
        "vision.attention.layer_norm_epsilon": metadata.get("llama4.vision.layer_norm_epsilon", 1e-5),
    }  # fmt: skip


def _llama_3_2_clip(metadata: Metadata, tensors: Tensors) -> dict[str, Any]:
    return {"vision.attention.layer_norm_epsilon": 1e-5}


def _rows(tensors: Tensors, name: str) -> int:
    """The rows of a tensor; 1 if it is not there, which is found later."""
    tensor = tensors.get(name)
    return tensor.shape[0] if tensor is not None and tensor.shape else 1


_QWEN_3 = ("qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe")
_QWEN_3_ENCODER = _Encoder(
    "qwen3vl_merger",
    (
        ("v.patch_embed.", "v.patch_embd."), ("v.pos_embed.", "v.position_embd."),
        ("v.merger.norm.", "v.post_ln."), ("v.merger.linear_fc1.", "mm.0."),
        ("v.merger.linear_fc2.", "mm.2."), (".norm1.", ".ln1."), (".norm2.", ".ln2."),
        (".mlp.linear_fc1.", ".ffn_up."), (".mlp.linear_fc2.", ".ffn_down."),
        (".linear_fc1.", ".fc1."), (".linear_fc2.", ".fc2."),
    ),
    _qwen_3_clip,
)  # fmt: skip
_ENCODERS: Mapping[str, _Encoder] = {
    "gemma3": _Encoder(
        "gemma3",
        (
            ("v.patch_embedding.", "v.patch_embd."), ("v.position_embedding.", "v.position_embd."),
            ("v.post_layernorm.", "v.post_ln."), (".layer_norm1.", ".ln1."), (".layer_norm2.", ".ln2."),
            (".attn_output.", ".attn_out."), (".mlp.fc1.", ".ffn_up."), (".mlp.fc2.", ".ffn_down."),
            ("mm.mm_", "mm."),
        ),
        _gemma_3_clip,
    ),
    "gemma4": _Encoder("gemma4v", (), _gemma_4_clip),
    "llama4": _Encoder(
        "llama4",
        (
            ("v.vision_adapter.mlp.fc1.", "mm.model.mlp.1."),
            ("v.vision_adapter.mlp.fc2.", "mm.model.mlp.2."), ("mm.linear_1.", "mm.model.fc."),
            ("v.positional_embedding_vlm", "v.position_embd.weight"),
            ("v.class_embedding", "v.class_embd"), ("v.layernorm_post.", "v.post_ln."),
            ("v.layernorm_pre.", "v.pre_ln."), ("v.patch_embedding.", "v.patch_embd."),
            (".attn_output.", ".attn_out."), (".attn_norm.", ".ln1."), (".ffn_norm.", ".ln2."),
            (".mlp.fc1.", ".ffn_up."), (".mlp.fc2.", ".ffn_down."),
        ),
        _llama_4_clip,
    ),
    "mistral3": _Encoder(
        "pixtral",
        (
            ("v.patch_conv.", "v.patch_embd."), ("v.encoder_norm.", "v.pre_ln."),
            (".attn_output.", ".attn_out."), (".attn_norm.", ".ln1."), (".ffn_norm.", ".ln2."),
            ("mm.linear_1.", "mm.1."), ("mm.linear_2.", "mm.2."), ("mm.norm.", "mm.input_norm."),
            ("mm.patch_merger.merging_layer.", "mm.patch_merger."),
        ),
        _mistral_3_clip,
    ),
    _QWEN_2_5: _Encoder(
        "qwen2.5vl_merger",
        (
            ("v.merger.ln_q.", "v.post_ln."), ("v.merger.mlp.0.", "mm.0."), ("v.merger.mlp.2.", "mm.2."),
            ("v.patch_embd_0.weight", "v.patch_embd.weight"),
            ("v.patch_embd_1.weight", "v.patch_embd.weight.1"),
        ),
        _qwen_2_5_clip,
    ),
    "mllama": _Encoder(
        "mllama", ((".attn_norm.", ".ln1."), (".ffn_norm.", ".ln2."), (".attn_output.", ".attn_out.")),
        _llama_3_2_clip,
    ),
    **dict.fromkeys(_QWEN_3, _QWEN_3_ENCODER),
}  # fmt: skip
