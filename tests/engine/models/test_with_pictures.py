"""The text models of models for pictures, against the whole model of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.architectures.drafters.gemma4_assistant import read_assistant_config
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import ROPE, SMALL, ids
from tests.engine.models.oracle import load, logits
from tests.engine.models.whole_models import (
    EXPERTS,
    EYES,
    QWEN_EYES,
    SECTIONS,
    TEXT,
    WHOLE,
    Whole,
    saved_model,
    tiny_model,
)

HALF = {**SECTIONS, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}
CHOSEN = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "mllama": ({"num_hidden_layers": 5, "cross_attention_layers": [1]}, {**EYES, "num_global_layers": 1}),
    "qwen2_5_vl": ({"tie_word_embeddings": True, ROPE: SECTIONS}, QWEN_EYES),
    "cohere2_vision": (
        {"model_type": "cohere2", "head_dim": 16},
        {**EYES, "model_type": "siglip_vision_model"},
    ),
    "qwen2_vl": ({ROPE: SECTIONS}, QWEN_EYES),
    "qwen3_vl": ({"head_dim": 24, ROPE: {**SECTIONS, "mrope_section": [4, 4, 4]}}, QWEN_EYES),
    "qwen3_vl_moe": ({"head_dim": 16, **EXPERTS, ROPE: SECTIONS}, QWEN_EYES),
    "glm4v": ({ROPE: HALF}, QWEN_EYES),
    "glm4v_moe": ({**CHOSEN, "first_k_dense_replace": 1, ROPE: HALF}, QWEN_EYES),
    "llava": ({"model_type": "llama"}, {**EYES, "model_type": "clip_vision_model"}),
    "llava_next": ({"model_type": "mistral"}, {**EYES, "model_type": "clip_vision_model"}),
    "smolvlm": ({"model_type": "llama"}, EYES),
    "idefics2": ({"model_type": "mistral"}, EYES),
    "internvl": ({"model_type": "qwen2"}, {**EYES, "image_size": [28, 28], "patch_size": [14, 14]}),
    "lfm2_vl": (
        {"model_type": "lfm2", "layer_types": ["conv", "full_attention", "conv", "conv"]},
        {**EYES, "model_type": "siglip2_vision_model"},
    ),
    "ovis2": ({"model_type": "qwen2"}, EYES),
    "exaone4_5": ({"model_type": "exaone4", "sliding_window": 8}, QWEN_EYES),
    "lighton_ocr": ({"model_type": "qwen3"}, {**EYES, "model_type": "pixtral"}),
    "granite_docling": ({}, {**QWEN_EYES, "num_attention_heads": 2, "num_hidden_layers": 1}),
    "mistral3": ({"model_type": "mistral"}, {**EYES, "model_type": "pixtral"}),
}
DISAGREEING = {"smolvlm": (False, True), "gemma4_unified": (True, False)}
"""Whether tables are tied by the word of the whole, and by that of its text model."""
WHOLES = {kind: Whole(text, {"vision_config": eyes}) for kind, (text, eyes) in MODELS.items()} | WHOLE
QUICK = ("mllama", "deepseek_ocr2", "cohere2_vision", "gemma4_unified", "ernie4_5_vl_moe")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in QUICK else [pytest.mark.slow]) for kind in WHOLES]
)
def test_the_text_model_agrees_with_the_whole(tmp_path: Path, kind: str) -> None:
    whole = WHOLES[kind]
    model = saved_model(kind, whole, tmp_path)
    if whole.renamed[0]:
        tensors = load_file(tmp_path / "model.safetensors")
        renamed = {name.replace(*whole.renamed): values for name, values in tensors.items()}
        save_file(renamed, tmp_path / "model.safetensors")
    tokens = ids(50)
    model.set_experts_implementation("eager")  # the grouped ones have no float64
    with torch.inference_mode():
        run = model.language_model if whole.needs else model
        # in float64, so that only our rounding counts: that of float32 differs among processors
        expected = run.double()(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].numpy()
    found = logits(load(tmp_path), tokens, context=50)
    assert expected.std() > 0.4
    assert np.abs(found - expected).max() <= whole.tolerance * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.parametrize("kind", DISAGREEING)
def test_the_whole_says_whether_tables_are_tied(tmp_path: Path, kind: str) -> None:
    whole, (outer, inner) = WHOLES[kind], DISAGREEING[kind]
    text = {**whole.text, "tie_word_embeddings": inner}
    model = tiny_model(kind, Whole(text, {**whole.parts, "tie_word_embeddings": outer}))
    assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) is outer
    model.save_pretrained(tmp_path)
    assert read_config(open_checkpoint(tmp_path)).tied is outer
    if not outer:  # what transformers 4 may have saved
        tensors = load_file(tmp_path / "model.safetensors")
        save_file(
            {name: tensors[name] for name in tensors if "head" not in name}, tmp_path / "model.safetensors"
        )
        assert read_config(open_checkpoint(tmp_path)).tied


def written(folder: Path, config: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    save_file({"x": np.zeros(1, np.float32)}, folder / "model.safetensors")
    return folder


def test_sizes_that_llava_leaves_out(tmp_path: Path) -> None:
    """As LLaVA 1.5's config.json: sizes that are the class's defaults are not there."""
    text = {"model_type": "llama", "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "vocab_size": 32064}
    whole = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "text_config": text}
    config = read_config(open_checkpoint(written(tmp_path, whole)))
    assert (config.layers, config.width, config.heads, config.ffn_width) == (32, 4096, 32, 11008)
    assert (config.vocab_size, config.norm_eps, config.tied) == (32064, 1e-5, False)


@pytest.mark.parametrize(
    "name",
    [
        "Gemma3ForConditionalGeneration", "Gemma3nForConditionalGeneration",
        "Gemma4ForConditionalGeneration", "Gemma4AssistantForCausalLM", "Llama4ForConditionalGeneration",
        "LlavaForConditionalGeneration", "Mistral3ForConditionalGeneration",
        "MllamaForConditionalGeneration", "Qwen3_5ForConditionalGeneration",
    ],
)  # fmt: skip
def test_the_class_of_the_text_model_does_not_count(tmp_path: Path, name: str) -> None:
    """transformers may write null or another class inside."""
    alone, found = name == "Gemma4AssistantForCausalLM", []
    text = TEXT | ({"hidden_size_per_layer_input": 0} if alone else {"num_kv_shared_layers": 0})
    for more in ({}, {"architectures": None}, {"architectures": ["LlamaForCausalLM"]}):
        whole = {"architectures": [name], "text_config": {**text, **more}}
        checkpoint = open_checkpoint(written(tmp_path, whole))
        found.append(read_assistant_config(checkpoint) if alone else read_config(checkpoint))
    assert found[1:] == found[:1] * 2


def test_unknown_text_models_are_refused(tmp_path: Path) -> None:
    whole = {"architectures": ["LlavaForConditionalGeneration"], "text_config": {"model_type": "new"}}
    with pytest.raises(UnsupportedModel, match=r"text part is of the type 'new'.*LlavaForConditional"):
        read_config(open_checkpoint(written(tmp_path, whole)))
    with pytest.raises(BadCheckpoint, match="text_config is 3, but an object was expected"):
        read_config(open_checkpoint(written(tmp_path, whole | {"text_config": 3})))
    with pytest.raises(BadCheckpoint, match="tie_word_embeddings is 'yes'"):
        read_config(
            open_checkpoint(
                written(
                    tmp_path, whole | {"text_config": {"tie_word_embeddings": "yes", "model_type": "llama"}}
                )
            )
        )


def test_chameleon_never_writes_tokens_of_pictures(tmp_path: Path) -> None:
    whole = {**SMALL, "architectures": ["ChameleonForConditionalGeneration"]}
    pictures = {"IMGIMGA": 7, "IMGIMGB": 6}
    for tokens, silent in (({"<image>": 5, **pictures}, (6, 8)), ({"<image>": 5}, (0, 0)), (None, (0, 0))):
        config = written(tmp_path, whole | {"vocabulary_map": tokens})
        assert read_config(open_checkpoint(config)).silent_tokens == silent
    with pytest.raises(UnsupportedModel, match=r"sets vocabulary_map to \[6, 7, 9\]"):
        read_config(
            open_checkpoint(written(tmp_path, whole | {"vocabulary_map": {"IMGIMGC": 9, **pictures}}))
        )


def test_deepseek_ocr_as_its_makers_have_it(tmp_path: Path) -> None:
    text = {
        **SMALL, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2, "lm_head": True,
        "moe_intermediate_size": 40, "first_k_dense_replace": 1, "topk_method": "greedy", "n_group": 1,
        "topk_group": 1, "use_mla": False, "q_lora_rank": None, "kv_lora_rank": None, "v_head_dim": 0,
    }  # fmt: skip
    for name in ("DeepseekOCRForCausalLM", "DeepseekOCR2ForCausalLM"):
        whole = {"architectures": [name], "model_type": "deepseek_vl_v2", "language_config": text}
        config = read_config(open_checkpoint(written(tmp_path, whole)))
        assert config.experts is not None
        assert (config.experts.layers, config.experts.shared_width) == ({1, 2}, 80)
        assert (config.experts.normalise, config.head_dim, config.tied) == (False, 16, False)
