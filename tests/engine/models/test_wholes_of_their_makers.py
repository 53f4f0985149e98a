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


def test_unknown_version_of_minicpm_v(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"architectures": ["MiniCPMV"], "version": 9.5}), "utf-8"
    )
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedModel, match=r"of the type 'MiniCPMV 9\.5'"):
        read_config(open_checkpoint(tmp_path))
