"""Arguments that are written without quotes: which of them are strings, and what the others are."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping, Set
from typing import Any

from engine.core import Tool
from engine.json_value import json_value
from engine.text.tools.json_text import QUOTES, Malformed

__all__ = [
    "ANY_TYPE", "STRING", "argument_types", "bare_value", "empty_value", "keyword_of", "may_be_arguments",
    "parameters_of", "python_arguments", "resolved",
]  # fmt: skip

ANY_TYPE = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
STRING = frozenset({"string"})

_NAMES = {
    "true": True,
    "false": False,
    "null": None,
    "none": None,
    "True": True,
    "False": False,
    "None": None,
}
_SLASH = re.compile(r"((?<!\\)(?:\\\\)*)\\/")
_KEYWORDS = ("anyOf", "oneOf", "allOf")


def parameters_of(tool: Tool) -> dict[str, Any]:
    """The JSON schema of a tool's arguments, which always describes an object."""
    try:
        schema = json.loads(tool.parameters) if tool.parameters else {}
    except ValueError:
        schema = {}
    if not isinstance(schema, dict):
        schema = {}
    return {"type": "object", "properties": {}, **{k: v for k, v in schema.items() if v is not None}}


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


def argument_types(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """The types, in JSON's words, that the values of a schema may have."""
    return frozenset(_types(resolved(schema, root), root, 8, {}))


def _types(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth: int, known: dict[tuple[int, int], set[str]]
) -> set[str]:
    """`known` are those of schemas by identity and depth: branches may lead to one in very many ways."""
    if (id(schema), depth) in known:
        return known[id(schema), depth]
    if "const" in schema:
        return {_type_of(schema["const"])}
    if isinstance(schema.get("enum"), list):
        return {_type_of(value) for value in schema["enum"]}
    declared, found = schema.get("type"), set(ANY_TYPE)
    if declared is not None:
        found = set(map(str, declared)) if isinstance(declared, list) else {str(declared)}
    for keyword in _KEYWORDS:
        branches = _branches(schema, keyword)
        if branches and depth:
            each = [_types(resolved(one, root), root, depth - 1, known) for one in branches]
            for types in each if keyword == "allOf" else [set().union(*each)]:
                found = {one for one in found | types if _has(found, one) and _has(types, one)}
    known[id(schema), depth] = found
    return found


def keyword_of(schema: Any, root: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
    """What a schema, or the first of its branches that has it, says under a keyword; empty if none does."""
    stack, seen = [resolved(schema, root)], set[int]()
    while stack:
        found = stack.pop()
        if found.get(keyword) and isinstance(found[keyword], Mapping):
            return dict(found[keyword])
        if id(found) not in seen:
            seen.add(id(found))
            branches = [one for each in _KEYWORDS for one in _branches(found, each)]
            stack += [resolved(one, root) for one in reversed(branches)]
    return {}


def _branches(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    found = schema.get(keyword)
    return found if isinstance(found, list) else []


def _has(types: Set[str], one: str) -> bool:
    return one in types or (one == "integer" and "number" in types)


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    kinds = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def bare_value(text: str, types: frozenset[str]) -> str:
    """The JSON text of an argument of these types, written as `text`: as JSON, as a Python literal, or as it
    is.
    """
    value = text if types == STRING else _literal_or_text(text)
    if "string" in types and (isinstance(value, str) or not _fits(value, types)):
        value = text
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(text, ensure_ascii=False)


def empty_value(types: frozenset[str]) -> str:
    """The JSON text of an argument of these types that is written as nothing."""
    values = {"string": '""', "object": "{}", "array": "[]", "null": "null"}
    return next((text for kind, text in values.items() if kind in types), '""')


def _fits(value: Any, types: frozenset[str]) -> bool:
    kind = _type_of(value)
    whole = isinstance(value, float) and value.is_integer()
    return kind in types or (kind == "integer" and "number" in types) or (whole and "integer" in types)


def _literal_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        value = ast.literal_eval(_parsed(text.strip()))
        json.dumps(value, allow_nan=False)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return value


def python_arguments(text: str, schema: Mapping[str, Any], *, unquoted: bool = False) -> str:
    """The JSON text of the arguments of a Python call, `text` with its parentheses. Those without a name are
    the first properties of the `schema`, in its order, if their values may be of these types. With
    `unquoted`, strings may stand there as they are.

    Raises `Malformed`.
    """
    if unquoted and not QUOTES.intersection(text) and text[1:-1].strip():
        return _unquoted_arguments(text[1:-1], schema)
    text = _SLASH.sub(r"\1/", text)  # JSON's escape of it, which Python does not know
    try:
        call = _parsed(f"f{text}").body
        if not isinstance(call, ast.Call) or any(not one.arg for one in call.keywords):
            raise Malformed
        given = _by_place([_literal(one) for one in call.args], schema)
        if any(one.arg in given for one in call.keywords):
            raise Malformed
        known = keyword_of(schema, schema, "properties")
        for one in call.keywords:
            name = str(one.arg)
            types = argument_types(known[name], schema) if name in known else ANY_TYPE
            given[name] = _typed(one.value, types, f"f{text}")
        written = json.dumps(given, ensure_ascii=False, allow_nan=False)
        # pairs of surrogates, which JSON's escapes have, become characters
        return written.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise Malformed from None


def _unquoted_arguments(text: str, schema: Mapping[str, Any]) -> str:
    """The JSON text of arguments whose strings have no quotes: each ends at a comma before the name of
    another property of the `schema`. Raises `Malformed`.
    """
    known = keyword_of(schema, schema, "properties")
    names = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
    before, *parts = re.split(rf"(?:^|,)\s*({names})\s*=", text) if known else [text]
    if before.strip():
        raise Malformed
    given = [
        f"{json.dumps(name)}: {bare_value(value.strip(), argument_types(known[name], schema))}"
        for name, value in zip(parts[::2], parts[1::2], strict=True)
    ]
    return "{" + ", ".join(given) + "}"


def _by_place(values: list[Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Values under the names of the first properties, or of one dictionary with such names those in it.

    Raises `Malformed`.
    """
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    if len(values) == 1 and isinstance(values[0], dict) and values[0].keys() <= known.keys():
        return values[0]
    if len(values) > len(known):
        raise Malformed
    given = dict(zip(known, values, strict=False))
    if not all(_fits(value, argument_types(known[name], schema)) for name, value in given.items()):
        raise Malformed
    return given


def may_be_arguments(arguments: str, schema: Mapping[str, Any]) -> bool:
    """Whether the JSON text of an object has properties of the schema only, and all that are required."""
    given = json_value(arguments)
    properties, required = schema.get("properties"), schema.get("required")
    known = properties if isinstance(properties, Mapping) else {}
    needed = required if isinstance(required, list) else []
    return isinstance(given, dict) and known.keys() >= given.keys() and all(one in given for one in needed)


def _parsed(source: str) -> ast.Expression:
    """A Python expression; escapes that Python does not know are two characters, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source, mode="eval")


def _typed(node: ast.expr, types: frozenset[str], source: str) -> Any:
    """The value of an argument of these types, of which a text in quotes may be any (Llama 4's template puts
    quotes around all values), and a number may be a text.
    """
    value = _literal(node)
    if isinstance(value, str) and "string" not in types:
        return json.loads(bare_value(value, types))
    if types == STRING and type(value) in (int, float):
        return ast.get_source_segment(source, node) or value
    return value


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
