"""GPT-OSS (arXiv 2508.10925): experts with biases in every layer, attention sinks, a sliding window in every
second layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_CONTEXT, gguf_shape, gguf_windows, hf_shape, layer_kinds
from engine.models.headers.experts import gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.rope import rope_from_gguf, rope_from_hf
from engine.models.names import GGUF, HF, TensorNames
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF, sinks="self_attn.sinks", router="mlp.router", expert_gate_up="mlp.experts.gate_up_proj",
    expert_gate="mlp.experts.gate_proj", expert_up="mlp.experts.up_proj", expert_down="mlp.experts.down_proj",
    stack_ends=("", "_bias"), stacks_transposed=True, stacks_alternate=True,
)  # fmt: skip
GGUF_NAMES = replace(GGUF, mlp_norm="post_attention_norm", attention_post="")
_DEFAULTS = {
    "head_dim": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "num_local_experts": 128,
    "sliding_window": 128, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "vocab_size": 201088,
    "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36,
}  # fmt: skip
_ROPE = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`GptOssForCausalLM`."""
    used = "experts_per_token" if keys.raw("num_experts_per_tok") is None else "num_experts_per_tok"
    keys = keys.over(_DEFAULTS | {used: 4})
    if keys.raw("rope_parameters") is None and keys.raw("rope_scaling") is None:
        keys = Keys({**keys.source, "rope_scaling": _ROPE}, "config.json")
    limits = keys.number("swiglu_limit", 1e-3, 1e6, 7.0), keys.number("swiglu_alpha", 1e-3, 1e3, 1.702)
    shape = hf_shape(keys)
    layers, window = shape["layers"], keys.integer("sliding_window", 0, MAX_CONTEXT, 0)
    kinds = layer_kinds(keys, layers) or [
        "full_attention" if layer % 2 else "sliding_attention" for layer in range(layers)
    ]
    bias = keys.flag("attention_bias", True)
    return ModelConfig(
        **shape,
        activation="clamped_swiglu",
        expert_limits=() if limits == (7.0, 1.702) else (limits,) * layers,
        rope=rope_from_hf(keys, shape["head_dim"], base=150000.0),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=True,
        windows=tuple(window if kind == "sliding_attention" else 0 for kind in kinds),
        experts=hf_experts(
            keys,
            frozenset(range(layers)),
            count="num_local_experts",
            used=used,
            width=shape["ffn_width"],
            normalise=True,
            router_bias=True,
            bias=True,
        ),
        sinks=True,
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`gpt-oss`."""
    shape = gguf_shape(keys, tensors, "gpt-oss", handled=("expert_count",))
    return ModelConfig(
        **shape,
        activation="clamped_swiglu",
        rope=rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=False, truncate=False),
        windows=gguf_windows(
            keys, shape["layers"], keys.integer("attention.sliding_window", 0, MAX_CONTEXT), 2
        ),
        experts=gguf_experts(keys, shape),
        sinks=True,
    )


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """Stacks in MXFP4 are stored as (X, N, K), those in BF16 as (X, K, N)."""
    first = tensors.get(names.layer.format(0) + names.expert_down)
    return replace(names, stacks_transposed=False) if first is not None and first.type == "MXFP4" else names


GPT_OSS = Architecture(
    ("gpt-oss",), ("GptOssForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES, adapt=_adapt
)
