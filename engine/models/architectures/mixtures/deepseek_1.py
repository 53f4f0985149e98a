"""The first DeepSeek mixture (DeepSeekMoE, arXiv 2401.06066), and the text models of DeepSeek-OCR: Llama's
attention, experts and shared ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.errors import UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_CONTEXT, MAX_LAYERS, gguf_decoder, hf_decoder, hf_layer_types
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts, limited_groups
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, MIXTURE, with_shared
from engine.tensors import RawTensor
from engine.words import _


def from_hf(keys: Keys) -> ModelConfig:
    """`DeepseekForCausalLM`, under the original keys, and the text model of DeepSeek-OCR 2, under those of
    transformers.
    """
    shape = hf_decoder(keys, bias=keys.flag("attention_bias", False))
    layers, step = shape["layers"], keys.integer("moe_layer_freq", 1, MAX_LAYERS, 1)
    first = keys.integer("first_k_dense_replace", 0, MAX_LAYERS, 0)
    sparse = keys.raw("n_routed_experts") is not None
    kinds = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    own = [layer for layer in range(first, layers) if layer % step == 0]
    if kinds is not None:
        own = [layer for layer, kind in enumerate(kinds) if kind == "sparse"]
    width = keys.integer("moe_intermediate_size", 1, 1 << 22, 1407)
    experts = hf_experts(
        keys, own if sparse else (), count="n_routed_experts", used="num_experts_per_tok", width=width,
        normalise=keys.flag("norm_topk_prob", False),
        scale=keys.number("routed_scaling_factor", 0.0, 1e6, 1.0),
        shared_width=width * keys.integer("n_shared_experts", 0, 1 << 10, 0), **limited_groups(keys),
    )  # fmt: skip
    return ModelConfig(**shape, experts=experts)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`deepseek`."""
    shape = gguf_decoder(keys, tensors, "deepseek", interleaved=True, handled=GGUF_EXPERT_KEYS)
    return ModelConfig(**shape, experts=gguf_experts(keys, shape, normalise=False))


def from_gguf_ocr(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`deepseek2-ocr`, the text model of DeepSeek-OCR, with halves in rope."""
    if keys.integer("attention.sliding_window", 0, MAX_CONTEXT, 0):
        raise UnsupportedModel(
            _(
                "The model attends to its prompt and to a window of its reply (attention.sliding_window), "
                "which is not supported. Choose another model."
            )
        )
    shape = gguf_decoder(keys, tensors, "deepseek2-ocr", handled=GGUF_EXPERT_KEYS)
    return ModelConfig(**shape, experts=gguf_experts(keys, shape, normalise=False))


DEEPSEEK_1 = Architecture(
    ("deepseek",), ("DeepseekForCausalLM",), from_hf, from_gguf,
    with_shared(MIXTURE, "mlp.shared_experts"), GGUF, interleaved_rows=True,
)  # fmt: skip
DEEPSEEK_OCR = Architecture(
    ("deepseek2-ocr",), (), None, from_gguf_ocr, with_shared(MIXTURE, "mlp.shared_experts"), GGUF
)
