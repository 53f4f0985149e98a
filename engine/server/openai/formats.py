"""The format that a request wants for its reply: by OpenAI's `response_format`, or by vLLM's
`structured_outputs` and its older names. Source: vLLM's documentation, "Structured outputs".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engine.server.failure import bad_request
from engine.server.fields import Fields

__all__ = ["format_of", "is_choice"]

_OLD = {
    "guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar",
    "regex": "regex", "ebnf": "grammar", "regex_pattern": "regex", "json_schema": "json",
}  # fmt: skip
"""Fields of a request: that of `structured_outputs` of each. The last four are SGLang's, TabbyAPI's and
llama.cpp's.
"""
_KINDS = ("json", "json_object", "regex", "choice", "grammar")
_TGI = ("json", "regex")
"""Types of `response_format` of Hugging Face's Text Generation Inference, with a `value`."""
_OBJECT = '{"type": "object"}'
"""The schema of any object: what programs that ask for JSON read the reply as."""
Format = tuple[str, str]
"""`ConstraintSettings.format` and its `pattern`."""


def format_of(fields: Fields, requested: Fields | None) -> Format:
    """The format of a request, whose `response_format`, or what takes its place, is `requested`.

    Raises `ApiError`, also for two formats at once. The same one twice is one: clients of vLLM's, such as
    guidance, send it under its old name, too.
    """
    found = {"response_format": _response_format(requested)} if requested is not None else {}
    if (structured := fields.part("structured_outputs")) is not None:
        for kind in _KINDS:
            if structured.get(kind) not in (None, False):
                found[structured.place(kind)] = _structured(structured, kind, kind)
    for name, kind in _OLD.items():
        if fields.get(name) not in (None, ""):
            found[name] = _structured(fields, name, kind)
    if fields.text("grammar"):  # llama.cpp's and KoboldCpp's, GBNF or Lark
        found["grammar"] = "grammar", fields.text("grammar")
    formats = {name: one for name, one in found.items() if one[0] != "none"}
    if len({*formats.values()}) > 1:
        raise bad_request(f"{' and '.join(formats)} exclude each other; send one of them.", [*formats][-1])
    return next(iter(formats.values()), ("none", ""))


def _response_format(requested: Fields) -> Format:
    kind = requested.text("type")
    if kind == "text":
        return "none", ""
    if kind == "json_object":  # llama.cpp's server and others take a schema; huggingface_hub sends a value
        name = "schema" if requested.get("value") is None else "value"
        return "json_schema", _schema(requested, name, _OBJECT)
    if kind in _TGI and requested.get("value") is not None:
        return _structured(requested, "value", kind)
    if kind == "grammar" and requested.get("grammar") is not None:  # Fireworks' form, GBNF
        return _structured(requested, "grammar", kind)
    if kind != "json_schema":
        raise requested.wrong("type", '"text", "json_object" or "json_schema"')
    return "json_schema", _schema(requested.part("json_schema") or requested, "schema")


def _structured(fields: Fields, name: str, kind: str) -> Format:
    value = fields.get(name)
    if kind == "json_object":
        return ("json_schema", _OBJECT) if fields.flag(name) else ("none", "")
    if kind == "json":
        if isinstance(value, str):
            return "json_schema", value
        return "json_schema", _schema(fields, name)
    if kind == "choice":
        texts = fields.texts(name, 1000)
        if not texts or not all(map(is_choice, texts)):
            raise fields.wrong(name, "a list of one-line texts without spaces at their ends")
        return "choices", "\n".join(texts)
    if not fields.text(name):
        raise fields.wrong(name, "a text")
    return kind, fields.text(name)


def is_choice(text: str) -> bool:
    """Whether a text can be a choice: a reply's choices are written one a line, without spaces around."""
    return text == text.strip() and text.splitlines() == [text]


def _schema(fields: Fields, name: str, default: str | None = None) -> str:
    """A JSON schema as its text."""
    schema: Mapping[str, Any] | bool | None = fields.get(name)
    if schema is None and default is not None:
        return default
    if not isinstance(schema, dict | bool):
        raise fields.wrong(name, "a JSON schema")
    return json.dumps(schema, ensure_ascii=False)
