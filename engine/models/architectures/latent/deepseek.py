"""DeepSeek V2 (arXiv 2405.04434) and V3 (arXiv 2412.19437), and GLM-4.7-Flash, which is made as V3 is: latent
attention, and experts after dense first layers. Kimi K2 is DeepSeek V3 by name, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.headers.decoder import MAX_LAYERS, gguf_decoder, hf_architecture, hf_layer_types
from engine.models.headers.experts import (
    GGUF_EXPERT_KEYS,
    gguf_experts,
    hf_experts,
    hf_groups,
    limited_groups,
)
from engine.models.headers.keys import Keys
from engine.models.headers.latent import cache_shape, gguf_latent, gguf_scale, hf_latent_decoder
from engine.models.names import GGUF, HF, LATENT_GGUF, LATENT_HF
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF, latent=LATENT_HF, router="mlp.gate", correction="mlp.gate.e_score_correction_bias",
    expert_gate="mlp.experts.{}.gate_proj", expert_up="mlp.experts.{}.up_proj",
    expert_down="mlp.experts.{}.down_proj", expert_gate_up="mlp.experts.gate_up_proj",
    expert_down_stack="mlp.experts.down_proj", stack_ends=("", "_bias"),
    shared_gate="mlp.shared_experts.gate_proj", shared_up="mlp.shared_experts.up_proj",
    shared_down="mlp.shared_experts.down_proj",
)  # fmt: skip
GGUF_NAMES = replace(GGUF, latent=LATENT_GGUF)


def from_hf_2(keys: Keys) -> ModelConfig:
    """`DeepseekV2ForCausalLM`."""
    keys = keys.over({"n_routed_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1407})
    shape = hf_latent_decoder(keys, (512, 1536), (128, 64, 128))
    groups: dict[str, Any] = limited_groups(keys)
    return ModelConfig(
        **shape | {"mlp_bias": keys.flag("mlp_bias", False)},
        experts=_experts(keys, dense_first(keys, shape["layers"], 0), normalise=False, scale=1.0, **groups),
    )


def from_hf_3(keys: Keys) -> ModelConfig:
    """`DeepseekV3ForCausalLM` and `SarvamMLAForCausalLM`."""
    if hf_architecture(keys.source) == "SarvamMLAForCausalLM":
        keys = _sarvam(keys)
    keys = keys.over(
        {
            "n_routed_experts": 256, "n_shared_experts": 1, "moe_intermediate_size": 2048,
            "num_experts_per_tok": 8,
        }
    )  # fmt: skip
    shape = hf_latent_decoder(
        keys, (512, 1536), (128, 64, 128), interleaved=keys.flag("rope_interleave", True),
        max_position_embeddings=4096,
    )  # fmt: skip
    layers = dense_first(keys, shape["layers"], 3)
    return ModelConfig(
        **shape, experts=_experts(keys, layers, **by_sigmoid(keys, 2.5) | hf_groups(keys, 8, 4))
    )


def _sarvam(keys: Keys) -> Keys:
    """DeepSeek V3's keys in place of the authors' own."""
    scaling = keys.raw("rope_scaling")
    if isinstance(scaling, Mapping) and scaling.get("type") == "deepseek_yarn":
        keys = keys.replaced("rope_scaling", {**scaling, "type": "yarn"})
    keys = keys.renamed(n_routed_experts="num_experts", n_shared_experts="num_shared_experts")
    return keys.over(
        {
            "n_routed_experts": 128, "q_lora_rank": None, "n_group": 1, "topk_group": 1,
            "first_k_dense_replace": 1,
        }
    )  # fmt: skip


def from_hf_glm(keys: Keys) -> ModelConfig:
    """`Glm4MoeLiteForCausalLM`."""
    keys = keys.over(
        {
            "n_routed_experts": 64, "n_shared_experts": 1, "moe_intermediate_size": 1536,
            "num_experts_per_tok": 4,
        }
    )  # fmt: skip
    shape = hf_latent_decoder(
        keys, (512, 768), (192, 64, 256), interleaved=keys.flag("rope_interleave", True),
        share=1.0, max_position_embeddings=202_752, rms_norm_eps=1e-5,
    )  # fmt: skip
    count = shape["layers"]
    kinds = hf_layer_types(keys, count, ("dense", "sparse"), "mlp_layer_types")
    layers = range(1, count) if kinds is None else [at for at, kind in enumerate(kinds) if kind == "sparse"]
    return ModelConfig(**shape, experts=_experts(keys, layers, **by_sigmoid(keys, 1.8) | hf_groups(keys)))


def from_hf_youtu(keys: Keys) -> ModelConfig:
    """`YoutuForCausalLM`, which is made as V3 is, but dense."""
    shape = hf_latent_decoder(
        keys, (512, 1536), (128, 64, 128), interleaved=keys.flag("rope_interleave", True),
        max_position_embeddings=131072, tie_word_embeddings=True,
    )  # fmt: skip
    return ModelConfig(**shape)


def dense_first(keys: Keys, layers: int, default: int) -> range:
    """The layers with experts: all after the dense first ones."""
    return range(min(layers, keys.integer("first_k_dense_replace", 0, MAX_LAYERS, default)), layers)


def by_sigmoid(keys: Keys, scale: float) -> dict[str, Any]:
    """How V3 chooses experts; `scale` is the default of routed_scaling_factor."""
    return {
        "normalise": keys.flag("norm_topk_prob", True), "scale": scale, "scores": "sigmoid",
        "corrected": True,
    }  # fmt: skip


def _experts(
    keys: Keys, layers: range | list[int], *, normalise: bool, scale: float, **more: Any
) -> Experts | None:
    """Experts and shared ones, all of one width."""
    width = keys.integer("moe_intermediate_size", 1, 1 << 22)
    return hf_experts(
        keys,
        layers,
        count="n_routed_experts",
        used="num_experts_per_tok",
        width=width,
        normalise=normalise,
        scale=keys.number("routed_scaling_factor", 0.0, 1e6, scale),
        shared_width=width * keys.integer("n_shared_experts", 0, 1 << 10),
        **more,
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor], architecture: str = "deepseek2") -> ModelConfig:
    """`deepseek2`, also in the files of V3, Kimi K2 and GLM-4.7-Flash."""
    # The last layers may predict further tokens; they are no part of the decoder.
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    layers -= keys.integer("nextn_predict_layers", 0, layers - 1, 0)
    keys, kind = gguf_latent(keys.replaced("block_count", layers))
    shape: dict[str, Any] = gguf_decoder(
        keys, tensors, architecture, interleaved=True, handled=GGUF_EXPERT_KEYS
    )
    # The first files of V2 and of GLM-4.7-Flash do not say how experts are scored, nor do those of V3 from
    # folders of transformers 5. V3 and GLM have a bias for the choice.
    scores = "sigmoid" if any(name.endswith(".exp_probs_b.bias") for name in tensors) else "softmax"
    experts = gguf_experts(keys, shape, normalise=False, scores=scores)
    # A group of V2 counts as its best expert does (llama.cpp adds the best two, as V3 does).
    if experts is not None and experts.scores == "softmax":
        experts = replace(experts, group_best=1)
    rope, scale = gguf_scale(keys, shape["rope"])
    return ModelConfig(
        **shape | cache_shape(kind) | {"rope": rope},
        attention_scale=kind.query_dim**-0.5 * scale,
        experts=experts,
    )


DEEPSEEK_2 = Architecture(
    ("deepseek2",), ("DeepseekV2ForCausalLM",), from_hf_2, from_gguf, HF_NAMES, GGUF_NAMES
)
DEEPSEEK_3 = Architecture(
    (), ("DeepseekV3ForCausalLM", "SarvamMLAForCausalLM"), from_hf_3, None, HF_NAMES, None,
    gguf_of=DEEPSEEK_2,
)  # fmt: skip
YOUTU = Architecture((), ("YoutuForCausalLM",), from_hf_youtu, None, HF_NAMES, None, gguf_of=DEEPSEEK_2)
GLM_4_FLASH = Architecture(
    (), ("Glm4MoeLiteForCausalLM",), from_hf_glm, None, HF_NAMES, None, gguf_of=DEEPSEEK_2
)
