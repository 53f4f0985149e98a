"""Text models inside of models for pictures: names and objects as the makers' folders have them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.models.architectures import ROPE, SMALL, Case, Config, Tensors
from tests.engine.models.cases.expert_routing import inside
from tests.engine.models.cases.mixture import in_stacks
from tests.engine.models.gguf_form import GgufForm

PLAIN = {"rope_type": "default", "rope_theta": 700.0}
SECTIONS = {**PLAIN, "mrope_section": [2, 3, 3]}


def named(architecture: str, kind: str, text: str, at: str = "model.language_model.") -> Any:
    """A `Case.publish`: the text model under a `model_type` of its own, and its head outside of it."""

    def publish(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
        inner = {key: value for key, value in config.items() if key != "architectures"} | {"model_type": text}
        outer: Config = {"architectures": [architecture], "model_type": kind, "text_config": inner}
        outer["tie_word_embeddings"] = inner.pop("tie_word_embeddings", False)
        return outer, {
            at + name.removeprefix("model.") if name.startswith("model.") else name: values
            for name, values in tensors.items()
        }

    return publish


def flat(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The first folders of Qwen2.5-VL have the text model's keys and tensors at the top."""
    own = {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl"}
    own["rope_scaling"] = {"type": "mrope", "mrope_section": [2, 3, 3]}
    return config | own | {"rope_theta": config[ROPE]["rope_theta"], ROPE: None}, tensors


def transposed(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Qwen3-VL's mixture has its stacks as (X, K, N)."""
    publish = named("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", "qwen3_vl_moe_text")
    config, tensors = publish(*in_stacks(config, tensors))
    return config, {
        name: values.swapaxes(1, 2).copy() if ".experts." in name else values
        for name, values in tensors.items()
    }


def not_interleaved(config: Config, tensors: Tensors) -> Tensors:
    """Queries and keys for rope that is not interleaved, of the first half of each head."""
    heads = (config["num_attention_heads"], config["num_key_value_heads"])
    out = dict(tensors)
    for name, values in tensors.items():
        if ".q_proj." in name or ".k_proj." in name:
            parts = values.reshape(heads[".k_proj." in name], 2, -1, *values.shape[1:])
            turned = np.concatenate([parts[:, :1, ::2], parts[:, :1, 1::2]], axis=2)
            out[name] = np.concatenate([turned, parts[:, 1:]], axis=1).reshape(values.shape)
    return out


GLM_4V_GGUF = GgufForm(
    "glm4", keys=lambda config: {"rope.dimension_sections": [2, 1, 1, 0]}, change=not_interleaved
)

TEXT_OF_MULTIMODAL_CASES = (
    Case(
        "Qwen 2 and 2.5", "", "qwen2", {**SMALL, ROPE: PLAIN},
        GgufForm("qwen2vl", keys=lambda config: {"rope.freq_base": config["rope_theta"]}),
        "in Qwen2.5-VL", publish=flat,
    ),
    Case(
        "Qwen 3", "", "qwen3", {**SMALL, "head_dim": 24, ROPE: SECTIONS, "tie_word_embeddings": True},
        GgufForm("qwen3vl"), "in Qwen3-VL",
        publish=named("Qwen3VLForConditionalGeneration", "qwen3_vl", "qwen3_vl_text"),
    ),
    Case(
        "Qwen 3 mixture of experts", "", "qwen3_moe",
        {
            **SMALL, "head_dim": 16, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
            "norm_topk_prob": True, ROPE: SECTIONS,
        },
        variant="in Qwen3-VL", publish=transposed,
    ),
    Case(
        "Llama", "", "llama", {**SMALL, ROPE: PLAIN}, variant="in LLaVA",
        publish=inside("LlavaForConditionalGeneration", "llava"),
    ),
    Case(
        "Llama", "", "llama", {**SMALL, "num_key_value_heads": 4, ROPE: PLAIN}, variant="in SmolVLM",
        publish=named("SmolVLMForConditionalGeneration", "smolvlm", "llama", "model.text_model."),
    ),
    Case(
        "GLM-4", "", "glm4",
        {**SMALL, "head_dim": 16, "attention_bias": True, ROPE: {**SECTIONS, "partial_rotary_factor": 0.5}},
        GLM_4V_GGUF, "in GLM-4.1V",
        publish=named("Glm4vForConditionalGeneration", "glm4v", "glm4v_text"),
    ),
)  # fmt: skip
