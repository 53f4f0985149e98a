"""The sampling settings of an imported chat, as settings of the chat here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from desktop.store.settings.foreign_presets import own_values
from desktop.store.settings.preferences import checked_values
from desktop.store.transfer.importers.fields import items, mapping
from engine.settings import SamplerSettings, StopSettings

__all__ = ["chat_settings", "switched"]

_STOP_NAMES = {
    "max_tokens": "max_tokens", "num_predict": "max_tokens", "n_predict": "max_tokens",
    "maxPredictedTokens": "max_tokens", "stop": "stop_strings", "stopStrings": "stop_strings",
}  # fmt: skip
_SAMPLER_NAMES = {
    "topKSampling": "top_k", "topPSampling": "top_p", "minPSampling": "min_p",
    "repeatPenalty": "repetition_penalty", "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}  # fmt: skip
"""LM Studio's names, where they differ from those of other programs."""


def chat_settings(given: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Settings by the name of their class, and the part of `given` that has no counterpart or an invalid
    value.

    Only what the file mentions is set: the rest stays as the model or the user has it.
    """
    renamed = {_SAMPLER_NAMES.get(name, name): value for name, value in given.items() if value is not None}
    sampler, used = own_values({name: value for name, value in renamed.items() if name not in _STOP_NAMES})
    stops: dict[str, Any] = {}
    for name, target in _STOP_NAMES.items():
        value = renamed.get(name)
        if target == "max_tokens" and value in (-1, -2):
            value = 0  # until the context is full
        elif target == "stop_strings":
            value = (
                [value]
                if isinstance(value, str)
                else [text for text in items(value) if isinstance(text, str) and text]
            )
        good, _ = checked_values(StopSettings, {target: value})
        if value not in (None, []) and good:
            stops |= good
            used |= {name}
    found = {
        cls.__name__: values for cls, values in ((SamplerSettings, sampler), (StopSettings, stops)) if values
    }
    names = {ours: theirs for theirs, ours in _SAMPLER_NAMES.items() if theirs in given}
    return found, {names.get(name, name): value for name, value in renamed.items() if name not in used}


def switched(value: Any) -> Any:
    """A value of LM Studio that can be switched off, `{"checked": true, "value": 40}`; None if it is off."""
    about = mapping(value)
    return value if "checked" not in about else about.get("value") if about["checked"] is True else None
