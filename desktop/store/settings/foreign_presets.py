"""Sampler presets of other programs: what their names and conventions mean here.

The names and meanings are those of text-generation-webui (modules/presets.py), SillyTavern (text completion
presets), KoboldAI and KoboldCpp (rep_pen, tfs, sampler_order) and llama.cpp (server parameters).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from desktop.store.settings.preferences import checked_values
from engine.settings import SAMPLER_STEP_NAMES, SamplerSettings, setting_info

__all__ = ["foreign_settings", "own_values"]

_SAME = {
    "temp": "temperature", "rep_pen": "repetition_penalty", "repeat_penalty": "repetition_penalty",
    "repetition_penalty_range": "repetition_range", "rep_pen_range": "repetition_range",
    "repeat_last_n": "repetition_range", "rep_pen_decay": "repetition_decay",
    "presence_pen": "presence_penalty", "freq_pen": "frequency_penalty", "dry_penalty_last_n": "dry_range",
    "dry_sequence_breakers": "dry_breakers", "dry_sequence_breaker": "dry_breakers", "tfs": "tail_free",
    "tfs_z": "tail_free", "typical_p": "typical", "typ_p": "typical", "min_temp": "min_temperature",
    "max_temp": "max_temperature", "dynatemp_low": "min_temperature", "dynatemp_high": "max_temperature",
    "dynatemp_exponent": "temperature_exponent", "nsigma": "top_n_sigma", "n_sigma": "top_n_sigma",
    "adaptive_p_target": "adaptive_target", "adaptive_p_decay": "adaptive_decay",
}  # fmt: skip
"""Their names to ours, where only the name differs; our own names are accepted as they are."""

_STEPS = {
    "temp": "temperature", "dynatemp": "dynamic_temperature", "quadratic_sampling": "smoothing",
    "repetition_penalty": "repetition", "penalties": "repetition", "rep_pen": "repetition",
    "presence_penalty": "occurrence", "frequency_penalty": "occurrence", "tfs": "tail_free",
    "tfs_z": "tail_free", "typical_p": "typical", "typ_p": "typical", "top_n_sigma": "top_n_sigma",
    "nsigma": "top_n_sigma", "adaptive_p": "adaptive_p",
}  # fmt: skip
"""Their names of sampler steps to ours, for lists that give an order."""

_KOBOLD_STEPS = ("top_k", "top_a", "top_p", "tail_free", "typical", "temperature", "repetition")
"""What the numbers of a `sampler_order` mean."""
_SILENT = frozenset({
    "name", "format", "version", "preset", "do_sample", "dynatemp", "dynamic_temperature", "temperature_last",
    "mirostat_type",
})  # fmt: skip
"""Names that are read in combination with others, or that are not about sampling."""


def foreign_settings(data: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Our values for another program's `data`, and the names in it that have no counterpart or an invalid
    value.

    What the file does not mention is neutral, as it is in those programs. Without a single known name both
    are empty.
    """
    found, names, unknown = _translated(data)
    if not found:
        return {}, ()
    good, _ = checked_values(SamplerSettings, found)
    outside = [names.get(target, target) for target in found if target not in good]
    combined, _ = checked_values(SamplerSettings, _combined(data))
    return {**_neutral(), **good, **combined}, (*unknown, *outside)


def own_values(data: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Our values for exactly what another program's `data` mentions, and the names they come from."""
    found, names, unknown = _translated(data)
    good, _ = checked_values(SamplerSettings, found)
    combined, _ = checked_values(SamplerSettings, _combined(data))
    lost = {names[target] for target in found if target in names and target not in good}
    return good | combined, set(data) - set(unknown) - lost


def _translated(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Values by our names, their names by ours, and the names without a counterpart."""
    own = {field.name for field in dataclasses.fields(SamplerSettings)}
    found: dict[str, Any] = {}
    names: dict[str, str] = {}
    unknown: list[str] = []
    for name, value in data.items():
        target = _SAME.get(name, name)
        if target in own and target not in ("order", "mirostat"):
            found[target], names[target] = _value(name, target, value), name
        elif name in _SPECIAL:
            found.update(_SPECIAL[name](value))
        elif name not in _SILENT and value not in (
            None,
            False,
            0,
            "",
            [],
            {},
        ):  # otherwise it is off there too
            unknown.append(name)
    return found, names, unknown


def _neutral() -> dict[str, Any]:
    """The values that switch every step off."""
    infos = {field.name: setting_info(field) for field in dataclasses.fields(SamplerSettings)}
    return {
        name: info.neutral
        for name, info in infos.items()
        if info.neutral is not None and name != "repetition_range"
    }


def _value(name: str, target: str, value: Any) -> Any:
    """Convert one value to our convention."""
    if target == "dry_breakers":
        return _texts(value)
    if target in (
        "top_k",
        "seed",
        "repetition_range",
        "dry_range",
        "repetition_decay",
        "dry_allowed_length",
    ) and _is_number(value):
        value = int(value)
    if target == "top_k":
        return 0 if value == -1 else value  # both mean "off"
    if target == "seed":
        return None if value == -1 else value
    if name in ("repetition_penalty_range", "rep_pen_range"):
        return -1 if value == 0 else value  # there, 0 means the whole text
    if target == "dry_range":
        return 0 if value == -1 else value  # there, -1 means the whole text
    return value


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and value == value
        and abs(value) < 1e18
    )


def _texts(value: Any) -> Any:
    """A list of texts; other programs also write it as JSON in a string, with or without brackets."""
    if not isinstance(value, str):
        return value
    inner = value.strip()
    try:
        return json.loads(inner if inner.startswith("[") else f"[{inner}]")
    except ValueError:
        return None


def _mirostat(value: Any) -> dict[str, Any]:
    """0 is off; 1 and 2 are two versions of the algorithm, of which we have the second."""
    return {"mirostat": bool(value)}


def _dynamic_range(value: Any) -> dict[str, Any]:
    """llama.cpp: the distance below and above the temperature; `_combined` reads both."""
    return {}


def _samplers(value: Any) -> dict[str, Any]:
    """An order as a list of names, or as names separated by newlines or semicolons."""
    names = value.replace("\n", ";").split(";") if isinstance(value, str) else value
    if not isinstance(names, list):
        return {}
    ours = {name for name, _ in SAMPLER_STEP_NAMES}
    steps = [_STEPS.get(name.strip(), name.strip()) for name in names if isinstance(name, str)]
    order = list(dict.fromkeys(step for step in steps if step in ours))
    return {"order": order} if order else {}


def _sampler_numbers(value: Any) -> dict[str, Any]:
    if not isinstance(value, list):
        return {}
    order = [
        _KOBOLD_STEPS[number]
        for number in value
        if isinstance(number, int) and 0 <= number < len(_KOBOLD_STEPS)
    ]
    return {"order": list(dict.fromkeys(order))} if order else {}


_SPECIAL: dict[str, Callable[[Any], dict[str, Any]]] = {
    "mirostat": _mirostat,
    "mirostat_mode": _mirostat,
    "dynatemp_range": _dynamic_range,
    "samplers": _samplers,
    "sampler_priority": _samplers,
    "samplers_priorities": _samplers,
    "sampler_order": _sampler_numbers,
}


def _combined(data: Mapping[str, Any]) -> dict[str, Any]:
    """What several of their values mean in combination."""
    result: dict[str, Any] = {}
    span, middle = data.get("dynatemp_range"), data.get("temperature", data.get("temp", 1.0))
    if _is_number(span) and _is_number(middle) and span:
        result |= {"min_temperature": max(0.0, middle - span), "max_temperature": float(middle + span)}
    elif not data.get("dynatemp", data.get("dynamic_temperature", True)):
        result |= {"min_temperature": 0.0, "max_temperature": 0.0}
    if data.get("dry_penalty_last_n") == 0:
        result["dry_multiplier"] = 0.0  # it looks at no tokens
    if data.get("do_sample") is False:
        result["temperature"] = 0.0
    if data.get("temperature_last") is True:
        steps = [name for name, _ in SAMPLER_STEP_NAMES if name != "temperature"]
        result["order"] = [*steps, "temperature"]
    return result
