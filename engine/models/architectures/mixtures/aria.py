"""Aria (arXiv 2410.05993), text only: Llama with experts and shared ones in all layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_decoder, refuse_other_than_silu
from engine.models.headers.experts import hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import unsupported
from engine.models.names import HF, TensorNames, with_shared
from engine.tensors import RawTensor

HF_NAMES = replace(
    with_shared(HF, "mlp.shared_experts"), router="mlp.router", expert_gate_up="mlp.experts.fc1",
    expert_down="mlp.experts.fc2", stacks_transposed=True,
)  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`AriaTextForCausalLM`, and the text model of `AriaForConditionalGeneration`."""
    refuse_other_than_silu(keys)
    if keys.flag("mlp_bias", False):
        raise unsupported("mlp_bias", True)
    keys = keys.over({"intermediate_size": 4096, "moe_num_experts": 8, "moe_topk": 2})
    shape = hf_decoder(keys, bias=keys.flag("attention_bias", False))
    width = shape["ffn_width"]
    experts = hf_experts(
        keys, range(shape["layers"]), count="moe_num_experts", used="moe_topk", width=width, normalise=True,
        shared_width=width * keys.integer("moe_num_shared_experts", 1, 1 << 10, 2),
    )  # fmt: skip
    return ModelConfig(**shape, experts=experts)


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """Stacks of experts have other names in transformers' memory."""
    at = "mlp.experts."
    if not any(name.endswith(f".{at}gate_up_proj") for name in tensors):
        return names
    return replace(
        names, expert_gate_up=at + "gate_up_proj", expert_down=at + "down_proj", stack_ends=("", "_bias")
    )


ARIA = Architecture((), ("AriaTextForCausalLM",), from_hf, None, HF_NAMES, None, adapt=_adapt)
