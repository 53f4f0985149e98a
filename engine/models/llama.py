"""The Llama family: Llama, SmolLM, TinyLlama, Mistral and everything else of exactly this shape."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from engine.models.config import ModelConfig
from engine.models.layers import Attention, Block, GatedMlp, Linear, Parts
from engine.models.source import WeightSource, linear, rms_norm

GGUF_NAMES = ("llama",)
HF_NAMES = ("LlamaForCausalLM", "MistralForCausalLM")


@dataclass(frozen=True, slots=True)
class TensorNames:
    """A file's names, without ".weight" and ".bias"; those of a layer come after `layer` with its number."""

    embed: str
    norm: str
    head: str
    layer: str
    attention_norm: str
    query: str
    key: str
    value: str
    output: str
    mlp_norm: str
    gate: str
    up: str
    down: str


NAMES = {
    "gguf": TensorNames(
        embed="token_embd", norm="output_norm", head="output", layer="blk.{}.",
        attention_norm="attn_norm", query="attn_q", key="attn_k", value="attn_v", output="attn_output",
        mlp_norm="ffn_norm", gate="ffn_gate", up="ffn_up", down="ffn_down",
    ),
    "safetensors": TensorNames(
        embed="model.embed_tokens", norm="model.norm", head="lm_head", layer="model.layers.{}.",
        attention_norm="input_layernorm", query="self_attn.q_proj", key="self_attn.k_proj", value="self_attn.v_proj",
        output="self_attn.o_proj", mlp_norm="post_attention_layernorm", gate="mlp.gate_proj", up="mlp.up_proj", down="mlp.down_proj",
    ),
}  # fmt: skip
"""Checkpoint format -> names."""


def build(source: WeightSource, config: ModelConfig, format: str) -> Generator[int, None, Parts]:
    """The parts list; yields the number of finished layers after each."""
    names = NAMES[format]
    embed = source.matrix(names.embed + ".weight", config.vocab_size, config.width)
    norm = rms_norm(source, names.norm, config.width, config.rms_eps)
    # A tied table is loaded once: the head multiplies by the very matrix that rows are looked up in.
    head = Linear(embed) if config.tied else linear(source, names.head, config.vocab_size, config.width, False)
    blocks = []
    for layer in range(config.layers):
        blocks.append(Block(_attention(source, config, names, layer), _mlp(source, config, names, layer)))
        yield layer + 1
    return Parts(embed, tuple(blocks), norm, head)


def _attention(source: WeightSource, config: ModelConfig, names: TensorNames, layer: int) -> Attention:
    at, width, bias = names.layer.format(layer), config.width, config.attention_bias
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    return Attention(
        layer=layer,
        shape=config.attention_shape,
        norm=rms_norm(source, at + names.attention_norm, width, config.rms_eps),
        query=linear(source, at + names.query, queries, width, bias),
        key=linear(source, at + names.key, keys, width, bias),
        value=linear(source, at + names.value, keys, width, bias),
        output=linear(source, at + names.output, width, queries, bias),
    )


def _mlp(source: WeightSource, config: ModelConfig, names: TensorNames, layer: int) -> GatedMlp:
    at, width, inner, bias = names.layer.format(layer), config.width, config.ffn_width, config.mlp_bias
    return GatedMlp(
        norm=rms_norm(source, at + names.mlp_norm, width, config.rms_eps),
        gate=linear(source, at + names.gate, inner, width, bias),
        up=linear(source, at + names.up, inner, width, bias),
        down=linear(source, at + names.down, width, inner, bias),
    )
