"""Mistral Large 4 and others whose attention chooses positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.models.architectures import ROPE, Case, Config, Tensors, ids
from tests.engine.models.cases.latent_attention import LATENT, YARN
from tests.engine.models.cases.ling_minimax import CHOOSING, QWEN_4
from tests.engine.models.cases.mixture import NEMOTRON_3, nemotron_h_moe_keys, nemotron_h_moe_tensors
from tests.engine.models.cases.muse_apertus import PICTURES
from tests.engine.models.families.qwen_4_form import QWEN_4_FORM
from tests.engine.models.gguf_form import GgufForm

LARGE: dict[str, Any] = {
    **{key: value for key, value in LATENT.items() if key not in ("q_lora_rank", "head_dim")}, **CHOOSING,
    "num_hidden_layers": 5, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
    "no_rope_layers": [1, 0, 1, 0, 1], "kv_source_layers": [0, 1, 2, 1, 2],
    "indexer_types": ["full", "full", "shared", "full", "shared"], "final_logit_softcapping": 6.0,
}  # fmt: skip
NGRAMS: dict[str, Any] = {
    **QWEN_4, "ple_layer_ids": [1, 3], "ple_embed_dim": 48, "heads_per_ngram": 2, "ngram_vocab_size_base": 90,
    "make_ngram_vocab_size_divisible_by": 16, "split_ngram_parts": 4, "eos_token_id": [ids(60)[20], 2],
}  # fmt: skip
"""The token that ends texts is one of the case's."""
SUPER: dict[str, Any] = {**NEMOTRON_3, "moe_latent_size": 28}


def whole(text: dict[str, Any], **more: Any) -> dict[str, Any]:
    """With the smallest part for pictures."""
    eyes = {**PICTURES, "model_type": "pixtral", "head_dim": 16, "patch_size": 14, "image_size": 28}
    return {"text_config": {"model_type": "mistral_large4_text", **text}, "vision_config": eyes, **more}


_OF_LAYERS = ("no_rope_layers", "kv_source_layers", "indexer_types")
_NAMES = {
    "tok_embeddings.": "embed_tokens.", "lerope.": "rotary_emb.", ".attention.": ".self_attn.",
    ".wq.": ".q_proj.", ".wo.": ".o_proj.", ".wkv_a_with_mqa.": ".kv_a_proj_with_mqa.",
    ".wkv_b.": ".kv_b_proj.", ".attention_norm.": ".input_layernorm.",
    ".ffn_norm.": ".post_attention_layernorm.", ".kv_a_norm.": ".kv_a_layernorm.", ".gate.": ".mlp.gate.",
    ".feed_forward.": ".mlp.", ".shared_experts.": ".mlp.shared_experts.", ".w1.": ".gate_proj.",
    ".w2.": ".down_proj.", ".w3.": ".up_proj.", ".ssmax_scaling.s": ".softmax_scaling.scale",
    ".ssmax_scaling.b": ".softmax_scaling.bias",
}  # fmt: skip


def in_memory(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Mistral Large 4 under transformers' names instead of those that it saves, with stacks of experts."""
    out: Tensors = {}
    for name, values in tensors.items():
        if ".experts." in name and ".experts.0.w2." not in name and ".experts.0.w1." not in name:
            continue
        if ".experts." in name:
            layer, end = name.partition("experts")[0], name[-len("1.weight") :]
            parts = [f"{layer}experts.{{}}.w{one}.weight" for one in ("2" if end[0] == "2" else "13")]
            stacks = [np.stack([tensors[part.format(i)] for i in range(8)]) for part in parts]
            made = "down_proj" if end[0] == "2" else "gate_up_proj"
            out[f"model.language_model.{layer}mlp.experts.{made}"] = np.concatenate(stacks, axis=1)
            continue
        for old, new in _NAMES.items():
            name = name.replace(old, new)
        at = "lm_head" + name.removeprefix("output") if name.startswith("output") else name
        out[at if at != name else "model.language_model." + name] = values
    return config, out


MISTRAL_LARGE_4_CASES = (
    Case(
        "Mistral Large 4",
        "latent attention to chosen positions, with learned rope, layers without it and shared latents",
        "mistral_large4", whole(LARGE), publish=in_memory,
    ),
    Case(
        "Mistral Large 4", "", "mistral_large4",
        whole(
            {
                **{key: value for key, value in LARGE.items() if key not in _OF_LAYERS},
                "attention_bias": True, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7,
                "n_shared_experts": 2,
                "mlp_layer_types": ["sparse", "dense", "sparse", "sparse", "dense"], "index_topk": 2048,
                ROPE: YARN,
            },
        ),
        variant="the makers' names, groups, biases, yarn",
    ),
    Case("Qwen 4", "", "qwen4_exp_text", NGRAMS, variant="n-grams", gpu=False),
    Case(
        "Qwen 4", "", "qwen4_exp_text",
        {
            **NGRAMS, "ple_layer_ids": [3], "ple_embed_dim": None, "ngram_size": 2, "seed": 7,
            "ple_conv_kernel_size": 3, "eos_token_id": 2, "tie_word_embeddings": True, "heads_per_ngram": 4,
            "hc_count": 2, "output_gate_type": "sigmoid",
        }, QWEN_4_FORM,
        variant="pairs of tokens, tied", gpu=False,
    ),
    Case(
        "Nemotron-H", "", "nemotron_h", SUPER,
        GgufForm(
            "nemotron_h_moe", change=nemotron_h_moe_tensors,
            keys=lambda config: nemotron_h_moe_keys(config) | {"moe_latent_size": config["moe_latent_size"]},
        ), "experts on a projection",
    ),
    Case(
        "Nemotron-H", "", "nemotron_h", {**SUPER, "mlp_bias": True, "n_shared_experts": 2},
        variant="experts on a projection, biases",
    ),
)  # fmt: skip
