"""Tiny models with parts for pictures or sounds, whose text models the engine runs; the newer ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.engine.models.architectures import ROPE, SMALL
from tests.tiny import write_tokenizer

TEXT = {**SMALL, "num_hidden_layers": 4}
"""Settings of text models, where a whole has no others."""

EYES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
    "image_size": 28, "patch_size": 14,
}  # fmt: skip
QWEN_EYES = {
    "depth": 1, "hidden_size": 32, "embed_dim": 32, "intermediate_size": 48, "num_heads": 2,
    "out_hidden_size": 64, "patch_size": 14, "spatial_merge_size": 2, "fullatt_block_indexes": [0],
    "deepstack_visual_indexes": [0], "num_position_embeddings": 16,
}  # fmt: skip
SQUARE = {**EYES, "image_size": [28, 28], "patch_size": [14, 14]}
SAM = {**EYES, "output_channels": 16, "mlp_dim": 32, "global_attn_indexes": [0]}
EARS = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "encoder_layers": 1,
    "num_attention_heads": 2, "encoder_attention_heads": 2, "d_model": 32, "encoder_ffn_dim": 48,
    "output_dim": 64,
}  # fmt: skip
SECTIONS = {"rope_type": "default", "rope_theta": 700.0, "mrope_section": [2, 3, 3]}
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
SCALES = {"embedding_multiplier": 3.0, "residual_multiplier": 0.6}
LATENT = {
    "kv_lora_rank": 32, "q_lora_rank": 24, "qk_rope_head_dim": 8, "v_head_dim": 12, "qk_nope_head_dim": 16,
    "num_key_value_heads": 4, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
}  # fmt: skip
DELTA = {
    "model_type": "qwen3_5_text", "linear_num_key_heads": 2, "linear_num_value_heads": 4, "head_dim": 32,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16,
}  # fmt: skip
HYBRID = {
    "model_type": "nemotron_h", "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
    "head_dim": 16, "ssm_state_size": 16, "mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 2,
    "n_routed_experts": 4, "moe_intermediate_size": 40, "moe_shared_expert_intermediate_size": 40,
}  # fmt: skip
GEMMA_4 = {
    "head_dim": 24, "global_head_dim": 32, "sliding_window": 9, "pad_token_id": 0,
    "layer_types": ["sliding_attention", "full_attention"] * 2, "attention_k_eq_v": True,
    "num_global_key_value_heads": 1, "final_logit_softcapping": 20.0,
}  # fmt: skip
CODES = {
    "embed_dim": 4, "num_embeddings": 16, "base_channels": 32, "channel_multiplier": [1],
    "num_res_blocks": 1, "image_token_embed_dim": 16, "projection_dim": 16, "num_patches": 4,
}  # fmt: skip
EMU_CODES = {
    "embed_dim": 4, "base_channels": 32, "channel_multiplier": [1], "num_res_blocks": 1, "codebook_size": 8,
    "latent_channels": 4,
}  # fmt: skip
WAVES = {"num_filters": 2, "depths": [1] * 7, "hidden_size": 16}
ASKING = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48,
    "encoder_hidden_size": 32,
}  # fmt: skip


@dataclass(frozen=True)
class Whole:
    """A model: settings of its text model beyond the usual ones, those of its other parts, and a part of
    names that transformers saves unlike the makers, with what they have instead. `tolerance` is as in `Case`.
    The whole `needs` pictures if it runs no text alone; then its text model is compared.
    """

    text: dict[str, Any]
    parts: dict[str, Any] = field(default_factory=lambda: {"vision_config": EYES})
    renamed: tuple[str, str] = ("", "")
    tolerance: float = 1e-5
    needs: bool = False


def _with(**parts: Any) -> dict[str, Any]:
    return {f"{name}_config": value for name, value in parts.items()}


LLAMA, QWEN_2, QWEN_3 = ({"model_type": name} for name in ("llama", "qwen2", "qwen3"))
OPT = {"model_type": "opt", "ffn_dim": 96, "word_embed_proj_dim": 64, "pad_token_id": 1}
SIGLIP = {**EYES, "model_type": "siglip_vision_model"}
WHOLE: dict[str, Whole] = {
    "hy_v4_vl": Whole(
        {
            **LATENT, "n_group": 1, "topk_group": 1, "index_topk": 8, "index_head_dim": 16,
            "index_n_heads": 12, "hc_mult": 3, ROPE: {**SECTIONS, "mrope_section": [2, 1, 1]},
        }, _with(vision={**EYES, "num_channels": 3, "text_hidden_size": 64}),
    ),
    "dots3_note": Whole(
        {
            **LATENT, "n_group": 1, "topk_group": 1, "index_topk": 8, "index_head_dim": 16,
            "index_n_heads": 12, "sliding_window": 9, "swa_num_attention_heads": 2,
            "swa_num_key_value_heads": 2, "swa_kv_lora_rank": 28, "swa_q_lora_rank": 20, "swa_head_dim": 28,
            "swa_qk_nope_head_dim": 16, "swa_v_head_dim": 12, "head_dim": 24,
            "shared_experts_intermediate_size": 28,
        }, _with(
            vision={**EYES, "mlp_layer_types": ["dense"], "adapter_in_dim": 32, "adapter_out_dim": 64},
            audio={
                **EARS, "feature_size": 16, "downsample_hidden_size": 8, "adapter_input_size": 32,
                "adapter_out_dim": 64,
            },
        ),
    ),
    "minimax_m3_vl": Whole(
        {
            "head_dim": 24, "num_local_experts": 6, "num_experts_per_tok": 2, "dense_intermediate_size": 80,
            "shared_intermediate_size": 44, "mlp_layer_types": ["dense", *["sparse"] * 3],
            "layer_types": ["full_attention", *["minimax_m3_sparse"] * 3], "index_n_heads": 2,
            "index_head_dim": 24, "index_block_size": 16, "index_topk_blocks": 4,
        }, {"vision_config": EYES, "projector_hidden_size": 32},
    ),
    "gemma4_unified": Whole(
        GEMMA_4, _with(vision={"mm_embed_dim": 64, "mm_posemb_size": 8}, audio={"audio_embed_dim": 16})
    ),
    "qwen2_5_omni_thinker": Whole({ROPE: SECTIONS}, _with(vision=QWEN_EYES, audio=EARS)),
    "qwen3_omni_moe_thinker": Whole(
        {ROPE: SECTIONS, "head_dim": 16, **EXPERTS}, _with(vision=QWEN_EYES, audio=EARS)
    ),
    # transformers takes the text model's layers for the encoder's when it saves.
    "kimi_k25": Whole(
        {"model_type": "deepseek_v3", **LATENT},
        _with(vision={**EYES, "num_heads": 2, "init_pos_emb_height": 4, "init_pos_emb_width": 4})
        | {"projection_hidden_size": 32},
        ("model.blocks", "model.layers"),
    ),
    "ernie4_5_vl_moe": Whole(
        {
            "moe_intermediate_size": [40, 24], "moe_num_experts": 8, "moe_k": 2, "moe_num_shared_experts": 2,
            ROPE: {**SECTIONS, "mrope_section": [3, 3, 2]},
        }, _with(vision=QWEN_EYES),
    ),
    "hunyuan_vl": Whole({
        ROPE: {
            "rope_type": "dynamic", "rope_theta": 700.0, "alpha": 50.0, "factor": 1.0,
            "mrope_section": [2, 2, 2, 2],
        }, "head_dim": 16,
    }),
    "paddleocr_vl": Whole({ROPE: SECTIONS, "head_dim": 16, "use_bias": True}),
    "glm_ocr": Whole({ROPE: SECTIONS, "head_dim": 16}, _with(vision=QWEN_EYES)),
    "got_ocr2": Whole(QWEN_2, _with(vision=SAM)),
    "granite4_vision": Whole(
        {**SCALES, "logits_scaling": 2.0, "attention_multiplier": 0.2},
        _with(vision={**SIGLIP, "hidden_size": 64}, qformer=ASKING)
        | {"image_grid_pinpoints": [[28, 28]], "deepstack_layer_map": [[0, 1]], "downsample_rate": "1/2"},
    ),
    "lfm3_vl": Whole(
        {
            "model_type": "lfm3", "head_dim": 24, "sliding_window": 9,
            "layer_types": ["conv", "sliding_attention", "full_attention", "conv"],
        }, _with(vision={**EYES, "model_type": "siglip2_vision_model"}),
    ),
    "minicpmv4_6": Whole(DELTA, tolerance=1e-4),
    "minicpmv4_7": Whole(DELTA, tolerance=1e-4),
    "minicpm_ocr": Whole(DELTA, tolerance=1e-4),
    "aria": Whole(
        {
            "model_type": "aria_text", "moe_num_experts": 5, "moe_topk": 2, "moe_num_shared_experts": 2,
            "head_dim": 16,
        }, _with(vision={**EYES, "model_type": "idefics3_vision"}),
    ),
    "janus": Whole(LLAMA, _with(vision={**EYES, "model_type": "janus_vision_model"}, vq=CODES)),
    "deepseek_vl": Whole(LLAMA, _with(vision=SIGLIP)),
    "deepseek_vl_hybrid": Whole(
        LLAMA, _with(vision=SIGLIP, high_res_vision={**SAM, "model_type": "sam_vision_model"})
    ),
    "video_llava": Whole(LLAMA, _with(vision={**EYES, "model_type": "clip_vision_model"})),
    "emu3": Whole({"pad_token_id": 0}, _with(vq=EMU_CODES) | {"vocabulary_map": {"<image>": 5}}),
    "paligemma": Whole({"model_type": "gemma", "head_dim": 16, "pad_token_id": 0}, _with(vision=SIGLIP)),
    "qianfan_ocr": Whole(
        QWEN_3, _with(vision=SQUARE), ("language_model.model.encoder", "language_model.model")
    ),
    "fuyu": Whole({"model_type": "persimmon"}, {}),
    "moss_transcribe_diarize": Whole(QWEN_3, _with(audio={**EARS, "model_type": "whisper"})),
    "qwen3_asr": Whole(QWEN_3, _with(audio=EARS)),
    "glmasr": Whole(LLAMA, _with(audio=EARS)),
    "audioflamingo3": Whole(QWEN_2, _with(audio=EARS)),
    "musicflamingo": Whole(QWEN_2, _with(audio={**EARS, "model_type": "audioflamingo3_encoder"})),
    "granite_speech": Whole(
        {**SCALES, "attention_multiplier": 0.2, "tie_word_embeddings": True},
        _with(encoder=EARS, projector=ASKING),
    ),
    "granite_speech_plus": Whole(
        {**SCALES, "attention_multiplier": 0.2}, _with(encoder=EARS, projector=ASKING),
    ),
    "vibevoice_asr": Whole(QWEN_2, _with(acoustic_tokenizer_encoder=WAVES, semantic_tokenizer_encoder=WAVES)),
    "fun_asr_nano": Whole(
        QWEN_3,
        _with(
            audio={**EARS, "num_hidden_layers": 2, "num_timestamp_prediction_layers": 1},
            adaptor={"hidden_size": 64, "intermediate_size": 16},
        ),
    ),
    "omniasr": Whole(LLAMA, _with(audio={**EARS, "conv_dim": [16] * 7, "num_conv_pos_embeddings": 16})),
    "hyperclovax_vision_v2": Whole(
        {"model_type": "hyperclovax", **SCALES, "logits_scaling": 1.5},
        _with(vision={**QWEN_EYES, "model_type": "qwen2_5_vl_vision"}),
    ),
    "deepseek_ocr2": Whole(
        {
            "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
            "mlp_layer_types": ["dense", "sparse", "dense", "sparse"], "routed_scaling_factor": 1.5,
        },
        _with(vision={"sam_config": {**SAM, "downsample_channels": [24, 32]}, "encoder_config": EYES}),
    ),
    "blip-2": Whole(OPT, _with(vision=EYES, qformer=ASKING), needs=True),
    "instructblip": Whole(OPT, _with(vision=EYES, qformer=ASKING), needs=True),
    "instructblipvideo": Whole(LLAMA, _with(vision=EYES, qformer=ASKING), needs=True),
    "nemotron_h_omni": Whole(HYBRID, _with(vision={**EYES, "video_temporal_patch_size": 2})),
}  # fmt: skip


def tiny_model(kind: str, whole: Whole) -> Any:
    """The model as transformers makes it, under the first of its tables that has it."""
    import torch
    from transformers import (
        AutoConfig,
        AutoModelForImageTextToText,
        AutoModelForMultimodalLM,
        AutoModelForSeq2SeqLM,
    )

    config = AutoConfig.for_model(kind, text_config={**TEXT, **whole.text}, **whole.parts)
    tables = (AutoModelForImageTextToText, AutoModelForMultimodalLM, AutoModelForSeq2SeqLM)
    table = next(each for each in tables if type(config) in each._model_mapping)
    return table.from_config(config, attn_implementation="eager", dtype=torch.float32)


def saved_model(kind: str, whole: Whole, folder: Path) -> Any:
    """The model with random weights, which is written to `folder`, with a tokenizer."""
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()  # it would leave a thread behind
    with torch.random.fork_rng():
        torch.manual_seed(3)  # rates of recurrent layers are random from the beginning
        model = tiny_model(kind, whole)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "vis" not in name:
                random = torch.randn(parameter.shape, generator=generator)
                width = parameter.shape[1] if parameter.ndim == 2 else min(parameter.shape[1:], default=1)
                parameter.copy_(
                    parameter + 0.2 * random if parameter.ndim == 1 else 1.5 * width**-0.5 * random
                )
    model.eval().save_pretrained(folder)
    write_tokenizer(folder)
    return model
