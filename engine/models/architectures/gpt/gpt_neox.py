"""GPT-NeoX (arXiv 2204.06745), also Pythia and the first StableLM: both halves of a block have the same
input, with a layer norm each; rope on a part of each head; one matrix for queries, keys and values. GPT-NeoX
Japanese has one half after the other and nearly no biases. Persimmon is alike, with norms of queries and
keys.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.building.attention import Attention
from engine.models.building.decoder import Builder
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.layers.parts import Block
from engine.models.layers.whole import Blocks
from engine.models.names import GGUF, HF, TensorNames
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF, embed="gpt_neox.embed_in", norm="gpt_neox.final_layer_norm", head="embed_out",
    layer="gpt_neox.layers.{}.", query="", key="", value="", query_key_value="attention.query_key_value",
    output="attention.dense", gate="", up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h", grouped=True,
)  # fmt: skip
_QUIRKS: dict[str, Any] = {"norm": "layer", "norm_bias": True, "gated": False}
_DEFAULTS = {
    "vocab_size": 50432, "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64,
    "intermediate_size": 24576,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`GPTNeoXForCausalLM`."""
    keys = keys.over(_DEFAULTS).renamed(rope_theta="rotary_emb_base").without("num_key_value_heads")
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", True), mlp_bias=True, activation="gelu", share=0.25,
        norm_eps="layer_norm_eps", layer_norm_eps=1e-5,
    )  # fmt: skip
    return ModelConfig(**shape, **_QUIRKS, placement=_placement(keys.flag("use_parallel_residual", True)))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`gptneox`."""
    shape = gguf_decoder(keys, tensors, "gptneox", layer_norm=True)
    placement = _placement(keys.flag("use_parallel_residual", True))
    return ModelConfig(**shape, **_QUIRKS, activation="gelu", placement=placement)


def _placement(parallel: bool) -> str:
    return "parallel_both" if parallel else "before"


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The head has another name in transformers' memory."""
    return replace(names, head=HF.head) if HF.head + ".weight" in tensors else names


GPT_NEOX = Architecture(
    ("gptneox",), ("GPTNeoXForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF, prefixes=("", "-"),
    adapt=_adapt,
)  # fmt: skip


def from_hf_japanese(keys: Keys) -> ModelConfig:
    """`GPTNeoXJapaneseForCausalLM`."""
    keys = (
        keys.over(_JAPANESE).renamed(rope_theta="rotary_emb_base").without("num_key_value_heads", "head_dim")
    )
    width = keys.integer("hidden_size", 1, 1 << 20) * keys.integer("intermediate_multiple_size", 1, 64, 4)
    shape = hf_decoder(
        keys.replaced("intermediate_size", width), bias=False, activation="gelu", share=1.0, even=True,
        norm_eps="layer_norm_eps", layer_norm_eps=1e-5,
    )  # fmt: skip
    return ModelConfig(**shape, **_QUIRKS)


def _with_last_bias(builder: Builder) -> Generator[int, None, Blocks]:
    """The layers, of which the last one's output projection has a bias."""
    config, blocks = builder.config, list[Block]()
    for layer in range(config.layers):
        blocks.append(builder.block(layer))
        yield layer + 1
    last, at = blocks[-1], builder.names.layer.format(config.layers - 1)
    assert isinstance(last.attention, Attention)
    bias = builder.source.vector(at + "attention.dense_bias", config.width)
    attention = replace(last.attention, output=replace(last.attention.output, bias=bias))
    return Blocks((*blocks[:-1], replace(last, attention=attention)))


_JAPANESE = {
    "vocab_size": 32_000, "hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 32,
    "tie_word_embeddings": True,
}  # fmt: skip
GPT_NEOX_JAPANESE = Architecture(
    (), ("GPTNeoXJapaneseForCausalLM",), from_hf_japanese, None,
    replace(
        HF_NAMES, embed="gpt_neox_japanese.embed_in", norm="gpt_neox_japanese.final_layer_norm",
        layer="gpt_neox_japanese.layers.{}.",
    ),
    None, prefixes=("", "-"), layers=_with_last_bias,
)  # fmt: skip


def from_hf_persimmon(keys: Keys) -> ModelConfig:
    """`PersimmonForCausalLM`."""
    keys = keys.over(_PERSIMMON).without("num_key_value_heads", "head_dim")
    shape = hf_decoder(
        keys, bias=True, mlp_bias=True, activation="relu2", share=0.5, even=True,
        norm_eps="layer_norm_eps", layer_norm_eps=1e-5, max_position_embeddings=16384,
    )  # fmt: skip
    normed = keys.flag("qk_layernorm", True)
    return ModelConfig(**shape, **_QUIRKS, qk_norm="head" if normed else "none", qk_layer_norm=normed)


_PERSIMMON = {
    "vocab_size": 262144, "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 64,
    "intermediate_size": 16384,
}  # fmt: skip
PERSIMMON = Architecture(
    (), ("PersimmonForCausalLM",), from_hf_persimmon, None,
    replace(
        HF_NAMES, embed=HF.embed, norm="model.final_layernorm", head=HF.head, layer=HF.layer,
        query_key_value="self_attn.query_key_value", output="self_attn.dense",
        query_norm="self_attn.q_layernorm", key_norm="self_attn.k_layernorm",
    ),
    None, prefixes=("", "-"),
)  # fmt: skip
