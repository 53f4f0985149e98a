"""Klear: Qwen 3's attention, experts as DeepSeek V3 chooses them, and a shared one; two shares that add up to
one, made of each token, weigh the shared expert and the others.
"""

from __future__ import annotations

from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.architectures.llama.qwen import hf_qwen_experts
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import MIXTURE, with_shared

HF_NAMES = replace(
    with_shared(MIXTURE, "mlp.shared_experts"), correction="mlp.expert_bias",
    shared_router="mlp.coefficient",
)  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`KlearMoeForCausalLM`."""
    shape = hf_decoder(keys, bias=keys.flag("attention_bias", False))
    experts = hf_qwen_experts(keys, shape["layers"], {}, normalise=keys.flag("norm_topk_prob", False))
    if experts is not None:
        shared = experts.width * keys.integer("n_shared_experts", 1, 1 << 10, 1)
        experts = replace(experts, scores="sigmoid", corrected=True, shared_shares=True, shared_width=shared)
    return ModelConfig(**shape, qk_norm="head", experts=experts)


KLEAR = Architecture((), ("KlearMoeForCausalLM",), from_hf, None, HF_NAMES, None)
