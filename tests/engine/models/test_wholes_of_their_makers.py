"""Folders whose classes are in no version of transformers: their text models are those of other folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.errors import UnsupportedModel
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import Case, case_folders, ids
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load, logits
from tests.tiny import write_tokenizer

QWEN_2, EXPERTS = "Qwen 2 and 2.5", "Qwen 3 mixture of experts"
IN_TEXT, IN_LLM, IN_LANGUAGE = "text_config", "llm_config", "language_config"
TEXT: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("MiniCPMV", QWEN_2, "", "llm.", {"version": 2.6}),
    ("MiniCPMV", "MiniCPM", "", "llm.", {"version": 2.0}),
    ("MiniCPMV", "MiniCPM", "", "llm.", {}),
    ("MiniCPMV", "Llama", "", "llm.", {}),
    ("MiniCPMV", "Llama", "", "llm.", {"version": 4.0}),
    ("MiniCPMV", "Qwen 3", "", "llm.", {"version": 4.5}),
    ("MiniCPMO", QWEN_2, "", "llm.", {}),
    ("MiniCPMO", "Qwen 3", "", "llm.", {"version": "4.5"}),
    ("Ovis", "Gemma 2", IN_LLM, "llm.", {"model_type": "gemma2"}),
    ("Ovis", "Llama", IN_LLM, "llm.", {}),
    ("Ovis2_5", "Qwen 3", IN_LLM, "llm.", {}),
    ("LlavaLlamaForCausalLM", "Llama", "", "", {}),
    ("LlavaMistralForCausalLM", "Mistral", "", "", {}),
    ("LlavaQwenForCausalLM", QWEN_2, "", "", {}),
    ("LlavaQwen2ForCausalLM", QWEN_2, "", "", {}),
    ("LLaVAOneVision1_5_ForConditionalGeneration", "Qwen 3", IN_TEXT, "model.language_model.",
     {"model_type": "LLaVAOneVision1_5_text"}),
    ("InternVLChatModel", "InternLM 2", IN_LLM, "language_model.", {"model_type": "internlm2"}),
    ("InternVLChatModel", "InternLM 3", IN_LLM, "language_model.", {"model_type": "internlm3"}),
    ("InternS1ForConditionalGeneration", EXPERTS, IN_TEXT, "model.language_model.", {}),
    ("InternS2PreviewForConditionalGeneration", "Qwen 3.5 mixture of experts", IN_TEXT,
     "model.language_model.", {}),
    ("DeepseekVLV2ForCausalLM", "DeepSeek 1", IN_LANGUAGE, "language.",
     {"model_type": "deepseek_v2", "use_mla": False}),
    ("DeepseekVLV2ForCausalLM", "DeepSeek V2", IN_LANGUAGE, "language.", {}),
    ("MultiModalityCausalLM", "Llama", IN_LANGUAGE, "language_model.", {}),
    ("Phi3VForCausalLM", "Phi-3, Phi-4", "", "", {}),
    ("Phi4ForCausalLMV", "Phi-3, Phi-4", "", "", {}),
    ("DotsOCRForCausalLM", QWEN_2, "", "", {}),
    ("KeyeForConditionalGeneration", "Qwen 3", "", "", {}),
    ("KeyeVL1_5ForConditionalGeneration", "Qwen 3", "", "", {}),
    ("Glm5vForConditionalGeneration", "GLM-5", IN_TEXT, "language_model.", {}),
    ("HCXVisionForCausalLM", "Llama", IN_LANGUAGE, "model.language_model.", {}),
    ("Sarashina2VisionForCausalLM", "Llama", IN_TEXT, "llm.", {}),
    ("StepVLForConditionalGeneration", "Qwen 3", IN_TEXT, "model.language_model.", {}),
    ("H2OVLChatModel", "Mistral", IN_LLM, "language_model.", {}),
    ("NVLM_D", QWEN_2, IN_LLM, "language_model.", {}),
    ("SkyworkR1VChatModel", QWEN_2, IN_LLM, "language_model.", {}),
    ("Llama_Nemotron_Nano_VL", "Llama", IN_LLM, "language_model.", {}),
    ("NemotronH_Nano_Omni_Reasoning_V3", "Nemotron-H", IN_LLM, "language_model.", {}),
    ("LightOnOCRForConditionalGeneration", "Qwen 3", IN_TEXT, "model.language_model.", {}),
    ("OpenCUAForConditionalGeneration", QWEN_2, IN_TEXT, "language_model.", {}),
    ("BeeForConditionalGeneration", "Qwen 3", IN_TEXT, "model.language_model.", {}),
    ("RForConditionalGeneration", "Qwen 3", IN_TEXT, "language_model.", {}),
    ("MantisForConditionalGeneration", "Llama", IN_TEXT, "language_model.", {}),
    ("TarsierForConditionalGeneration", QWEN_2, IN_TEXT, "language_model.", {}),
    ("ChatGLMForConditionalGeneration", "ChatGLM2, 3", "", "", {}),
    ("LLaMAForCausalLM", "Llama", "", "", {"model_type": "llama"}),
    ("MiMoForCausalLM", QWEN_2, "", "", {}),
    ("MiMoV2ForCausalLM", "MiMo-V2-Flash", "", "", {}),
    ("ExaoneMoEForCausalLM", "K-EXAONE", "", "", {}),
    ("Ernie4_5_ForCausalLM", "ERNIE 4.5", "", "", {}),
    ("Dots3NoteTextForCausalLM", "Dots 3 Note", "", "", {}),
)  # fmt: skip
"""The class, the case of its text model, the object in config.json that has the model's keys ("": none),
what comes before the names of tensors, and further keys beside the model's.
"""
QUICK = (0, 7, 8, 16, 20)
Folder = Callable[[Case], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The folder of a case, written once."""
    return case_folders(tmp_path_factory)


def named(name: str, at: str) -> str:
    """The name of a tensor in the whole; one in the place of "model." leaves the head where it is."""
    if not at.startswith("model."):
        return at + name
    return at + name.removeprefix("model.") if name.startswith("model.") else name


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=f"{at}-{row[0]}", marks=[] if at in QUICK else [pytest.mark.slow])
        for at, row in enumerate(TEXT)
    ],
)
def test_text_model(row: tuple[str, str, str, str, dict[str, Any]], folder: Folder, tmp_path: Path) -> None:
    name, case, part, at, more = row
    alone = folder(BY_NAME[case])
    config = json.loads((alone / "config.json").read_text("utf-8"))
    config |= more | {"model_type": more.get("model_type", config["model_type"])}
    inner = {key: value for key, value in config.items() if key != "architectures"}
    whole = {"model_type": "of its own", "architectures": [name], "vision_config": {"hidden_size": 7}}
    whole = {**whole, part: inner} if part else inner | whole
    (tmp_path / "config.json").write_text(json.dumps(whole), "utf-8")
    tensors = {named(each, at): one for each, one in load_file(alone / "model.safetensors").items()}
    save_file(tensors | {"vision_tower.x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    write_tokenizer(tmp_path)
    assert np.array_equal(logits(load(tmp_path), ids(30)), logits(load(alone), ids(30)))


@pytest.mark.parametrize("case", [QWEN_2, "OLMo 2"])
def test_first_molmo(case: str, folder: Folder, tmp_path: Path) -> None:
    """Qwen 2, whose queries, keys and values have a bias, or OLMo 2, whose norms come after."""
    alone = folder(BY_NAME[case])
    config = json.loads((alone / "config.json").read_text("utf-8"))
    tensors = load_file(alone / "model.safetensors")
    names = {
        "model.norm": "model.transformer.ln_f", "model.layers": "model.transformer.blocks",
        "self_attn.o_proj": "attn_out", "mlp.down_proj": "ff_out", "self_attn.q_norm": "q_norm",
        "self_attn.k_norm": "k_norm", "input_layernorm": "attn_norm", "lm_head": "model.transformer.ff_out",
        "post_attention_layernorm": "attn_norm" if case == "OLMo 2" else "ff_norm",
        "post_feedforward_layernorm": "ff_norm", "self_attn.qkv": "att_proj", "mlp.both": "ff_proj",
    }  # fmt: skip
    parts = {"self_attn.qkv": ("q_proj", "k_proj", "v_proj"), "mlp.both": ("up_proj", "gate_proj")}
    for fused, own in parts.items():
        module = fused.split(".")[0]
        for name in [each for each in tensors if f"{module}.{own[0]}" in each]:
            rows = [tensors.pop(name.replace(own[0], part)) for part in own]
            tensors[name.replace(f"{module}.{own[0]}", fused)] = np.concatenate(rows)
    table = tensors.pop("model.embed_tokens.weight")
    found = {"model.transformer.wte.embedding": table}
    found["model.transformer.wte.new_embedding"] = np.zeros((128, table.shape[1]), np.float32)
    found.setdefault("model.transformer.ff_out.weight", table.copy())
    for name, values in tensors.items():
        for old, new in names.items():
            name = name.replace(old, new)
        found[name] = values
    save_file(found, tmp_path / "model.safetensors")
    own = {
        "architectures": ["MolmoForCausalLM"], "layer_norm_type": "rms", "weight_tying": False,
        "layer_norm_eps": config["rms_norm_eps"], "norm_after": case == "OLMo 2", "qkv_bias": case == QWEN_2,
        "attention_layer_norm": case == "OLMo 2", "intermediate_size": 2 * config["intermediate_size"],
        "embedding_size": table.shape[0], "vocab_size": table.shape[0] - 3,
        "rope_theta": (config.get("rope_parameters") or config)["rope_theta"],
    }  # fmt: skip
    left = ("rms_norm_eps", "rope_parameters", "head_dim", "tie_word_embeddings")
    whole = {key: value for key, value in config.items() if key not in left} | own
    (tmp_path / "config.json").write_text(json.dumps(whole), "utf-8")
    write_tokenizer(tmp_path)
    expected = logits(load(alone), ids(30))
    assert np.abs(logits(load(tmp_path), ids(30)) - expected).max() <= 1e-5 * np.abs(expected).max()


def test_unknown_version_of_minicpm_v(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"architectures": ["MiniCPMV"], "version": 9.5}), "utf-8"
    )
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedModel, match=r"of the type 'MiniCPMV 9\.5'"):
        read_config(open_checkpoint(tmp_path))
