"""Phi-1, 1.5 and 2: one layer norm for both halves of a block, biases, rope on a part of each head. Phi-3 and
4: Llama with fused projections, longrope, rope on a part of each head, a sliding window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder, hf_windows
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF, TensorNames
from engine.tensors import RawTensor

HF_NAMES_2 = replace(
    HF, norm="model.final_layernorm", output="self_attn.dense", gate="", up="mlp.fc1", down="mlp.fc2",
    query_norm="self_attn.q_layernorm", key_norm="self_attn.k_layernorm",
)  # fmt: skip
HF_NAMES = replace(HF, query_key_value="self_attn.qkv_proj", gate_up="mlp.gate_up_proj")
GGUF_NAMES = replace(GGUF, gate_up="ffn_up")
_QUIRKS_2: dict[str, Any] = {
    "norm": "layer", "norm_bias": True, "gated": False, "placement": "parallel", "qk_layer_norm": True,
}  # fmt: skip
_DEFAULTS_2 = {
    "vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
    "num_attention_heads": 32,
}  # fmt: skip
_DEFAULTS_MULTIMODAL = {
    "vocab_size": 200064, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
    "sliding_window": None,
}  # fmt: skip


def from_hf_2(keys: Keys) -> ModelConfig:
    """`PhiForCausalLM`."""
    shape = hf_decoder(
        keys.over(_DEFAULTS_2), bias=True, mlp_bias=True, activation="gelu_new", share=0.5, even=True,
        norm_eps="layer_norm_eps", layer_norm_eps=1e-5,
    )  # fmt: skip
    normed = "head" if keys.flag("qk_layernorm", False) else "none"
    return ModelConfig(**shape, **_QUIRKS_2, head_bias=True, qk_norm=normed)


def from_gguf_2(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`phi2`."""
    shape = gguf_decoder(keys, tensors, "phi2", layer_norm=True)
    return ModelConfig(**shape, **_QUIRKS_2, activation="gelu_tanh", head_bias=None)


def from_hf(keys: Keys) -> ModelConfig:
    """`Phi3ForCausalLM`, also in the folders of Phi-4."""
    shape = hf_decoder(keys, bias=False, share=1.0, rms_norm_eps=1e-5, max_position_embeddings=4096)
    return ModelConfig(**shape, windows=hf_windows(keys, shape["layers"]))


def from_hf_multimodal(keys: Keys) -> ModelConfig:
    """`Phi4MultimodalForCausalLM`, and `Phi4MMForCausalLM` of the original folder."""
    return from_hf(keys.over(_DEFAULTS_MULTIMODAL))


def _base_layers(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The original folder has the matrices beside the adapters for pictures and sounds, which are unused."""
    if f"{names.layer.format(0)}{names.output}.base_layer.weight" not in tensors:
        return names
    changed = ("query_key_value", "output", "gate_up", "down")
    return replace(names, **{name: getattr(names, name) + ".base_layer" for name in changed})


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`phi3`."""
    shape = gguf_decoder(keys, tensors, "phi3")
    return ModelConfig(**shape, windows=hf_windows(keys, shape["layers"], "attention.sliding_window"))


PHI_2 = Architecture(("phi2",), ("PhiForCausalLM",), from_hf_2, from_gguf_2, HF_NAMES_2, GGUF)
PHI = Architecture(("phi3",), ("Phi3ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES)
PHI_4_MULTIMODAL = Architecture(
    (), ("Phi4MultimodalForCausalLM", "Phi4MMForCausalLM"), from_hf_multimodal, None, HF_NAMES, None,
    adapt=_base_layers,
)  # fmt: skip
