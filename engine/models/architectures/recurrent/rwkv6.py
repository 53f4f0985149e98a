"""RWKV-6 (arXiv 2404.05892) from GGUF files, and the models whose attention was converted to it
(`rwkv6qwen2`, arXiv 2501.15570).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.architectures.recurrent.rwkv7 import NORM_EPS, gguf_heads
from engine.models.config import ModelConfig
from engine.models.config.recurrent import Rwkv6
from engine.models.headers.decoder import MAX_LAYERS, gguf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF, ShiftNames, TensorNames
from engine.tensors import RawTensor

_SEPARATE = tuple(f"time_mix_lerp_{part}.weight" for part in "wkvrg")
NAMES = replace(
    GGUF, mlp_norm="attn_norm_2", query="time_mix_receptance", key="time_mix_key", value="time_mix_value",
    output="time_mix_output", up="channel_mix_key", down="channel_mix_value",
    shifted=ShiftNames(
        ("time_mix_lerp_x.weight", "time_mix_lerp_fused.weight"),
        ("time_mix_decay_w1", "time_mix_decay_w2", "time_mix_decay.weight"), "time_mix_first.weight",
        ("channel_mix_lerp_k.weight", "channel_mix_lerp_r.weight"), "channel_mix_receptance",
        mixture=("time_mix_w1", "time_mix_w2"), gate="time_mix_gate", norm="time_mix_ln",
    ),
)  # fmt: skip
CONVERTED_NAMES = replace(NAMES, mlp_norm="ffn_norm", up="ffn_up", down="ffn_down")
_MOST = 1 << 14


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`rwkv6`, whose number of heads is 0."""
    shape, kind = _gguf(keys, tensors, "rwkv6", 0)
    own: dict[str, Any] = {
        "norm": "layer", "norm_bias": True, "embed_norm": True, "gated": False, "mlp_bias": False,
        "activation": "relu2",
    }  # fmt: skip
    return ModelConfig(**shape | own, recurrent=kind)


def from_gguf_converted(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`rwkv6qwen2`: the norms and the feed-forward parts of Qwen 2."""
    shape, kind = _gguf(keys, tensors, "rwkv6qwen2", keys.integer("attention.head_count_kv", 0, _MOST, 0))
    return ModelConfig(**shape, recurrent=replace(kind, gated=True))


def _gguf(
    keys: Keys, tensors: Mapping[str, RawTensor], architecture: str, groups: int
) -> tuple[dict[str, Any], Rwkv6]:
    keys, heads, dim = gguf_heads(keys)
    shape = gguf_decoder(keys, tensors, architecture, layer_norm=architecture == "rwkv6")
    rank, decay = (keys.integer(f"time_{name}_extra_dim", 1, _MOST) for name in ("mix", "decay"))
    halved = keys.integer("rescale_every_n_layers", 0, MAX_LAYERS, 0)
    layers = frozenset(range(shape["layers"]))
    kind = Rwkv6(heads, groups or heads, dim, rank, decay, NORM_EPS, halved_every=halved)
    return shape | {"rope": None, "recurrent_layers": layers}, kind


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The shares in one tensor, or in five as older files have them."""
    own = names.shifted
    assert own is not None
    if names.layer.format(0) + own.shares[1] in tensors:
        return names
    return replace(names, shifted=replace(own, shares=(own.shares[0], *_SEPARATE)))


RWKV_6 = Architecture(("rwkv6",), (), None, from_gguf, HF, NAMES, adapt=adapted)
RWKV_6_CONVERTED = Architecture(
    ("rwkv6qwen2",), (), None, from_gguf_converted, HF, CONVERTED_NAMES, adapt=adapted
)
