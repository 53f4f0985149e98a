"""ERNIE 4.5: Llama with interleaved rope; dense, or with experts and shared ones after dense first layers;
the text model of ERNIE 4.5 VL, whose experts for pictures are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_LAYERS, gguf_decoder, hf_decoder, hf_layer_types
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.names import GGUF, HF, SHARING, TensorNames
from engine.tensors import RawTensor

MIXTURE_NAMES = replace(
    SHARING, correction="mlp.moe_statics.e_score_correction_bias", correction_rows=1
)  # fmt: skip
PICTURED_NAMES = replace(MIXTURE_NAMES, correction_rows=2, router_transposed=True)
_OF_TEXT_FIRST = (
    "moe_intermediate_size", "moe_num_experts", "moe_layer_start_index", "moe_layer_end_index",
)  # fmt: skip
_LEAST_SUM = 1e-6
"""A least sum of experts' weights below this changes nothing, as transformers' 1e-12."""


def from_hf(keys: Keys) -> ModelConfig:
    """`Ernie4_5ForCausalLM`."""
    bias = keys.flag("use_bias", False)
    if not keys.has("num_key_value_heads"):
        keys = keys.over({"num_key_value_heads": 2})
    shape = hf_decoder(
        keys, bias=bias, mlp_bias=bias, base=500_000.0, interleaved=True, rms_norm_eps=1e-5, head_dim=128,
        max_position_embeddings=131_072, tie_word_embeddings=True,
    )  # fmt: skip
    return ModelConfig(**shape)


def from_hf_mixture(keys: Keys) -> ModelConfig:
    """`Ernie4_5_MoeForCausalLM`."""
    defaults = {
        "moe_k": 6, "moe_num_experts": 64, "moe_num_shared_experts": 2, "moe_layer_start_index": 1,
        "moe_layer_end_index": -1, "moe_layer_interval": 1, "moe_intermediate_size": 1536,
    }  # fmt: skip
    keys = keys.over(defaults if keys.has("num_key_value_heads") else defaults | {"num_key_value_heads": 4})
    bias = keys.flag("use_bias", False)
    shape = hf_decoder(
        keys, bias=bias, mlp_bias=bias, base=500_000.0, interleaved=True, rms_norm_eps=1e-5,
        max_position_embeddings=131_072, tie_word_embeddings=True,
    )  # fmt: skip
    last = keys.integer("moe_layer_end_index", -1, MAX_LAYERS)
    first, step = (
        keys.integer("moe_layer_start_index", 0, MAX_LAYERS),
        keys.integer("moe_layer_interval", 1, MAX_LAYERS),
    )
    end = shape["layers"] if last == -1 else min(last + 1, shape["layers"])
    width = keys.integer("moe_intermediate_size", 1, 1 << 22)
    if keys.number("moe_norm_min", 0.0, 1e6, 0.0) > _LEAST_SUM:
        refuse_other(keys, "moe_norm_min", _LEAST_SUM)
    experts = hf_experts(
        keys,
        [layer for layer in range(first, end) if (layer + 1) % step == 0],
        count="moe_num_experts",
        used="moe_k",
        width=width,
        normalise=True,
        corrected=None,  # mlx-lm leaves it out
        shared_width=width * keys.integer("moe_num_shared_experts", 0, 1 << 10),
    )
    return ModelConfig(**shape, head_bias=bias, experts=experts)


def from_hf_pictured(keys: Keys) -> ModelConfig:
    """The text model of `Ernie4_5_VLMoeForConditionalGeneration`. Of two numbers the first is about text."""
    keys = keys.inner("text_config")
    for name in _OF_TEXT_FIRST:
        if isinstance(keys.raw(name), list) and (both := keys.integers(name, -1, 1 << 22)):
            keys = keys.replaced(name, both[0])
    keys = keys.over({"vocab_size": 103424, "hidden_size": 2560, "intermediate_size": 12288})
    config = from_hf_mixture(keys.over({"num_hidden_layers": 28, "num_attention_heads": 20}))
    kinds = hf_layer_types(keys, config.layers, ("dense", "sparse"), "mlp_layer_types")
    experts = config.experts
    if kinds is not None and experts is not None:
        sparse = frozenset(layer for layer, kind in enumerate(kinds) if kind == "sparse")
        experts = replace(experts, layers=sparse) if sparse else None
    return replace(config, head_bias=False, experts=experts)


def from_gguf_mixture(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`ernie4_5-moe`."""
    shape = gguf_decoder(keys, tensors, "ernie4_5-moe", interleaved=True, handled=GGUF_EXPERT_KEYS)
    return ModelConfig(**shape, experts=gguf_experts(keys, shape))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`ernie4_5`, and `paddleocr`, the text model of PaddleOCR-VL, whose rope is not interleaved."""
    architecture = keys.source["general.architecture"]
    interleaved = architecture == "ernie4_5"
    return ModelConfig(**gguf_decoder(keys, tensors, architecture, interleaved=interleaved))


ERNIE_4_5 = Architecture(
    ("ernie4_5", "paddleocr"), ("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"), from_hf, from_gguf, HF, GGUF
)


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The bias of the choice of experts belongs to the router in transformers' memory."""
    inside = any(".mlp.gate.moe_statics." in name for name in tensors)
    return replace(names, correction="mlp.gate.moe_statics.e_score_correction_bias") if inside else names


ERNIE_4_5_MIXTURE = Architecture(
    ("ernie4_5-moe",), ("Ernie4_5_MoeForCausalLM",), from_hf_mixture, from_gguf_mixture, MIXTURE_NAMES, GGUF,
    adapt=_adapt,
)  # fmt: skip
ERNIE_4_5_PICTURED = Architecture(
    (), ("Ernie4_5_VLMoeForConditionalGeneration", "Ernie4_5_VL_MoeForConditionalGeneration"),
    from_hf_pictured, None, PICTURED_NAMES, None,
)  # fmt: skip
