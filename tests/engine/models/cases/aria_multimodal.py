"""Aria, and text models inside of models for pictures and sounds as their makers' folders have them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.models.architectures import ROPE, SMALL, Case, Config, Tensors
from tests.engine.models.cases.gemma_3n_4 import GEMMA_4, GEMMA_4_OLDER
from tests.engine.models.cases.mixture import ERNIE_MOE
from tests.engine.models.cases.phi_granite import longrope

ARIA: dict[str, Any] = {
    **SMALL, "moe_num_experts": 5, "moe_topk": 2, "moe_num_shared_experts": 2, "head_dim": 24,
    ROPE: {"rope_type": "default", "rope_theta": 700.0},
}  # fmt: skip
GEMMA_4_UNIFIED = {
    name: value for name, value in GEMMA_4.items()
    if name not in ("hidden_size_per_layer_input", "vocab_size_per_layer_input", "enable_moe_block")
}  # fmt: skip


def ernie_pictured(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Experts for pictures behind those for text, whose sizes come first in lists; transposed routers."""
    count, width = config["moe_num_experts"], config["moe_intermediate_size"]
    generator, out = np.random.default_rng(5), dict[str, Any]()
    for name, values in tensors.items():
        if name.endswith("mlp.gate.weight"):
            out[name], out[name + "_1"] = values.T.copy(), generator.standard_normal(values.T.shape)
        elif name.endswith("e_score_correction_bias"):
            out[name] = np.concatenate([values.reshape(1, -1), -values.reshape(1, -1)])
        else:
            out[name] = values
        if ".experts." in name:
            number = int(name.split(".experts.")[1].split(".")[0])
            out[name.replace(f".experts.{number}.", f".experts.{number + count}.")] = values[:24]
    listed = {
        "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"], "moe_num_experts": [count, count],
        "moe_intermediate_size": [width, 24], "moe_layer_start_index": [1, 1],
        "moe_layer_end_index": [config["num_hidden_layers"] - 1, 1], "vision_config": {"depth": 1},
    }  # fmt: skip
    return config | listed, {name: np.asarray(values, np.float32) for name, values in out.items()}


def omni(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The part that writes text beside one that speaks."""
    text = {**config, "model_type": "qwen2_5_omni_text", "tie_word_embeddings": True}
    thinker = {"model_type": "qwen2_5_omni_thinker", "text_config": text, "tie_word_embeddings": False}
    whole = {"architectures": ["Qwen2_5OmniModel"], "model_type": "qwen2_5_omni", "thinker_config": thinker}
    return whole, {f"thinker.{name}": values for name, values in tensors.items()}


def phi_multimodal(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Matrices beside adapters for pictures and sounds."""
    out: Tensors = {}
    for name, values in tensors.items():
        module, _unused, end = name.rpartition(".")
        if module.endswith("_proj"):
            out[f"{module}.base_layer.{end}"] = values
            out[f"{module}.lora_A.vision.{end}"] = values[:4].copy()
        else:
            out[name] = values
    return config | {"architectures": ["Phi4MMForCausalLM"], "model_type": "phi4mm"}, out


ARIA_MULTIMODAL_CASES = (
    Case("Aria", "Llama with experts and shared ones in all layers", "aria_text", ARIA),
    Case(
        "Aria", "", "aria_text",
        {
            **ARIA, "attention_bias": True, "moe_topk": 1, "moe_num_shared_experts": 1,
            "tie_word_embeddings": True,
        },
        variant="biases, tied",
    ),
    Case(
        "Gemma 4", "", "gemma4_unified_text",
        {**GEMMA_4_UNIFIED, "num_global_key_value_heads": 1},
        variant="in a class of its own", older=GEMMA_4_OLDER,
    ),
    Case(
        "ERNIE 4.5 mixture of experts", "", "ernie4_5_moe", ERNIE_MOE, variant="in ERNIE 4.5 VL",
        publish=ernie_pictured,
    ),
    Case("Qwen 2 and 2.5", "", "qwen2", SMALL, variant="in Qwen2.5-Omni", publish=omni),
    Case(
        "Phi-3, Phi-4", "", "phi3", {**longrope(72), "tie_word_embeddings": True},
        variant="in Phi-4 multimodal", length=60, publish=phi_multimodal,
    ),
)  # fmt: skip
