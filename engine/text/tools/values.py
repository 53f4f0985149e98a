"""Arguments that are written without quotes: which of them are strings, and what the others are."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any, Literal

from engine.core import Tool
from engine.text.tools.json_text import Malformed

__all__ = ["ArgumentKind", "argument_kind", "bare_value", "parameters_of", "python_arguments", "resolved"]

ArgumentKind = Literal["string", "other", "unknown"]

_NAMES = {
    "true": True,
    "false": False,
    "null": None,
    "none": None,
    "True": True,
    "False": False,
    "None": None,
}
_KEYWORDS = ("anyOf", "oneOf", "allOf")


def parameters_of(tool: Tool) -> dict[str, Any]:
    """The JSON schema of a tool's arguments, which always describes an object."""
    try:
        schema = json.loads(tool.parameters) if tool.parameters else {}
    except ValueError:
        schema = {}
    if not isinstance(schema, dict):
        schema = {}
    return {"type": "object", "properties": {}, **schema}


def resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema with its reference into the same document followed; an empty one for anything else."""
    for _ in range(16):
        if not isinstance(schema, Mapping):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        schema = root
        for part in reference[2:].split("/"):
            part = part.replace("~1", "/").replace("~0", "~")
            schema = schema.get(part) if isinstance(schema, Mapping) else None
    return {}


def argument_kind(schema: Any, root: Mapping[str, Any]) -> ArgumentKind:
    """Whether all values of a schema are strings, or none, or some."""
    found = _kinds(resolved(schema, root), root, 8)
    return "string" if found == {"string"} else "other" if found == {"other"} else "unknown"


def _kinds(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> set[str]:
    if "const" in schema:
        return _kinds_of([schema["const"]])
    if isinstance(schema.get("enum"), list):
        return _kinds_of(schema["enum"])
    declared = schema.get("type")
    if declared is not None:
        names = declared if isinstance(declared, list) else [declared]
        return {"string" if name == "string" else "other" for name in names}
    for keyword in _KEYWORDS:
        branches = schema.get(keyword)
        if isinstance(branches, list) and branches and depth:
            return set().union(*(_kinds(resolved(one, root), root, depth - 1) for one in branches))
    return {"string", "other"}


def _kinds_of(values: list[Any]) -> set[str]:
    return {"string" if isinstance(value, str) else "other" for value in values}


def bare_value(text: str, kind: ArgumentKind) -> str:
    """The JSON text of an argument that was written as `text`: as JSON, as a Python literal, or as it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            value = ast.literal_eval(text.strip())
            json.dumps(value, allow_nan=False)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            value = text
    if isinstance(value, str) or kind == "string":
        value = text if kind != "other" else value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(text, ensure_ascii=False)


def python_arguments(text: str) -> str:
    """The JSON text of the keyword arguments of a Python call, `text` with its parentheses.

    Raises `Malformed`.
    """
    try:
        call = ast.parse(f"f{text}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(not one.arg for one in call.keywords):
            raise Malformed
        return json.dumps(
            {str(one.arg): _literal(one.value) for one in call.keywords}, ensure_ascii=False, allow_nan=False
        )
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise Malformed from None


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Name) and node.id in _NAMES:
        return _NAMES[node.id]
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_literal(one) for one in node.elts]
    if isinstance(node, ast.Dict):
        return {
            str(ast.literal_eval(key)): _literal(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    return ast.literal_eval(node)
