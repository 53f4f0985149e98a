"""Grok 1 and 2, from GGUF files: soft caps, four norms, and experts, in Grok 2 beside a plain feed-forward
part; the sum of what both make is divided by sqrt(2).

As in llama.cpp, the router's logits have no soft cap, though the metadata have one, and the weights of the
chosen experts sum to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF, TensorNames
from engine.tensors import RawTensor

GGUF_NAMES = replace(
    GGUF,
    attention_post="attn_output_norm",
    shared_gate="ffn_gate",
    shared_up="ffn_up",
    shared_down="ffn_down",
)
_HANDLED = ("attn_logit_softcapping", "final_logit_softcapping", "logit_scale", "embedding_scale")
_GROK_1 = {
    "logit_scale": 0.5773502691896257, "embedding_scale": 78.38367176906169,
    "attention.output_scale": 0.08838834764831845, "attn_logit_softcapping": 30.0,
    "final_logit_softcapping": 0.0, "rope.scaling.yarn_beta_fast": 8.0,
}  # fmt: skip
"""What the first files mean that say nothing of it."""


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`grok`."""
    keys = keys.over(_GROK_1)
    shape: dict[str, Any] = gguf_decoder(keys, tensors, "grok", handled=(*_HANDLED, *GGUF_EXPERT_KEYS))
    scale = keys.number("expert_weights_scale", 0.0, 1e6, 0.0) or 1.0
    beside = "blk.0.ffn_up.weight" in tensors
    half = 0.5**0.5 if beside else 1.0
    return ModelConfig(
        **shape, placement="both", activation="gelu_tanh",
        embed_scale=keys.number("embedding_scale", 0.0, 1e6),
        logit_scale=keys.number("logit_scale", 0.0, 1e6),
        logit_cap=keys.number("final_logit_softcapping", 0.0, 1e6),
        attention_scale=keys.number("attention.output_scale", 1e-9, 1e6),
        attention_cap=keys.number("attn_logit_softcapping", 0.0, 1e6),
        experts=gguf_experts(
            keys, shape, scale=half * scale, shared_scale=half,
            shared_width=shape["ffn_width"] if beside else 0,
        ),
    )  # fmt: skip


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The last norm of a layer by the name that the file has."""
    old = "blk.0.layer_output_norm.weight" in tensors
    return replace(names, mlp_post="layer_output_norm") if old else names


GROK = Architecture(("grok",), (), None, from_gguf, HF, GGUF_NAMES, adapt=adapted)
