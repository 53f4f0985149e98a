"""params.json of Mistral AI's own folders as the config.json of the same model, and the tensors' names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import BadCheckpoint
from engine.tensors import RawTensor
from engine.weights.safetensors.consolidated import read_params, with_hf_names
from engine.weights.tensor import FileTensor

PARAMS = {"dim": 64, "n_layers": "4", "n_heads": 4, "hidden_dim": 96, "vocab_size": 300}
PLAIN = {
    "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 96,
    "vocab_size": 300, "num_key_value_heads": 4, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    "head_dim": 16, "sliding_window": None, "architectures": ["MistralForCausalLM"], "model_type": "mistral",
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}  # fmt: skip
YARN = {"factor": 4, "original_max_position_embeddings": 2048, "beta": 32, "alpha": 1}
PIXTRAL: dict[str, Any] = {"vision_config": {"model_type": "pixtral", "hidden_act": "silu", "a": 1}}
SCALING = {"beta": 0.1, "original_max_position_embeddings": 8192}
LATENT = {
    "q_lora_rank": 8, "kv_lora_rank": 12, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 6,
}  # fmt: skip


def read(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    path = tmp_path / "params.json"
    path.write_text(json.dumps(PARAMS | changes))
    return read_params(path)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"n_kv_heads": 2, "head_dim": 20, "norm_eps": 1e-6, "tied_embeddings": True}, {
            "num_key_value_heads": 2, "head_dim": 20, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
        }),
        ({"sliding_window": 9}, {
            "sliding_window": 9, "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        }),
        ({"sliding_window": [9, None], "rope_theta": 5000}, {
            "sliding_window": 9, "layer_types": ["sliding_attention", "full_attention"] * 2,
            "architectures": ["MinistralForCausalLM"], "model_type": "ministral",
            "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
        }),
        ({"sliding_window": [None]}, {
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        }),
        ({"max_seq_len": 512}, {"max_position_embeddings": 512}),
        ({"yarn": YARN}, {"max_position_embeddings": 8192, "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
            "original_max_position_embeddings": 2048,
        }}),
        ({"yarn": {name: YARN[name] for name in ("factor", "original_max_position_embeddings")}}, {
            "max_position_embeddings": 8192, "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0,
                "original_max_position_embeddings": 2048,
        }}),
        ({"yarn": YARN | {"apply_scale": False}, "max_seq_len": 900, "max_position_embeddings": 800}, {
            "max_position_embeddings": 800, "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                "original_max_position_embeddings": 2048, "attention_factor": 1.0,
        }}),
        ({"llama_4_scaling": SCALING}, {
            "architectures": ["Ministral3ForCausalLM"], "model_type": "ministral3", "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e6, "llama_4_scaling_beta": 0.1,
                "original_max_position_embeddings": 8192,
        }}),
        ({"llama_4_scaling": SCALING, "yarn": YARN}, {
            "architectures": ["Ministral3ForCausalLM"], "model_type": "ministral3",
            "max_position_embeddings": 8192, "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                "original_max_position_embeddings": 2048, "mscale": 1.0, "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1,
        }}),
        ({"moe": {"num_experts": 8, "num_experts_per_tok": 2}}, {
            "num_local_experts": 8, "num_experts_per_tok": 2, "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
        }),
        ({"quantization": {"qformat_weight": "fp8_e4m3"}}, {
            "quantization_config": {"quant_method": "fp8"},
        }),
        ({"quantization": {"quant_method": "Compressed_Tensors", "bits": 4}}, {
            "quantization_config": {"quant_method": "compressed-tensors", "bits": 4},
        }),
        ({"vision_encoder": {"a": 1}}, PIXTRAL | {"spatial_merge_size": 1}),
        ({"multimodal": {"vision_encoder_args": {"a": 1, "spatial_merge_size": 2}}}, {
            "vision_config": PIXTRAL["vision_config"] | {"spatial_merge_size": 2}, "spatial_merge_size": 2,
        }),
        ({"multimodal": {"whisper_model_args": {"a": 1}}}, {"audio_config": {}}),
    ],
)  # fmt: skip
def test_what_config_json_would_say(
    tmp_path: Path, changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = read(tmp_path, **changes)
    assert found == PLAIN | expected
    assert type(found.get("max_position_embeddings", 0)) is int


def test_latent_attention_and_its_experts(tmp_path: Path) -> None:
    dense = read(tmp_path, **LATENT)
    assert (dense["model_type"], dense["architectures"]) == ("mistral4", ["Mistral4ForCausalLM"])
    assert {name: dense[name] for name in LATENT} == LATENT
    assert "head_dim" not in dense
    assert (dense["n_routed_experts"], dense["num_experts_per_tok"], dense["moe_intermediate_size"]) == (
        1, 1, 96,
    )  # fmt: skip
    assert (dense["first_k_dense_replace"], dense["norm_topk_prob"]) == (4, True)
    assert dense["rope_parameters"]["rope_theta"] == 10_000.0
    moe = {"num_experts": 8, "num_experts_per_tok": 2, "expert_hidden_dim": 16, "first_k_dense_replace": 1}
    sparse = read(tmp_path, **LATENT, moe=moe, yarn=YARN)
    assert (sparse["n_routed_experts"], sparse["num_experts_per_tok"], sparse["moe_intermediate_size"]) == (
        8, 2, 16,
    )  # fmt: skip
    assert sparse["first_k_dense_replace"] == 1
    assert (sparse["rope_parameters"]["mscale"], sparse["rope_parameters"]["mscale_all_dim"]) == (1.0, 1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window": [4, 5]}, {"sliding_window": [4, None, 4]}, {"sliding_window": []}, {"dim": 0},
        {"dim": 1 << 48}, {"dim": 1.5}, {"norm_eps": True}, {"norm_eps": -1}, {"norm_eps": 1e12}, {"moe": []},
    ],
)  # fmt: skip
def test_impossible_values_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(BadCheckpoint, match=rf"params\.json: {next(iter(changes))} is "):
        read(tmp_path, **changes)


def test_tensors_get_the_names_of_hugging_face_folders() -> None:
    config = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4}
    queries = np.arange(8, dtype=np.float32)[:, None]
    names = {
        "tok_embeddings.weight": "model.embed_tokens.weight",
        "output.weight": "lm_head.weight",
        "norm.weight": "model.norm.weight",
        "layers.11.attention.wq.weight": "model.layers.11.self_attn.q_proj.weight",
        "layers.0.attention.wk.weight": "model.layers.0.self_attn.k_proj.weight",
        "layers.0.attention.wv.weight": "model.layers.0.self_attn.v_proj.weight",
        "layers.0.attention_norm.weight": "model.layers.0.input_layernorm.weight",
        "layers.0.feed_forward.w2.weight": "model.layers.0.mlp.down_proj.weight",
        "layers.0.experts.3.w3.weight": "model.layers.0.mlp.experts.3.up_proj.weight",
        "layers.0.block_sparse_moe.gate.weight": "model.layers.0.block_sparse_moe.gate.weight",
        "vision_encoder.ln_pre.weight": "vision_tower.ln_pre.weight",
    }
    values = dict.fromkeys(names, queries) | {"layers.0.attention.wk.weight": queries[:4]}
    tensors: dict[str, RawTensor] = {
        name: FileTensor(name, "F32", value.shape, value.view(np.uint8).ravel(), 0)
        for name, value in values.items()
    }
    found = with_hf_names(tensors, config)
    assert list(found) == list(names.values())
    rows = {name: tensor.dequantise().ravel().tolist() for name, tensor in found.items()}
    assert rows["model.layers.11.self_attn.q_proj.weight"] == [0, 2, 1, 3, 4, 6, 5, 7]
    assert rows["model.layers.0.self_attn.k_proj.weight"] == [0, 2, 1, 3]
    assert rows["model.layers.0.self_attn.v_proj.weight"] == list(range(8))


@pytest.mark.parametrize("sizes", [{"head_dim": 3}, {"head_dim": 6}, {}])
def test_rows_that_have_no_halves_stay_in_their_order(sizes: dict[str, int]) -> None:
    """Latent attention without a low rank has queries of that name, and gives no size of heads."""
    values = np.arange(6, dtype=np.float32)[:, None]
    name = "layers.0.attention.wq.weight"
    tensor = FileTensor(name, "F32", values.shape, values.view(np.uint8).ravel(), 0)
    found = with_hf_names({name: tensor}, {"num_attention_heads": 2, "num_key_value_heads": 2, **sizes})
    assert found["model.layers.0.self_attn.q_proj.weight"].dequantise().ravel().tolist() == list(range(6))
