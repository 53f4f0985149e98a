"""InternLM 3: Llama under keys of its own."""

from __future__ import annotations

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import HF


def from_hf(keys: Keys) -> ModelConfig:
    """`InternLM3ForCausalLM`, which transformers 5 calls `LlamaForCausalLM` of the type "internlm3"; its GGUF
    files are Llama's.
    """
    keys = keys.renamed(attention_bias="qkv_bias", mlp_bias="bias")
    keys = keys if keys.has("num_key_value_heads") else keys.over({"num_key_value_heads": 2})
    bias = keys.flag("mlp_bias", False)
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), mlp_bias=bias, rms_norm_eps=1e-5, head_dim=128,
        max_position_embeddings=32768,
    )  # fmt: skip
    return ModelConfig(**shape | {"output_bias": bias})


INTERNLM3 = Architecture((), ("InternLM3ForCausalLM",), from_hf, None, HF, None)
