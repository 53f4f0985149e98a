"""The sampler settings that a model's makers advise, from generation_config.json or the GGUF metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import BadSetting
from engine.settings import SamplerSettings, check_value
from engine.weights.checkpoint import Checkpoint

_FOLDER_NAMES = {
    "temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p",
    "repetition_penalty": "repetition_penalty", "typical_p": "typical",
}  # fmt: skip
"""Keys of generation_config.json (transformers, `GenerationConfig`) and the fields of `SamplerSettings`
that mean the same.
"""

_GGUF_NAMES = {
    "temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p",
    "penalty_repeat": "repetition_penalty", "penalty_last_n": "repetition_range",
    "xtc_probability": "xtc_probability", "xtc_threshold": "xtc_threshold",
}  # fmt: skip
"""Keys under general.sampling. that llama.cpp's converter writes into GGUF files (gguf/constants.py)."""


def sampler_defaults(checkpoint: Checkpoint) -> tuple[tuple[str, float], ...]:
    """What the makers advise as (field of `SamplerSettings`, value), () for nothing.

    A generation_config.json with `do_sample` false means the likeliest token: temperature 0 and nothing else
    of sampling. Values of a wrong type or outside the range of the field are left out. Raises nothing.
    """
    if checkpoint.format == "gguf":
        found = {key: checkpoint.metadata.get(f"general.sampling.{key}") for key in _GGUF_NAMES}
        return _checked(found, _GGUF_NAMES)
    config = checkpoint.metadata.get("generation_config")
    if not isinstance(config, Mapping):
        return ()
    if config.get("do_sample") is False:
        penalty = {"repetition_penalty": config.get("repetition_penalty")}
        return (("temperature", 0.0), *_checked(penalty, _FOLDER_NAMES))
    return _checked(config, _FOLDER_NAMES)


def _checked(values: Mapping[str, Any], names: Mapping[str, str]) -> tuple[tuple[str, float], ...]:
    good: list[tuple[str, float]] = []
    for key, name in names.items():
        value = values.get(key)
        if value is None:
            continue
        whole = isinstance(getattr(SamplerSettings, name), int)
        try:
            checked = check_value(SamplerSettings, name, _number(value, whole))
        except BadSetting:
            continue
        good.append((name, checked))
    return tuple(good)


def _number(value: Any, whole: bool) -> Any:
    """A whole float as an int where the field is one, and a float32 of a GGUF file (0.949999988) as it was
    meant (0.95).
    """
    if isinstance(value, float):
        return int(value) if whole and value.is_integer() else float(f"{value:.6g}")
    return value
