"""Latent attention in files: packed matrices of keys and values, absent settings, sizes that do not agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from transformers import AutoConfig

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.architectures import ARCHITECTURES
from engine.models.config import ModelConfig
from engine.models.config.latent import LatentAttention
from engine.models.headers.keys import Keys
from tests.engine.models.architectures import SMALL, expected_logits, ids, write_case_gguf, write_checkpoint
from tests.engine.models.cases.latent_attention import PLAIN, ROPE
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load, logits

CLASSES = {
    "minicpm3": "MiniCPM3ForCausalLM", "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM", "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
}  # fmt: skip


def rewritten(path: Path, target: Path, kind: gguf.GGMLQuantizationType, keep: bool) -> Path:
    """The GGUF file with its matrices of keys and values packed, or with the values of those as F32."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for key, value in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            writer.add_key_value(key, value.contents(), value.types[0], *value.types[1:][-1:])
    for tensor in reader.tensors:
        values = np.array(tensor.data)
        if "attn_kv_b" not in tensor.name:
            writer.add_tensor(tensor.name, values)
            continue
        packed = gguf.quants.quantize(values, kind)
        if keep:
            writer.add_tensor(tensor.name, packed, raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, gguf.quants.dequantize(packed, kind).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "BF16"])
def test_one_packed_matrix_of_keys_and_values(tmp_path: Path, kind: str) -> None:
    """That of a head's key is transposed, which packed types cannot be: it is unpacked."""
    case = BY_NAME["DeepSeek V2, Lite"]
    case = replace(case, settings={**case.settings, "kv_lora_rank": 64})
    path = write_case_gguf(case, write_checkpoint(case, tmp_path / "m"), tmp_path / "m.gguf")
    one, other = (
        load(rewritten(path, tmp_path / f"{keep}.gguf", gguf.GGMLQuantizationType[kind], keep))
        for keep in (True, False)
    )
    found, expected = logits(one, ids(20)), logits(other, ids(20))
    assert np.abs(found - expected).max() <= 2e-3 * np.abs(expected).max()  # F16
    assert np.abs(found - logits(load(path), ids(20))).max() > 1e-3 * np.abs(expected).max()


def config_of(model_type: str, **settings: Any) -> ModelConfig:
    """The configuration of a folder with these settings and the least others."""
    needed = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    least = {key: SMALL[key] for key in needed}
    name = CLASSES[model_type]
    found = next(each for each in ARCHITECTURES if name in each.hf)
    source = {**least, "intermediate_size": 96, "num_experts_per_tok": 4, "architectures": [name], **settings}
    assert found.from_hf is not None
    return found.from_hf(Keys(source, "config.json"))


@pytest.mark.parametrize("model_type", CLASSES)
def test_absent_settings_are_those_of_the_class(model_type: str) -> None:
    config = config_of(model_type)
    usual = AutoConfig.for_model(model_type, hidden_size=64, num_attention_heads=4)
    assert config.latent == LatentAttention(
        usual.kv_lora_rank, usual.qk_nope_head_dim, usual.qk_rope_head_dim, usual.v_head_dim,
        usual.q_lora_rank,
    )  # fmt: skip
    assert config.context_length == usual.max_position_embeddings
    assert (config.norm_eps, config.tied) == (usual.rms_norm_eps, usual.tie_word_embeddings)
    assert config.rope is not None
    assert config.rope.interleaved == (model_type != "minicpm3")
    experts = config.experts
    if experts is None:
        assert model_type in ("minicpm3", "deepseek_v3")  # of whose layers the first three are dense
        return
    dense = {"deepseek_v2": 0, "glm4_moe_lite": 1}[model_type]
    assert sorted(experts.layers) == list(range(dense, 3))
    assert (experts.count, experts.width) == (usual.n_routed_experts, usual.moe_intermediate_size)
    assert experts.scale == usual.routed_scaling_factor
    assert experts.shared_width == usual.n_shared_experts * usual.moe_intermediate_size


def test_a_null_rank_means_no_latent_of_queries() -> None:
    for model_type in CLASSES:
        kind = config_of(model_type, q_lora_rank=None).latent
        assert kind is not None
        assert kind.query_rank == 0


def test_bad_settings() -> None:
    with pytest.raises(UnsupportedModel, match="chooses its experts by 'noaux_tc'; only greedy, group_"):
        config_of("deepseek_v2", topk_method="noaux_tc")
    with pytest.raises(BadCheckpoint, match="keys of 5064 numbers, but at most 4096 were expected"):
        config_of("deepseek_v3", kv_lora_rank=5000)
    with pytest.raises(BadCheckpoint, match="rotates 63 dimensions of a head"):
        config_of("deepseek_v3", qk_rope_head_dim=63)
    with pytest.raises(BadCheckpoint, match="mlp_layer_types is not a list of 3 kinds of layers"):
        config_of("glm4_moe_lite", mlp_layer_types=["dense"])
    with pytest.raises(BadCheckpoint, match=r"chooses 4 of 30 experts from 4 of 8 groups"):
        config_of("deepseek_v3", n_routed_experts=30, first_k_dense_replace=0)


def test_sizes_that_do_not_agree_with_the_tensors(tmp_path: Path) -> None:
    case = BY_NAME["DeepSeek V3"]
    folder = write_checkpoint(case, tmp_path / "m")
    text = (folder / "config.json").read_text("utf-8")
    assert '"kv_lora_rank": 40' in text
    (folder / "config.json").write_text(text.replace('"kv_lora_rank": 40', '"kv_lora_rank": 48'), "utf-8")
    with pytest.raises(BadCheckpoint, match=r"kv_a_proj_with_mqa\.weight has the shape \(48, 64\), but"):
        load(folder)


def test_scores_are_scaled_as_yarn_says() -> None:
    scaling = {**PLAIN, "rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0}
    scaling["original_max_position_embeddings"] = 4096
    config = config_of("deepseek_v3", rope_scaling=scaling)
    assert config.rope is not None
    assert config.rope.magnitude == 1.0
    assert config.shape(0).scale == pytest.approx(192**-0.5 * (0.1 * np.log(40) + 1) ** 2)


@pytest.mark.parametrize("kind", ["linear", "longrope"])
def test_a_files_multiplier_scales_scores_beside_any_kind_of_rope(kind: str, tmp_path: Path) -> None:
    """As in transformers. llama.cpp also multiplies scores by the square of what yarn with this factor would
    do to cosines and sines, though there is no yarn.
    """
    case = BY_NAME["DeepSeek V3"]
    assert case.gguf is not None
    rope = {**PLAIN, "rope_type": "linear", "factor": 4.0, "mscale_all_dim": 0.8}
    more, keys = {"rope.scaling.type": kind, "rope.scaling.factor": 4.0}, case.gguf.keys
    case = replace(
        case,
        settings={**case.settings, ROPE: rope},
        gguf=replace(case.gguf, keys=lambda config: {**keys(config), **more}),
    )
    file = write_case_gguf(case, write_checkpoint(case, tmp_path / "m"), tmp_path / "m.gguf")
    expected = expected_logits(case)
    found = logits(load(file), ids(case.length))
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
