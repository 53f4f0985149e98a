"""The class that a `model_type` of config.json stands for, where the file names no class."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from engine.models import architectures
from engine.models.architectures.with_pictures import TEXT_MODELS, WITH_PICTURES

_ENDS = ("ForConditionalGeneration", "ForCausalLM", "LMHeadModel", "Model")
"""The ends of class names; the first counts for a type that has several, such as Gemma 3's."""
_TEXT = "_text"
_OTHERS = {
    "glmga": "Glm46VForConditionalGeneration", "gpt-sw3": "GPT2LMHeadModel",
    "minimax_m3_vl": "MiniMaxM3SparseForConditionalGeneration",
    "hunyuan_v1_dense": "HunYuanDenseV1ForCausalLM", "hunyuan_v1_moe": "HunYuanMoEV1ForCausalLM",
    "inkling_mm_model": "InklingForConditionalGeneration", "iquestcoder": "LlamaForCausalLM",
    "mpt": "MptForCausalLM",
    "nemotron_h_omni": "NemotronH_Omni_Reasoning_V3", "pp_chart2table": "GotOcr2ForConditionalGeneration",
    "sarvam_mla": "DeepseekV3ForCausalLM", "sarvam_moe": "SarvamMoEForCausalLM",
    "shieldgemma2": "Gemma3ForConditionalGeneration",
}  # fmt: skip
"""Types whose names are not those of their classes, or of a class with another spelling; from the tables of
transformers' `AutoModelForCausalLM` and `AutoModelForImageTextToText`.
"""


def with_class(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """config.json with the class under `architectures`: where that is absent, null or empty, the one that
    `model_type` stands for, as in transformers' auto classes. Unchanged if the type is not known. Folders of
    Sarvam that transformers 5 saved name a class whose tensors they do not have.
    """
    kind = config.get("model_type")
    if kind == "sarvam_moe" and config.get("architectures") == ["Glm4MoeForCausalLM"]:
        return {**config, "architectures": [_OTHERS[kind]]}
    if config.get("architectures") not in (None, []) or not isinstance(kind, str):
        return config
    found = (TEXT_MODELS | _OTHERS).get(kind)
    if found is None and kind.endswith(_TEXT):  # before the encoder `Gemma3TextModel`
        found = _by_name(_ENDS[1:]).get(_plain(kind.removesuffix(_TEXT)))
    found = found or _by_name(_ENDS).get(_plain(kind))
    return config if found is None else {**config, "architectures": [found]}


@cache
def _by_name(ends: tuple[str, ...]) -> Mapping[str, str]:
    """The supported classes by their names without ends: "qwen3moe" -> "Qwen3MoeForCausalLM"."""
    names = [*WITH_PICTURES, *(name for each in architectures.ARCHITECTURES for name in each.hf)]
    return {
        _plain(name.removesuffix(end)): name for end in reversed(ends) for name in names if name.endswith(end)
    }


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
