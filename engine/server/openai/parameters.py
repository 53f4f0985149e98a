"""The parameters of a request, under the names of OpenAI, vLLM, llama.cpp and TabbyAPI, as settings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from engine.server.failure import bad_request
from engine.server.fields import LONGEST, Fields, is_ids
from engine.server.openai.formats import format_of
from engine.settings import (
    TEMPERATURE_LAST,
    ConstraintSettings,
    GuidanceSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
    ThinkingSettings,
    setting_info,
)
from engine.settings.thinking import AUTO, EFFORTS, OFF, ON

MOST_STOPS = 64
MOST_BANNED = 1024
MOST_LOGPROBS = 20
_HOTTEST = 100.0

_NEUTRAL = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
"""What a request gets that names nothing, of a model whose authors recommend nothing."""
_NUMBERS = {
    "temperature": "temperature", "top_p": "top_p", "min_p": "min_p", "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty", "repetition_penalty": "repetition_penalty",
    "repeat_penalty": "repetition_penalty", "typical_p": "typical", "top_n_sigma": "top_n_sigma",
    "xtc_probability": "xtc_probability", "xtc_threshold": "xtc_threshold",
    "dry_multiplier": "dry_multiplier", "dry_base": "dry_base", "tfs_z": "tail_free", "top_a": "top_a",
    "repeat_last_n": "repetition_range", "dry_allowed_length": "dry_allowed_length",
    "mirostat_tau": "mirostat_tau", "mirostat_eta": "mirostat_eta", "dry_range": "dry_range",
    "repetition_decay": "repetition_decay", "smoothing_factor": "smoothing_factor", "skew": "skew",
    "min_temp": "min_temperature", "max_temp": "max_temperature", "temp_exponent": "temperature_exponent",
}  # fmt: skip
"""Parameters that are a number: the field of `SamplerSettings` of each."""


def sampler(fields: Fields, defaults: Mapping[str, float], choice: int = 0) -> SamplerSettings:
    """How a choice is sampled: each has the seed after that of the one before. Raises `ApiError`."""
    kinds = {field.name: field for field in dataclasses.fields(SamplerSettings)}
    values: dict[str, Any] = dict(defaults)
    for name, setting in _NUMBERS.items():
        info = setting_info(kinds[setting])
        assert info.low is not None
        assert info.high is not None
        if isinstance(kinds[setting].default, int):
            value: float | None = fields.whole(name, int(info.low), int(info.high))
        else:
            value = fields.number(name, info.low, info.high)
        if value is not None:
            values[setting] = value
    if spread := fields.number("dynatemp_range", 0, _HOTTEST):  # llama.cpp's and KoboldCpp's
        middle = values.get("temperature", _NEUTRAL.temperature)
        values |= {"min_temperature": max(0.0, middle - spread), "max_temperature": middle + spread}
    mirostat = fields.whole("mirostat", 0, 2)
    if mirostat == 1:
        raise fields.wrong("mirostat", "0 or 2, the version that is supported,")
    values["mirostat"] = bool(mirostat)
    if fields.flag("temperature_last"):
        values["order"] = TEMPERATURE_LAST
    if fields.get("dry_sequence_breakers") is not None:
        texts = fields.texts("dry_sequence_breakers", MOST_STOPS)
        values["dry_breakers"] = tuple(_escaped(text) for text in texts)
    top_k = fields.whole("top_k", -1, LONGEST)
    if top_k is not None:
        values["top_k"] = max(0, top_k)  # -1 is vLLM's word for all
    name = "seed" if fields.get("seed") is not None else "random_seed"  # Mistral's word
    seed = fields.whole(name, -(1 << 63), (1 << 63) - 1)
    if seed is not None and seed != -1:  # -1 is llama.cpp's word for a random one
        values["seed"] = (seed + choice) % (1 << 63)
    return dataclasses.replace(_NEUTRAL, **values)


def _escaped(text: str) -> str:
    """A breaker of DRY as the setting has it, which knows escapes."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def guidance(fields: Fields) -> GuidanceSettings:
    """Classifier-free guidance: `cfg_scale`, and as `negative_prompt` the system prompt of a chat, or the
    text of a completion, that the reply is pushed away from.
    """
    info = setting_info({field.name: field for field in dataclasses.fields(GuidanceSettings)}["cfg_scale"])
    assert info.low is not None
    assert info.high is not None
    scale = fields.number("cfg_scale", info.low, info.high)
    return GuidanceSettings(fields.text("negative_prompt"), 1.0 if scale is None else scale)


def speculation(fields: Fields) -> SpeculationSettings:
    """Whether repeats in the text are drafted: TabbyAPI's `speculative_ngram`, the webui's
    `prompt_lookup_num_tokens`.
    """
    count = fields.whole("prompt_lookup_num_tokens", 0, LONGEST)
    return SpeculationSettings("ngram" if fields.flag("speculative_ngram") or count else "none")


def most_tokens(fields: Fields, name: str, least: int = 1) -> int | None:
    """How many tokens a reply may have; None if that is not said. 0 is no limit, which some clients write
    as -1.
    """
    return 0 if fields.get(name) == -1 else fields.count(name, least)


def stops(
    fields: Fields, most_tokens: int | None, name: str = "stop", when_full: str = "stop"
) -> StopSettings:
    """When a reply ends; `most_tokens` is None for no limit. The stop strings are the field `name`. With
    `when_full` "stop" a prompt that is too long is refused.
    """
    least = fields.whole("min_tokens", 0, LONGEST) or 0
    if fields.flag("ignore_eos"):
        least = LONGEST
    return StopSettings(
        max_tokens=most_tokens or 0,
        min_tokens=least,
        stop_strings=fields.texts(name, MOST_STOPS),
        stop_token_ids=fields.ids("stop_token_ids"),
        time_limit=(fields.number("t_max_predict_ms", 0, 86400e3) or 0.0) / 1e3,
        keep_stop=fields.flag("include_stop_str_in_output"),
        when_full=when_full,
    )


def constraint(fields: Fields, requested: Fields | None) -> ConstraintSettings:
    """What a reply must look like, by the format that is `requested`, what it must not contain, which tokens
    are allowed and their bias, and whether the prompt's last token is sampled again (`token_healing`).

    Raises `ApiError`.
    """
    format, pattern = format_of(fields, requested)
    return ConstraintSettings(
        format=format,
        pattern=pattern,
        banned_strings=fields.texts("banned_strings", MOST_BANNED),
        logit_bias=_bias(fields),
        allowed_tokens=fields.ids("allowed_tokens"),
        banned_tokens=fields.ids("banned_tokens"),
        heal=fields.flag("token_healing"),
    )


def _bias(fields: Fields) -> tuple[str, ...]:
    values = fields.get("logit_bias")
    if isinstance(values, list):  # llama.cpp's form: pairs, where false is never
        if not all(isinstance(pair, list) and len(pair) == 2 and is_ids(pair[:1]) for pair in values):
            raise fields.wrong("logit_bias", "an object of token ids and numbers, or a list of such pairs")
        values = {str(id): -1000 if value is False else value for id, value in values}
        fields = Fields({"logit_bias": values}, fields.place("").removesuffix("."))
    bias = fields.part("logit_bias")
    if bias is None:
        return ()
    if len(values) > 4096:
        raise bad_request("logit_bias has more than 4096 tokens.", "logit_bias")
    lines = []
    for token in values:
        if not (token.isascii() and token.isdigit()):
            raise fields.wrong("logit_bias", "an object of token ids and numbers")
        lines.append(f"{token} = {bias.number(token, -1000, 1000) or 0.0!r}")
    return tuple(lines)


def template_variables(fields: Fields) -> str:
    """Further names for the chat template, as JSON: those of `chat_template_kwargs`, and vLLM's `documents`
    for templates that answer from documents.
    """
    found: dict[str, Any] = {}
    if fields.get("documents") is not None:
        fields.parts("documents")
        found["documents"] = fields.get("documents")
    if fields.part("chat_template_kwargs") is not None:
        found |= fields.get("chat_template_kwargs")
    return json.dumps(found, ensure_ascii=False) if found else ""


_EFFORTS = {"none": OFF, **{effort: effort for effort in EFFORTS}}
"""How much a model shall think, in OpenAI's and Anthropic's words: the level of `ThinkingSettings`."""


def thinking(fields: Fields | None, name: str, switch: bool | None = None) -> ThinkingSettings:
    """How much the model thinks: by the effort in a field and by `switch`, None for the model's own way.

    Raises `ApiError`.
    """
    effort = "" if fields is None else fields.text(name)
    if fields is not None and effort and effort not in _EFFORTS:
        raise fields.wrong(name, "one of " + ", ".join(_EFFORTS))
    if switch is False:
        return ThinkingSettings(OFF)
    return ThinkingSettings(_EFFORTS[effort] if effort else AUTO if switch is None else ON)


def chat_thinking(fields: Fields) -> ThinkingSettings:
    """How much the model thinks, of a chat request: `reasoning_effort` as OpenAI has it, or `reasoning` with
    `effort` or `enabled` as OpenRouter does. Raises `ApiError`.
    """
    reasoning = fields.part("reasoning")
    if reasoning is None or fields.text("reasoning_effort"):
        return thinking(fields, "reasoning_effort")
    enabled = None if reasoning.get("enabled") is None else reasoning.flag("enabled")
    return thinking(reasoning, "effort", enabled)


def logprobs(fields: Fields) -> int | None:
    """How many alternatives each token is reported with; None if log-probabilities are not requested."""
    count = fields.whole("top_logprobs", 0, MOST_LOGPROBS)
    if fields.flag("logprobs"):
        return count or 0
    if count:
        raise bad_request("top_logprobs needs logprobs: true.", "top_logprobs")
    return None


def output(alternatives: int | None) -> OutputSettings:
    """What is reported of each token."""
    return OutputSettings(alternatives=alternatives or 0)


def checked_choices(fields: Fields, most: int) -> int:
    """How many choices are requested."""
    count = fields.whole("n", 1, most) or 1
    best = fields.whole("best_of", 1, most)
    if best is not None and best != count:
        raise bad_request("best_of other than n is not supported; remove it.", "best_of")
    return count
