"""ChatGLM2, ChatGLM3 and GLM-4 as their authors publish them: what `glm.py` computes, under other names.

Source: `modeling_chatglm.py` and `configuration_chatglm.py` in those folders.
"""

from __future__ import annotations

from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.architectures.dense.glm import GLM
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_CONTEXT, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.names import HF

HF_NAMES = replace(
    HF, embed="transformer.embedding.word_embeddings", norm="transformer.encoder.final_layernorm",
    head="transformer.output_layer", layer="transformer.encoder.layers.{}.",
    query_key_value="self_attention.query_key_value", output="self_attention.dense", gate="", up="",
    gate_up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h",
)  # fmt: skip
_ONLY = {
    "position_encoding_2d": False, "multi_query_attention": True, "rmsnorm": True, "post_layer_norm": True,
    "apply_residual_connection_post_layernorm": False, "add_bias_linear": False, "prefix_projection": False,
    "quantization_bit": 0, "pre_seq_len": None,
}  # fmt: skip
"""Keys with one value in all folders except those of ChatGLM-6B, whose prompts look both ways, and of the
authors' own 4-bit and 8-bit weights and tuned prefixes.
"""
_BASE, _SHORTEST = 10000.0, 2048
"""The base of rope, and the fewest tokens that a model was trained on before its positions were divided."""


def from_hf(keys: Keys) -> ModelConfig:
    """`ChatGLMModel` and `ChatGLMForConditionalGeneration`.

    `rope_ratio` multiplies the base of rope. In ChatGLM2-6B-32K alone it divides the positions; that folder's
    ratio is the only one that the context is long enough for.
    """
    for name, value in _ONLY.items():
        refuse_other(keys.over({"multi_query_attention": False}), name, value)
    keys = keys.renamed(
        num_hidden_layers="num_layers", intermediate_size="ffn_hidden_size", head_dim="kv_channels",
        num_key_value_heads="multi_query_group_num", rms_norm_eps="layernorm_epsilon",
        vocab_size="padded_vocab_size", max_position_embeddings="seq_length",
    )  # fmt: skip
    ratio = keys.number("rope_ratio", 1e-3, 1e6, 1.0)
    context = keys.integer("max_position_embeddings", 1, MAX_CONTEXT, _SHORTEST)
    divided = 1 < ratio <= context / _SHORTEST
    if divided:
        keys = keys.replaced("rope_scaling", {"rope_type": "linear", "factor": ratio})
    shape = hf_decoder(
        keys, bias=keys.flag("add_qkv_bias", False), base=_BASE if divided else _BASE * ratio, share=0.5,
        interleaved=True, num_key_value_heads=1, rms_norm_eps=1e-5, max_position_embeddings=_SHORTEST,
    )  # fmt: skip
    return ModelConfig(**shape | {"output_bias": False})


CHAT_GLM = Architecture(
    (), ("ChatGLMModel", "ChatGLMForConditionalGeneration"), from_hf, None, HF_NAMES, None, gguf_of=GLM
)
