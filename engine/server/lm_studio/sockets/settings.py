"""The settings of a prediction and its messages, under the names of OpenAI's API, which the chats of this
server are read by.

Settings come in layers of (key, value) pairs, of which later layers count. A setting that can be switched off
is `{"checked": true, "value": ...}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.lazy_dataclass import dataclass
from engine.server.failure import ApiError, bad_request
from engine.server.fields import Fields
from engine.server.kept_files import KeptFiles

_PREFIX = "llm.prediction."
_TEXT_LAYER = "completeModeFormatting"
"""The layer by which a client asks for the text that follows a prompt, instead of a reply in a chat."""
_SAME = {"temperature": "temperature", "stopStrings": "stop", "topKSampling": "top_k"}
_CHECKED: Mapping[str, tuple[str, Any]] = {
    "maxPredictedTokens": ("max_tokens", -1), "topPSampling": ("top_p", 1.0), "minPSampling": ("min_p", 0.0),
    "repeatPenalty": ("repetition_penalty", 1.0), "seed": ("seed", None), "logProbs": ("top_logprobs", None),
    "llama.frequencyPenalty": ("frequency_penalty", 0.0), "llama.presencePenalty": ("presence_penalty", 0.0),
    "llama.xtcProbability": ("xtc_probability", 0.0), "llama.xtcThreshold": ("xtc_threshold", None),
    "llama.tailFreeSampling": ("tfs_z", 1.0), "llama.locallyTypicalSampling": ("typical_p", 1.0),
}  # fmt: skip
"""Settings that can be switched off: our name of each, and the value that does nothing."""
_NOTHING: Mapping[str, Sequence[Any]] = {
    "toolCallStopStrings": ([],), "contextPrefill": ([],), "speculativeDecoding.draftModel": ("",),
}  # fmt: skip
"""Settings that are not supported, with the values of them that ask for nothing."""
_IGNORED = (
    "llama.cpuThreads", "reasoning.parsing", "toolNaming", "vision.", "speculativeDecoding.min",
    "speculativeDecoding.num", "speculativeDecoding.max",
)  # fmt: skip
"""Beginnings of settings that change how a reply is made or shown, not what it is."""
_OVERFLOW = {"stopAtLimit": "stop", "truncateMiddle": "drop_oldest", "rollingWindow": "drop_oldest"}


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a prediction is made with: `fields` of a chat or a text completion in OpenAI's form, the latter if
    `is_text`. `when_full` as in `StopSettings`; `given` are the settings as they came.
    """

    fields: Fields
    is_text: bool
    when_full: str
    given: Sequence[Mapping[str, Any]]


def prediction_of(fields: Fields, files: KeptFiles) -> Prediction:
    """The settings and the messages of a request, which may name pictures in `files`. Raises `ApiError`."""
    if fields.text("fuzzyPresetIdentifier"):
        raise bad_request(
            "Presets are not supported; send their settings with the request.", "fuzzyPresetIdentifier"
        )
    settings, is_text = _merged(fields.part("predictionConfigStack") or Fields({}))
    values, sent, when_full, system = {}, {}, "stop", ""
    for key, value in settings.items():
        name = key.removeprefix(_PREFIX)
        if name == "contextOverflowPolicy":
            if value not in _OVERFLOW:
                raise bad_request(f"{key} must be one of {', '.join(_OVERFLOW)}.", key)
            when_full = _OVERFLOW[value]
        elif name == "systemPrompt" and isinstance(value, str):
            system = value
        else:
            for ours, ours_value in _ours(key, name, value).items():
                values[ours], sent[ours] = ours_value, key
    if values.get("top_logprobs") is not None:
        values |= {"logprobs": values["top_logprobs"]} if is_text else {"logprobs": True}
    raw = fields.get("rawPrompt")
    history = [] if raw is not None else messages_of(fields, files, system)
    if raw is not None or is_text:
        prompt = fields.text("rawPrompt") if raw is not None else "".join(_text(one) for one in history)
        content: dict[str, Any] = {"max_tokens": -1, "prompt": prompt}
    else:
        content = {"messages": history}
    given = [{"key": key, "value": value} for key, value in settings.items()]
    return Prediction(Fields({**content, **values}, sent=sent), "prompt" in content, when_full, given)


def _merged(stack: Fields) -> tuple[dict[str, Any], bool]:
    """The settings of all layers, and whether one of these asks for a text."""
    found: dict[str, Any] = {}
    is_text = False
    for layer in stack.parts("layers") if stack.get("layers") is not None else ():
        if layer.text("layerName") == _TEXT_LAYER:
            is_text = True
            continue
        config = layer.part("config") or Fields({})
        for field in config.parts("fields") if config.get("fields") is not None else ():
            if field.get("value") is not None:
                found[field.text("key")] = field.get("value")
    return found, is_text


def _ours(key: str, name: str, value: Any) -> Mapping[str, Any]:
    """What a setting is in OpenAI's form. Raises `ApiError`."""
    fields = Fields({key: value})
    if name in _SAME:
        return {_SAME[name]: value}
    if name in _CHECKED:
        ours, nothing = _CHECKED[name]
        switch = fields.part(key) or Fields({})
        is_on = switch.flag("checked") and switch.get("value") is not False  # Python's SDK sends false in it
        return {ours: switch.get("value") if is_on else nothing}
    if name == "structured":
        return _structured(fields.part(key) or Fields({}))
    if name == "tools":
        return _tools(fields.part(key) or Fields({}))
    if name == "toolChoice":
        return {"tool_choice": (fields.part(key) or Fields({})).text("mode", "auto")}
    if name == "reasoning.enableThinking":
        return {"reasoning": {"enabled": fields.flag(key)}}
    if name == "llama.logitBias":
        return {"logit_bias": value} if value else {}
    mirostat = fields.part(key) if name == "llama.mirostatSampling" else None
    if mirostat is not None:
        named = {"version": "mirostat", "learningRate": "mirostat_eta", "targetEntropy": "mirostat_tau"}
        return {named[old]: kept for old, kept in mirostat.items() if old in named}
    switched_off = isinstance(value, dict) and value.get("checked") is False
    if switched_off or value in _NOTHING.get(name, ()) or name.startswith(_IGNORED):
        return {}
    raise bad_request(f"{key[:100]} is not supported by this server; leave it out.", key)


def _structured(setting: Fields) -> Mapping[str, Any]:
    kind = setting.text("type", "none")
    if kind == "none":
        return {}
    if kind == "gbnf":
        return {"grammar": setting.text("gbnfGrammar")}
    if kind != "json":
        raise setting.wrong("type", '"none", "json" or "gbnf"')
    if setting.get("jsonSchema") is None:
        return {"response_format": {"type": "json_object"}}
    schema = {"name": "reply", "schema": setting.get("jsonSchema")}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _tools(setting: Fields) -> Mapping[str, Any]:
    if not setting.get("tools"):
        return {}
    return {"tools": setting.get("tools")} | ({"tool_choice": "required"} if setting.flag("force") else {})


def messages_of(fields: Fields, files: KeptFiles, system: str = "") -> list[dict[str, Any]]:
    """The messages of `history` in OpenAI's form, after a system prompt unless they have one. Raises
    `ApiError`.
    """
    history = fields.part("history")
    if history is None:
        raise fields.wrong("history", "an object with messages")
    found = [one for message in history.parts("messages") for one in _messages(message, files)]
    if system and (not found or found[0]["role"] != "system"):
        found.insert(0, {"role": "system", "content": system})
    return found


def _messages(message: Fields, files: KeptFiles) -> list[dict[str, Any]]:
    """A message; one of tools has one message for each result."""
    role, own, calls, results = message.text("role"), list[Any](), list[Any](), list[Any]()
    for part in message.parts("content"):
        kind = part.text("type")
        if kind == "text":
            own.append({"type": "text", "text": part.text("text")})
        elif kind == "file" and part.text("fileType") == "image":
            own.append({"type": "image_url", "image_url": _address(part, files)})
        elif kind == "toolCallRequest":
            calls.append(_call(part))
        elif kind == "toolCallResult":
            names = {"tool_call_id": part.text("toolCallId"), "name": part.text("name")}
            results.append({"role": "tool", "content": part.text("content"), **names})
        else:
            raise _unreadable(part, kind)
    if role == "tool":
        return results
    is_text = all(part["type"] == "text" for part in own)
    content = "".join(part["text"] for part in own) if is_text else own
    found: dict[str, Any] = {"role": role, "content": content}
    return [found | ({"tool_calls": calls} if calls else {})]


def _address(part: Fields, files: KeptFiles) -> str:
    """The data: address of a picture that was uploaded."""
    kept = files.get(part.text("identifier"))
    if kept is None:
        raise bad_request(
            f"The file {part.text('name')[:100]!r} is no longer kept by the server; upload it again.",
            part.place("identifier"),
        )
    return kept.address


def _call(part: Fields) -> dict[str, Any]:
    request = part.part("toolCallRequest") or Fields({}, part.place("toolCallRequest"))
    arguments = json.dumps(request.get("arguments") or {}, ensure_ascii=False)
    function = {"name": request.text("name"), "arguments": arguments}
    return {"id": request.text("id"), "type": "function", "function": function}


def _unreadable(part: Fields, kind: str) -> ApiError:
    what = "files" if kind == "file" else f"parts of the type {kind[:40]!r}"
    return bad_request(f"Models read text and pictures only; {what} cannot be sent.", part.place("type"))


def _text(message: Mapping[str, Any]) -> str:
    content = message["content"]
    if not isinstance(content, str):
        raise bad_request("A text cannot have pictures; send it as a chat.", "history")
    return content
