"""The settings that servers may take beside the messages, and why others cannot be used with a server."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from engine.remote.capabilities import Capabilities
from engine.settings import (
    AdapterSettings,
    CacheSettings,
    ConstraintSettings,
    GuidanceSettings,
    LoadSettings,
    OutputSettings,
    SamplerSettings,
    Settings,
    SpeculationSettings,
    StopSettings,
    ThinkingSettings,
    setting_info,
)
from engine.words import N_, _, translate

ALL_TOKENS = 1 << 20
"""For `top_k`: every token, on all servers; 0 and -1 mean that on some only."""


class Parameter(NamedTuple):
    """A parameter of requests: the settings class and field that it carries, and a harmless value to try it
    with. `trial` is tried without being sent later unless the setting is set.
    """

    name: str
    cls: type[Settings]
    field: str
    trial: Any


_SAMPLER = SamplerSettings
PARAMETERS: tuple[Parameter, ...] = (
    Parameter("temperature", _SAMPLER, "temperature", 1.0),
    Parameter("top_p", _SAMPLER, "top_p", 1.0),
    Parameter("seed", _SAMPLER, "seed", 1),
    Parameter("presence_penalty", _SAMPLER, "presence_penalty", 0.0),
    Parameter("frequency_penalty", _SAMPLER, "frequency_penalty", 0.0),
    Parameter("top_k", _SAMPLER, "top_k", ALL_TOKENS),
    Parameter("min_p", _SAMPLER, "min_p", 0.0),
    Parameter("repetition_penalty", _SAMPLER, "repetition_penalty", 1.0),
    Parameter("repeat_penalty", _SAMPLER, "repetition_penalty", 1.0),
    Parameter("repeat_last_n", _SAMPLER, "repetition_range", 64),
    Parameter("typical_p", _SAMPLER, "typical", 1.0),
    Parameter("top_n_sigma", _SAMPLER, "top_n_sigma", -1.0),
    Parameter("xtc_probability", _SAMPLER, "xtc_probability", 0.0),
    Parameter("xtc_threshold", _SAMPLER, "xtc_threshold", 0.1),
    Parameter("dry_multiplier", _SAMPLER, "dry_multiplier", 0.0),
    Parameter("dry_base", _SAMPLER, "dry_base", 1.75),
    Parameter("dry_allowed_length", _SAMPLER, "dry_allowed_length", 2),
    Parameter("min_tokens", StopSettings, "min_tokens", 0),
    Parameter("stop_token_ids", StopSettings, "stop_token_ids", []),
    Parameter("logit_bias", ConstraintSettings, "logit_bias", {}),
    Parameter("allowed_token_ids", ConstraintSettings, "allowed_tokens", [1]),
)
"""In the order in which they are tried; of two for one field the first that the server takes is used."""

_APPLIED: dict[type[Settings], frozenset[str]] = {
    StopSettings: frozenset(
        {"max_tokens", "stop_strings", "stop_regex", "keep_stop", "time_limit", "loop_window", "loop_repeats",
         "when_full"}
    ),
}  # fmt: skip
"""Fields that work with every server: they are sent by all, or applied here."""
_LISTS = ("stop_token_ids", "adapters")
"""Settings without a neutral value that do something unless they are empty."""
_WITH = {"xtc_threshold": "xtc_probability", "dry_base": "dry_multiplier",
         "dry_allowed_length": "dry_multiplier"}  # fmt: skip
_ELSEWHERE: dict[type[Settings], str] = {
    SpeculationSettings: N_("Drafting is up to the server."),
    CacheSettings: N_("The server decides how it keeps its context."),
    LoadSettings: N_("The server has loaded the model."),
    GuidanceSettings: N_("Servers do not take a negative prompt."),
    AdapterSettings: N_("Adapters are chosen when the server is started."),
}
"""Why none of the settings of a class can be used."""


def reason_against(cls: type[Settings], field: str, capabilities: Capabilities, server: str) -> str:
    """Why a setting does nothing with this model of `server`; "" if it works."""
    if cls in _ELSEWHERE:
        return translate(_ELSEWHERE[cls])
    if cls is ThinkingSettings:
        return "" if capabilities.thinking else no_switch(server)
    if field in _APPLIED.get(cls, ()) or cls not in (
        SamplerSettings, StopSettings, ConstraintSettings, OutputSettings,
    ):  # fmt: skip
        return ""
    if cls is OutputSettings:
        return _output_reason(field, capabilities, server)
    if cls is ConstraintSettings and field in ("format", "pattern", "begin_with", "ban_ignore_case"):
        return _form_reason(field, capabilities, server)
    taken = [each.name for each in PARAMETERS if (each.cls, each.field) == (cls, field)]
    if any(name in capabilities.taken for name in taken):
        return ""
    if (cls, field) == (ConstraintSettings, "banned_tokens") and "logit_bias" in capabilities.taken:
        return ""
    return _("{server} does not support this setting.", server=server)


def no_tools(server: str) -> str:
    """Why tools cannot be called."""
    return _("{server} does not call tools; choose another model for them.", server=server)


def no_switch(server: str) -> str:
    """Why thinking cannot be switched with a model of `server`."""
    return _("{server} has no switch for how much this model thinks.", server=server)


def reason_against_all(reasons: Collection[str], server: str) -> str:
    """What is said once for settings of `server` with these reasons against them; "" if they differ."""
    said = set(reasons)
    if len(said) != 1:
        return ""
    reason = said.pop()
    single = _("{server} does not support this setting.", server=server)
    return _("{server} supports none of these settings.", server=server) if reason == single else reason


def _output_reason(field: str, capabilities: Capabilities, server: str) -> str:
    if field == "alternatives":
        return (
            ""
            if capabilities.top_logprobs > 0
            else _("{server} sends no alternatives to its tokens.", server=server)
        )
    if field == "stream_interval":
        return _("{server} decides when it sends text.", server=server)
    return _("{server} does not send control tokens.", server=server)


def _form_reason(field: str, capabilities: Capabilities, server: str) -> str:
    if field == "begin_with":
        return (
            ""
            if capabilities.continues
            else _("{server} cannot continue a reply that you start here.", server=server)
        )
    if field == "ban_ignore_case":
        return _("{server} cannot take back words that it has written.", server=server)
    forms = capabilities.schema or capabilities.regex or capabilities.grammar
    return "" if forms else _("{server} does not constrain replies.", server=server)


def values_for(settings: Mapping[type[Settings], Settings], capabilities: Capabilities) -> dict[str, Any]:
    """The parameters that the server takes, with the values of these settings.

    Values that are neutral are sent, too: without them some servers use defaults of the model.
    """
    found: dict[str, Any] = {}
    fields: set[tuple[type[Settings], str]] = set()
    for parameter in PARAMETERS:
        place = (parameter.cls, parameter.field)
        if parameter.name not in capabilities.taken or place in fields or parameter.cls is ConstraintSettings:
            continue
        value = getattr(settings[parameter.cls], parameter.field)
        leader = _WITH.get(parameter.name)
        if leader is not None and not getattr(settings[parameter.cls], leader):
            continue
        value = _as_sent(parameter.name, value)
        if value is not None:
            found[parameter.name] = value
            fields.add(place)
    return found


def _as_sent(name: str, value: Any) -> Any:
    """A value as servers expect it; None if it need not be sent."""
    if name == "top_k":
        return value or ALL_TOKENS
    if name == "top_p":
        return max(value, 1e-6)
    if name in ("min_tokens", "stop_token_ids", "top_n_sigma", "xtc_probability", "dry_multiplier"):
        return (list(value) if isinstance(value, tuple) else value) or None
    return value


def not_sent(settings: Mapping[type[Settings], Settings], capabilities: Capabilities) -> tuple[str, ...]:
    """The labels of settings that are set to something that changes replies, but that the server does not
    take.
    """
    found = []
    for cls, own in settings.items():
        for field in dataclasses.fields(own):  # type: ignore[arg-type]
            info = setting_info(field)
            value = getattr(own, field.name)
            has_effect = info.neutral is not None or field.name in ("seed", *_LISTS)
            changes = has_effect and value != info.neutral and value not in ("", (), None)
            ignored = field.name in ("repetition_range", "when_full") or not changes
            if not ignored and reason_against(cls, field.name, capabilities, "-"):
                found.append(info.label)
    return tuple(found)
