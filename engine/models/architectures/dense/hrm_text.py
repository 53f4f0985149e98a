"""HRM-Text: two stacks of Llama's layers that run in turns, each several times, with gated attention and
norms without weights. A prompt's tokens attend to earlier ones alone here; its authors can also let them
attend to all of the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.hyper import Cycles
from engine.models.headers.decoder import MAX_LAYERS, gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import unlike_layers
from engine.models.names import GGUF, HF, TensorNames
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF, norm="", layer="model.L_module.layers.{}.", second_layer="model.H_module.layers.{}.",
    output_gate="self_attn.gate_proj", first_state="model.z_L_init",
)  # fmt: skip
GGUF_NAMES = replace(GGUF, norm="", output_gate="attn_gate", first_state="hrm.z_l_init")
_FUSED = "attn.gqkv_proj"
PUBLISHED = replace(
    HF_NAMES, output="attn.o_proj", gate_up="mlp.gate_up_proj",
    pieces=tuple(
        (f"self_attn.{part}_proj", _FUSED, at, 4) for at, part in enumerate(("gate", "q", "k", "v"))
    ),
)  # fmt: skip
_DEFAULTS = {
    "vocab_size": 151_808, "hidden_size": 1536, "intermediate_size": 4096, "num_hidden_layers": 16,
    "num_attention_heads": 12,
}  # fmt: skip
_MOST_RUNS = 64


def from_hf(keys: Keys) -> ModelConfig:
    """`HrmTextForCausalLM`."""
    keys = keys.over(_DEFAULTS)
    slow, fast = keys.integer("H_cycles", 1, _MOST_RUNS, 2), keys.integer("L_cycles", 1, _MOST_RUNS, 3)
    # The layers of a stack, or those of all its runs and under another key those of the stack.
    layers = keys.integer("num_hidden_layers", 1, MAX_LAYERS)
    size = keys.integer("num_layers_per_stack", 1, MAX_LAYERS, layers)
    if 2 * size > MAX_LAYERS:
        raise unlike_layers(layers, "num_layers_per_stack", size)
    keys = keys.replaced("num_key_value_heads", None).replaced("num_hidden_layers", 2 * size)
    bias = keys.flag("attention_bias", False)
    shape = hf_decoder(keys, bias=bias, mlp_bias=keys.flag("mlp_bias", False), head_dim=128)
    scale = 1 / keys.number("initializer_range", 1e-9, 1.0, 0.02)
    return ModelConfig(
        **shape, norm_weights=False, final_norm=False, output_gate="row", cycles=Cycles(size, slow, fast),
        embed_scale=keys.number("embedding_scale", 0.0, 1e9, scale),
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`hrm_text`, whose files count a layer as often as it runs but number it once, the fast ones first."""
    size = keys.integer("hrm.layers_per_stack", 1, MAX_LAYERS // 2)
    slow, fast = keys.integer("hrm.h_cycles", 1, _MOST_RUNS), keys.integer("hrm.l_cycles", 1, _MOST_RUNS)
    layers = keys.integer("block_count", 1, 1 << 24)
    if layers != size * slow * (fast + 1):
        raise unlike_layers(layers, "hrm.layers_per_stack", size)
    shape: dict[str, Any] = gguf_decoder(
        keys.replaced("block_count", 2 * size), tensors, "hrm_text", handled=("embedding_scale",)
    )
    return ModelConfig(
        **shape, norm_weights=False, final_norm=False, output_gate="row", cycles=Cycles(size, slow, fast),
        embed_scale=keys.number("embedding_scale", 0.0, 1e9, 0.0) or 1.0,
    )  # fmt: skip


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The original names, where a file has them."""
    if not any(f".{_FUSED}." in name for name in tensors):
        return names
    outer = ("embed", "head", "layer", "second_layer", "first_state")
    return replace(PUBLISHED, **{name: getattr(names, name) for name in outer})


HRM_TEXT = Architecture(
    ("hrm_text",), ("HrmTextForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES, adapt=adapted
)
