"""Calls of tools as text, in any of the forms."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from engine.text.template.channels import ID
from engine.text.tools.form import CallForm

__all__ = ["written_calls"]


def written_calls(form: CallForm, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Calls, (name, arguments) each, as a model writes them."""
    one = [
        f"{form.call[0]}{_call(form, name, given, place)}{form.call[1]}".replace(ID, f"{place:09}")
        for place, (name, given) in enumerate(calls)
    ]
    return form.section[0] + form.between.join(one) + form.section[1]


def _call(form: CallForm, name: str, given: Mapping[str, Any], place: int) -> str:
    given = _in_order(given) if form.in_order else given
    if form.kind == "object":
        return _object(form, name, given, place)
    if form.kind == "named":
        before, after = form.after_name
        return f"{name}{before}{place if after else ''}{after}{_json(given)}"
    if form.kind == "tagged":
        before, after = form.after_name
        return f"{name}{before}{place + 1 if after else ''}{after}" + "".join(
            _parameter(form, key, given[key]) for key in given
        )
    if form.kind == "elements":
        before, after = form.after_name
        return f"{name}{before}{place + 1 if after else ''}{after}{_elements(form, given)}"
    if form.kind == "braces":
        return name + _braces(given, form.quote)
    return f"{name}({', '.join(f'{key}={_python(value)}' for key, value in given.items())})"


def _in_order(value: Any) -> Any:
    """A value whose members, at any depth, stand in the order of their names."""
    if isinstance(value, Mapping):
        return {name: _in_order(value[name]) for name in sorted(value, key=str.lower)}
    return list(map(_in_order, value)) if isinstance(value, (list, tuple)) else value


def _object(form: CallForm, name: str, given: Mapping[str, Any], place: int) -> str:
    if not form.name_key:
        return f"{{{_json(name)}: {_json(given)}}}"
    more = f"{place:09}"
    members = {
        **dict.fromkeys(form.before, more),
        form.name_key: name,
        form.arguments_key: given,
        **dict.fromkeys(form.after, more),
    }
    return _json(members)


def _parameter(form: CallForm, key: str, value: Any) -> str:
    begins, middle, after = form.parameter
    if isinstance(value, str) and not form.quoted:
        if form.wrapped[0] and re.search(r"[<&\n]", value):
            value = form.wrapped[0] + value + form.wrapped[1]
        return f"{begins}{key}{middle}{value}{after}"
    return f"{begins}{key}{form.json_value or middle}{_json(value)}{after}"


def _elements(form: CallForm, value: Any) -> str:
    if isinstance(value, Mapping):
        parts = list(value.items())
    elif isinstance(value, (list, tuple)):
        parts = [(form.item, part) for part in value]
    else:
        return value if isinstance(value, str) else _json(value)
    begins, middle, ends = form.parameter
    return "".join(f"{begins}{key}{middle}{_elements(form, part)}{ends}{key}{middle}" for key, part in parts)


def _braces(value: Any, quote: str) -> str:
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_braces(part, quote)}" for key, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_braces(part, quote) for part in value) + "]"
    return f"{quote}{value}{quote}" if isinstance(value, str) else _json(value)


def _python(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_json(key)}: {_python(part)}" for key, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_python, value)) + "]"
    return _json(value) if isinstance(value, str) else repr(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
