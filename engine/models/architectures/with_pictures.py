"""Models that also see pictures or hear sounds, of which the text model is run: an encoder and its connection
beside one of the other architectures, whose config.json is an object inside theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.keys import Keys
from engine.models.names import TensorNames
from engine.tensors import RawTensor
from engine.words import _

TEXT_MODELS = {
    "cohere2": "Cohere2ForCausalLM", "exaone4": "Exaone4ForCausalLM", "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM", "glm4v_moe_text": "Glm4MoeForCausalLM", "glm4v_text": "Glm4ForCausalLM",
    "gpt_oss": "GptOssForCausalLM", "granite": "GraniteForCausalLM",
    "granite_docling_text": "GraniteForCausalLM", "lfm2": "Lfm2ForCausalLM",
    "lfm2_moe": "Lfm2MoeForCausalLM", "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM",
    "phi3": "Phi3ForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen2_5_vl_text": "Qwen2ForCausalLM",
    "qwen2_vl_text": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_vl_moe_text": "Qwen3MoeForCausalLM", "qwen3_vl_text": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}  # fmt: skip
"""The `model_type` of a text model -> the class that runs it alone."""
WITH_PICTURES = {
    "AyaVisionForConditionalGeneration": "cohere2", "Cohere2VisionForConditionalGeneration": "cohere2",
    "Exaone4_5_ForConditionalGeneration": "exaone4", "FastVlmForConditionalGeneration": "qwen2",
    "Glm46VForConditionalGeneration": "glm4v_text", "Glm4vForConditionalGeneration": "glm4v_text",
    "Glm4vMoeForConditionalGeneration": "glm4v_moe_text", "Idefics2ForConditionalGeneration": "mistral",
    "GraniteDoclingForConditionalGeneration": "granite_docling_text",
    "Idefics3ForConditionalGeneration": "llama", "InternVLChatModel": "qwen2",
    "InternVLForConditionalGeneration": "qwen2", "Lfm2VlForConditionalGeneration": "lfm2",
    "LightOnOcrForConditionalGeneration": "qwen3", "LlavaForConditionalGeneration": "llama",
    "LlavaNextForConditionalGeneration": "llama", "LlavaNextVideoForConditionalGeneration": "llama",
    "LlavaOnevisionForConditionalGeneration": "qwen2", "Ovis2ForConditionalGeneration": "qwen2",
    "Qwen2AudioForConditionalGeneration": "qwen2", "Qwen2VLForConditionalGeneration": "qwen2_vl_text",
    "Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl_text",
    "Qwen3VLForConditionalGeneration": "qwen3_vl_text",
    "Qwen3VLMoeForConditionalGeneration": "qwen3_vl_moe_text",
    "SmolVLMForConditionalGeneration": "llama", "VideoLlama3ForConditionalGeneration": "qwen2",
    "VipLlavaForConditionalGeneration": "llama", "VoxtralForConditionalGeneration": "llama",
}  # fmt: skip
"""The class of the whole -> the `model_type` of its text model where config.json does not say."""
_TIED = {
    "AyaVisionForConditionalGeneration", "Cohere2VisionForConditionalGeneration",
    "GraniteDoclingForConditionalGeneration",
    "InternVLForConditionalGeneration", "Lfm2VlForConditionalGeneration",
    "LightOnOcrForConditionalGeneration", "Ovis2ForConditionalGeneration",
}  # fmt: skip
"""Those whose tables are tied where config.json does not say."""
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "granite_docling_text": {
        "num_key_value_heads": 4, "rms_norm_eps": 1e-5, "embedding_multiplier": 12.0, "logits_scaling": 4.0,
        "residual_multiplier": 0.263, "attention_multiplier": 0.015625, "max_position_embeddings": 32768,
    },
    "llama": {"intermediate_size": 11008, "vocab_size": 32000},
    "mistral": {"intermediate_size": 14336, "vocab_size": 32000},
    "qwen2": {"intermediate_size": 22016, "vocab_size": 151936},
    "qwen3": {"intermediate_size": 22016, "vocab_size": 151936},
    "qwen3_vl_moe_text": {"norm_topk_prob": True},
}  # fmt: skip
"""What folders leave out because it is the class's default, where that of the text model alone is another or
it has none.
"""
_COMMON = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
_OF_THE_WHOLE = ("_name_or_path", "torch_dtype", "dtype", "quantization_config")
_PARTS = ("text_config", "llm_config")
_PREFIXES = ("", "language_model.", "-model.language_model.", "-model.text_model.", "-")


def text_architecture(
    config: Mapping[str, Any], name: str, known: Mapping[str, Architecture]
) -> Architecture:
    """The architecture of the text model of a folder whose class is `name`, among the `known` ones by class.

    Raises `UnsupportedModel` for an unknown text model, and `BadCheckpoint`.
    """
    keys = Keys(config, "config.json")
    inner = text_keys(keys)
    kind = inner.text("model_type", WITH_PICTURES[name]) if inner is not keys else WITH_PICTURES[name]
    if kind not in TEXT_MODELS:
        raise UnsupportedModel(
            _(
                "The model's text part is of the type {kind!r}, which this version of the program "
                "cannot run in a {name}. Choose another model.",
                kind=kind,
                name=name,
            )
        )
    found = known[TEXT_MODELS[kind]]
    adapt = _stacks if kind == "qwen3_vl_moe_text" else found.adapt
    return replace(found, from_hf=partial(_from_hf, found, kind), prefixes=_PREFIXES, adapt=adapt)


def text_keys(keys: Keys) -> Keys:
    """The keys of the text model; those of the whole where it has no object of its own."""
    return next((inner for name in _PARTS if (inner := keys.table(name)) is not None), keys)


def _from_hf(found: Architecture, kind: str, keys: Keys) -> ModelConfig:
    inner = text_keys(keys)
    outer_tied, inner_tied = (each.raw("tie_word_embeddings") for each in (keys, inner))
    for tied in (outer_tied, inner_tied):
        if tied is not None and type(tied) is not bool:
            raise BadCheckpoint(
                _(
                    "config.json: tie_word_embeddings is {tied!r}, but true or false was expected; "
                    "the file is damaged.",
                    tied=tied,
                )
            )
    # The text model of Qwen3-VL's mixture says true, which does not hold for the whole.
    tied = outer_tied or (inner_tied and kind != "qwen3_vl_moe_text")
    if outer_tied is None and inner_tied is None:
        tied = keys.source["architectures"][0] in _TIED
    whole = {name: keys.raw(name) for name in _OF_THE_WHOLE if keys.has(name)}
    inner = inner.over(_COMMON | dict(_DEFAULTS.get(kind, {})))
    own = Keys({**inner.source, **whole}, "config.json").replaced("tie_word_embeddings", bool(tied))
    if kind == "glm4v_text" and own.raw("head_dim") is None:
        width, heads = own.integer("hidden_size", 1, 1 << 20), own.integer("num_attention_heads", 1, 1 << 14)
        own = own.replaced("head_dim", width // heads)
    config = found.from_hf(own.replaced("architectures", [TEXT_MODELS[kind]]))
    return replace(config, logit_scale=1.0) if kind == "cohere2" else config


def _stacks(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """Stacks of experts may be transposed, as the makers of Qwen3-VL have them."""
    stack = tensors.get(names.layer.format(0) + names.expert_gate_up)
    table = tensors.get(names.embed + ".weight")
    if stack is None or table is None or len(stack.shape) != 3:
        return names
    return replace(names, stacks_transposed=stack.shape[1] == table.shape[-1])
