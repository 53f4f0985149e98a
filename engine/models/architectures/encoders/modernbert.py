"""Encoders with rope: ModernBERT (arXiv 2412.13663), Nomic BERT (arXiv 2402.01613) and EuroBERT (arXiv
2503.05500).

ModernBERT has windows in all layers but every third, with their own rope, and no norm before the first
attention. Nomic BERT is BERT with rope and gates, or with
experts in every other layer instead (arXiv 2502.07972), EuroBERT a Llama that attends to both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.architectures.dense.gemma import to_both_sides
from engine.models.architectures.encoders.bert import AFTER_SUM, ENCODER, token_types
from engine.models.config import ModelConfig
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    MAX_LAYERS,
    gguf_decoder,
    gguf_shape,
    hf_activation,
    hf_decoder,
    hf_shape,
    layer_kinds,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other, unsupported_activation
from engine.models.headers.rope import rope_from_gguf, rope_from_hf
from engine.models.names import GGUF, HF, TensorNames
from engine.tensors import RawTensor

_MODERN: dict[str, Any] = {
    "norm_bias": None, "embed_norm": True, "unnormed_layers": frozenset({0}),
}  # fmt: skip
_NOMIC: Mapping[str, Any] = {
    **ENCODER, "placement": "after_sum", "norm_bias": True, "embed_norm": True, "final_norm": False,
}  # fmt: skip
_GLOBAL_BASE, _LOCAL_BASE, _NOMIC_BASE = 160_000.0, 10_000.0, 1000.0
_MODERN_NAMES = TensorNames(
    embed="embeddings.tok_embeddings", norm="final_norm", head="decoder", layer="layers.{}.",
    attention_norm="attn_norm", query="", key="", value="", query_key_value="attn.Wqkv", output="attn.Wo",
    mlp_norm="mlp_norm", gate="", up="", gate_up="mlp.Wi", down="mlp.Wo", embed_norm="embeddings.norm",
)  # fmt: skip
_NOMIC_NAMES = TensorNames(
    embed="embeddings.word_embeddings", norm="", head="cls.predictions.decoder", layer="encoder.layers.{}.",
    attention_norm="", query="", key="", value="", query_key_value="attn.Wqkv", output="attn.out_proj",
    mlp_norm="", gate="mlp.fc12", up="mlp.fc11", down="mlp.fc2", attention_post="norm1", mlp_post="norm2",
    embed_norm="emb_ln", token_types="embeddings.token_type_embeddings", router="mlp.router.layer",
    expert_up="mlp.experts.mlp.w1", expert_down="mlp.experts.mlp.w2", stack_ends=("", ""), stacks_flat=True,
    expert_sum_bias="mlp.experts.bias",
)  # fmt: skip
_NOMIC_KEYS = {
    "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "intermediate_size": "n_inner", "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon", "rope_theta": "rotary_emb_base",
}  # fmt: skip
_ACTIVATIONS = ("swiglu", "geglu", "gelu")
_PLAIN_NOMIC = {
    "prenorm": False, "causal": False, "parallel_block": False, "use_rms_norm": False,
    "rotary_emb_interleaved": False, "rotary_emb_fraction": 1.0, "num_shared_experts": 0,
    "expert_choice_router": False,
}  # fmt: skip


def from_hf_modern(keys: Keys) -> ModelConfig:
    """`ModernBertModel` and `ModernBertForMaskedLM`."""
    config = _from_hf_modern(keys, ENCODER)
    return replace(config, windows=to_both_sides(config.windows))


def from_hf_decoder(keys: Keys) -> ModelConfig:
    """`ModernBertDecoderForCausalLM`, whose windows are half as long as `local_attention`."""
    keys = keys.over({"sliding_window": keys.integer("local_attention", 2, MAX_CONTEXT, 128) // 2})
    config = _from_hf_modern(keys.renamed(local_attention="sliding_window"), {"norm": "layer"})
    return replace(
        config,
        norm_bias=keys.flag("norm_bias", False), mlp_bias=keys.flag("mlp_bias", False),
        head_bias=keys.flag("decoder_bias", True),
        head_activation=hf_activation(keys, "classifier_activation", "gelu"),
        head_transform_bias=keys.flag("classifier_bias", False),
    )  # fmt: skip


def _from_hf_modern(keys: Keys, more: Mapping[str, Any]) -> ModelConfig:
    keys = keys.over({"norm_eps": 1e-5})
    shape = hf_shape(keys, "norm_eps", max_position_embeddings=8192, tie_word_embeddings=True)
    layers, dim, bias = shape["layers"], shape["head_dim"], keys.flag("attention_bias", False)
    step = keys.integer("global_attn_every_n_layers", 1, MAX_LAYERS, 3)
    window = keys.integer("local_attention", 1, MAX_CONTEXT, 128)
    kinds = layer_kinds(keys, layers) or [
        "sliding_attention" if layer % step else "full_attention" for layer in range(layers)
    ]
    rope, local = (
        rope_from_hf(keys, dim, base=keys.number(name, 1.0, 1e12, base), layer_type=kind)
        for name, base, kind in (
            ("global_rope_theta", _GLOBAL_BASE, "full_attention"),
            ("local_rope_theta", _LOCAL_BASE, "sliding_attention"),
        )
    )
    return ModelConfig(
        **shape, **_MODERN | dict(more), rope=rope, rope_local=local,
        activation=hf_activation(keys, "hidden_activation", "gelu"), attention_bias=bias, output_bias=bias,
        windows=tuple(window if kind == "sliding_attention" else 0 for kind in kinds),
    )  # fmt: skip


def from_gguf_modern(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`modern-bert`."""
    shape = gguf_shape(keys, tensors, "modern-bert", layer_norm=True)
    window = keys.integer("attention.sliding_window", 0, MAX_CONTEXT, 128)
    step = keys.integer("attention.sliding_window_pattern", 1, MAX_LAYERS, 3)
    rope = rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=False, base=_GLOBAL_BASE)
    base = keys.number("rope.freq_base_swa", 1.0, 1e12, _LOCAL_BASE)
    local = rope_from_gguf(
        keys.replaced("rope.freq_base", base), shape["head_dim"], tensors, interleaved=False
    )
    return ModelConfig(
        **shape, **dict(ENCODER) | _MODERN, activation="gelu", rope=rope, rope_local=local,
        windows=to_both_sides(tuple(window if layer % step else 0 for layer in range(shape["layers"]))),
    )  # fmt: skip


def from_hf_nomic(keys: Keys) -> ModelConfig:
    """`NomicBertModel`, by the keys of GPT-2 in its authors' files, or by the usual ones."""
    for name, usual in _PLAIN_NOMIC.items():
        refuse_other(keys, name, usual)
    activation = keys.text("activation_function", "swiglu")
    if activation not in _ACTIVATIONS:
        raise unsupported_activation(activation, _ACTIVATIONS)
    keys = keys.renamed(**_NOMIC_KEYS)
    shape = hf_shape(
        keys, "layer_norm_eps", layer_norm_eps=1e-12, max_position_embeddings=2048, tie_word_embeddings=True
    )
    # The original code stretches rope beyond the length of training.
    length = keys.integer("max_trained_positions", 1, MAX_CONTEXT, 2048)
    shape["context_length"] = min(shape["context_length"], length)
    return ModelConfig(
        **shape, **_NOMIC, activation="silu" if activation == "swiglu" else "gelu",
        rope=rope_from_hf(keys, shape["head_dim"], base=_NOMIC_BASE),
        token_types=keys.integer("type_vocab_size", 0, 1 << 16, 2), gated=activation != "gelu",
        experts=hf_experts(
            keys, _nomic_mixtures(keys, shape), count="num_experts", used="moe_top_k",
            width=shape["ffn_width"], normalise=keys.flag("moe_normalize_expert_weights", False),
            sum_bias=True,
        ),
    )  # fmt: skip


def _nomic_mixtures(keys: Keys, shape: Mapping[str, Any]) -> frozenset[int]:
    """The layers with experts: the second one, and every n-th after it."""
    step = keys.integer("moe_every_n_layers", 0, MAX_LAYERS, 0)
    return frozenset(range(1, shape["layers"], step) if step > 1 else ())


def from_gguf_nomic(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`nomic-bert`."""
    shape = gguf_decoder(keys, tensors, "nomic-bert", layer_norm=True)
    return ModelConfig(**shape, **_NOMIC, token_types=token_types(tensors))


def from_gguf_nomic_mixture(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`nomic-bert-moe`, whose converter leaves the bias of the experts' sum out."""
    shape = gguf_decoder(keys, tensors, "nomic-bert-moe", layer_norm=True, handled=GGUF_EXPERT_KEYS)
    layers = _nomic_mixtures(keys, shape)
    return ModelConfig(
        **shape, **_NOMIC, activation="gelu", gated=False, token_types=token_types(tensors),
        experts=gguf_experts(keys, shape, normalise=False, layers=layers) if layers else None,
    )  # fmt: skip


def _adapt_nomic(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """Without gates the first matrix has another name."""
    plain = "mlp.fc1"
    return replace(names, up=plain) if names.layer.format(0) + plain + ".weight" in tensors else names


def from_hf_euro(keys: Keys) -> ModelConfig:
    """`EuroBertModel` and `EuroBertForMaskedLM`."""
    bias, mlp_bias = keys.flag("attention_bias", False), keys.flag("mlp_bias", False)
    shape = hf_decoder(
        keys, bias=bias, mlp_bias=mlp_bias, base=250_000.0, rms_norm_eps=1e-5, max_position_embeddings=8192
    )
    return ModelConfig(**shape, bidirectional=True, headless=True)


def from_gguf_euro(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`eurobert`."""
    return ModelConfig(**gguf_decoder(keys, tensors, "eurobert"), bidirectional=True, headless=True)


MODERN_BERT = Architecture(
    ("modern-bert",), ("ModernBertModel", "ModernBertForMaskedLM"), from_hf_modern, from_gguf_modern,
    _MODERN_NAMES, replace(GGUF, gate="", gate_up="ffn_up"), prefixes=("", "model."),
)  # fmt: skip
MODERN_BERT_DECODER = Architecture(
    (), ("ModernBertDecoderForCausalLM",), from_hf_decoder, None,
    replace(
        _MODERN_NAMES.under("model."), head="decoder", query="attn.q_proj", key="attn.k_proj",
        value="attn.v_proj", query_key_value="", project_out="lm_head.dense", head_norm="lm_head.norm",
    ),
    None,
)  # fmt: skip
NOMIC_BERT = Architecture(
    ("nomic-bert",), ("NomicBertModel",), from_hf_nomic, from_gguf_nomic, _NOMIC_NAMES, AFTER_SUM,
    prefixes=("", "bert."), adapt=_adapt_nomic,
)  # fmt: skip
NOMIC_MIXTURE = Architecture(
    ("nomic-bert-moe",), (), from_hf_nomic, from_gguf_nomic_mixture, _NOMIC_NAMES, AFTER_SUM,
)  # fmt: skip
EURO_BERT = Architecture(
    ("eurobert",), ("EuroBertModel", "EuroBertForMaskedLM"), from_hf_euro, from_gguf_euro, HF, GGUF,
    prefixes=("", "-"),
)  # fmt: skip
