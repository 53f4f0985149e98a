"""The sampler settings that a model's authors recommend (generation_config.json or GGUF metadata)."""

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
"""Keys of generation_config.json (transformers' `GenerationConfig`) -> fields of `SamplerSettings`."""

_GGUF_NAMES = {
    "temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p",
    "penalty_repeat": "repetition_penalty", "penalty_last_n": "repetition_range",
    "xtc_probability": "xtc_probability", "xtc_threshold": "xtc_threshold",
}  # fmt: skip
"""Keys under general.sampling. in GGUF files (llama.cpp, gguf/constants.py) -> the same fields."""


def sampler_defaults(checkpoint: Checkpoint) -> tuple[tuple[str, float], ...]:
    """The authors' recommendation as (field of `SamplerSettings`, value) pairs; may be empty.

    `do_sample` false in generation_config.json means greedy decoding: temperature 0. Values of a wrong type
    or out of range are left out.
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
    """The value with the field's type; a float32 from a GGUF file, 0.949999988, becomes 0.95."""
    if isinstance(value, float):
        return int(value) if whole and value.is_integer() else float(f"{value:.6g}")
    return value
