"""DiffLlama: Llama with differential attention (arXiv 2410.05258)."""

from __future__ import annotations

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_decoder
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import unsupported
from engine.models.layers.attention.differences import difference_blocks
from engine.models.names import HF

_DEFAULTS = {
    "vocab_size": 32_000, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`DiffLlamaForCausalLM`. Two heads' values are one of the cache."""
    keys = keys.over(_DEFAULTS)
    shape = hf_decoder(keys, bias=keys.flag("attention_bias", False), rms_norm_eps=1e-5)
    dim = shape["head_dim"]
    if shape["kv_heads"] % 2:
        raise unsupported("num_key_value_heads", shape["kv_heads"])
    return ModelConfig(**shape | {"head_dim": 2 * dim}, attention_scale=dim**-0.5)


DIFF_LLAMA = Architecture((), ("DiffLlamaForCausalLM",), from_hf, None, HF, None, layers=difference_blocks)
