"""Strings that stand in a call as they are, without quotes: the expression of all that a schema allows.

Expressions are bodies of terminals in llguidance's Lark dialect, where `&` and `|` join them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.constraint.calls.lark import quoted
from engine.errors import BadSetting
from engine.text.tools.values import resolved
from engine.words import _

__all__ = ["FREE", "NoTexts", "texts_of"]

FREE = "/(?s:.*)/"
"""The expression of any text."""
_ANY = FREE.strip("/")
_DEEPEST = 16
_OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9\-]{0,61}[A-Za-z0-9])?"
_GROUP = "[0-9a-fA-F]{1,4}"
_CLOCK = r"T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
_DAYS = r"([0-9]+D|[0-9]+M([0-9]+D)?|[0-9]+Y([0-9]+M([0-9]+D)?)?)"


def _groups(most: int) -> str:
    """Up to this many groups of an IPv6 address."""
    return f"(({_GROUP}:){{0,{most - 1}}}{_GROUP})?" if most else ""


_FORMATS = {
    "date": r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
    "time": r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+\-][0-2][0-9]:[0-5][0-9])",
    "duration": f"P({_DAYS}({_CLOCK})?|{_CLOCK}|[0-9]+W)",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "email": r"[A-Za-z0-9._%+\-]{1,64}@[A-Za-z0-9\-]{1,63}(\.[A-Za-z0-9\-]{1,63}){1,4}",
    "hostname": rf"{_LABEL}(\.{_LABEL})*",
    "ipv4": rf"{_OCTET}(\.{_OCTET}){{3}}",
    "ipv6": "|".join(
        [f"({_GROUP}:){{7}}{_GROUP}"]
        + [f"{f'({_GROUP}:){{{n - 1}}}{_GROUP}' if n else ''}::{_groups(7 - n)}" for n in range(8)]
    ),
    "uri": r"[a-z][a-z0-9+.\-]{0,20}:[^\s<>\"]{1,2000}",
}
_FORMATS["date-time"] = f"{_FORMATS['date']}T{_FORMATS['time']}"


class NoTexts(Exception):
    """A schema allows no string."""


def texts_of(schema: Any, root: Mapping[str, Any], *, lenient: bool, depth: int = _DEEPEST) -> str:
    """The expression of the strings that a schema in the document `root` allows.

    Raises `NoTexts`, and `BadSetting` for a pattern that cannot be enforced, unless `lenient`.
    """
    if schema is False:
        raise NoTexts
    found, parts = resolved(schema, root), list[str]()
    if not depth or not found:
        return FREE
    types = found.get("type", "string")
    if "string" not in (types if isinstance(types, list) else [types]):
        raise NoTexts
    if "const" in found or isinstance(found.get("enum"), list):
        values = [found["const"]] if "const" in found else found["enum"]
        parts.append(_either([quoted(value) for value in values if isinstance(value, str)]))
    if isinstance(pattern := found.get("pattern"), str):
        parts.append(_whole(pattern, lenient=lenient))
    if isinstance(form := found.get("format"), str) and form in _FORMATS:
        parts.append(f"/{_FORMATS[form]}/")
    least, most = found.get("minLength", 0), found.get("maxLength")
    if least or most is not None:
        parts.append(f"/(?s:.{{{least},{'' if most is None else most}}})/")
    beside = {key: value for key, value in schema.items() if key != "$ref"} if "$ref" in schema else {}
    for one in (*_list(found.get("allOf")), *([beside] if beside else ())):
        parts.append(texts_of(one, root, lenient=lenient, depth=depth - 1))
    for keyword in ("anyOf", "oneOf"):
        if _list(found.get(keyword)):
            parts.append(_either(list(_branches(found[keyword], root, lenient, depth - 1))))
    parts = [part for part in dict.fromkeys(parts) if part != FREE]
    return FREE if not parts else parts[0] if len(parts) == 1 else f"( {' & '.join(parts)} )"


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _branches(schemas: Sequence[Any], root: Mapping[str, Any], lenient: bool, depth: int) -> Iterator[str]:
    for one in schemas:
        try:
            yield texts_of(one, root, lenient=lenient, depth=depth)
        except NoTexts:
            continue


def _either(expressions: Sequence[str]) -> str:
    if not expressions:
        raise NoTexts
    if FREE in expressions:
        return FREE
    return expressions[0] if len(expressions) == 1 else f"( {' | '.join(dict.fromkeys(expressions))} )"


# -- patterns


def _whole(pattern: str, *, lenient: bool) -> str:
    """The expression that a whole text matches if `pattern` is found in it."""
    from llguidance import regex_to_lark

    try:
        flags, ways = _ways(pattern)
        return f"/({'|'.join(_found(regex_to_lark(flags + way, 'd'), *edges) for way, *edges in ways)})/"
    except ValueError:
        if lenient:
            return FREE
        raise BadSetting(
            _(
                "The pattern {pattern!r} cannot be enforced where a model writes strings without "
                "quotes; leave it out, or write ^ and $ only at its ends.",
                pattern=pattern[:60],
            )
        ) from None


def _found(core: str, begins: bool, ends: bool) -> str:
    inner = f"({core})" if core else ""
    return ("" if begins else _ANY) + inner + ("" if ends else _ANY)


def _ways(pattern: str) -> tuple[str, list[tuple[str, bool, bool]]]:
    """The flags of an expression, and its alternatives: each without the ^ and $ at its ends, and whether it
    had them. Raises ValueError where one stands elsewhere.
    """
    if re.search(r"(?<!\\)(?:\\\\)*\\[bB1-9AzZ]|\(\?<?[=!]", pattern):
        raise ValueError(pattern)
    pattern = re.sub(r"\(\?P?<[A-Za-z_]\w*>", "(", pattern)
    flags = match[0] if (match := re.match(r"\(\?[isu]+\)", pattern)) else ""
    return flags, [way for one in _alternatives(_parts(pattern[len(flags) :])) for way in _edges(one)]


def _edges(parts: list[str]) -> list[tuple[str, bool, bool]]:
    begins, ends = parts[:1] == ["^"], parts[-1:] == ["$"]
    core = parts[begins : len(parts) - ends]
    if len(core) == 1 and re.match(r"\((?:\?:|(?!\?))", core[0]) and core[0].endswith(")"):
        inner = _parts(core[0][3 if core[0].startswith("(?:") else 1 : -1])
        ways = [way for one in _alternatives(inner) for way in _edges(one)]
        return [(way, begins or before, ends or after) for way, before, after in ways]
    if any(_anchored(part) for part in core):
        raise ValueError("an anchor inside")
    return [("".join(core), begins, ends)]


def _anchored(part: str) -> bool:
    """Whether an anchor stands in a part of an expression, not as a character."""
    if part in "^$":
        return True
    if not part.startswith("("):
        return False
    inner = re.sub(r"^\((\?[a-z]*:)?", "", part.removesuffix(")"))
    return any(_anchored(one) for one in _parts(inner))


def _alternatives(parts: Sequence[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for part in parts:
        if part == "|":
            found.append([])
        else:
            found[-1].append(part)
    return found


def _parts(pattern: str) -> list[str]:
    """An expression cut into characters, escapes, classes and groups."""
    found, at = list[str](), 0
    while at < len(pattern):
        begun = at
        at = _class_end(pattern, at) if pattern[at] == "[" else at + 1 + (pattern[at] == "\\")
        if pattern[begun] == "(":
            depth = 1
            while depth and at < len(pattern):
                depth += (pattern[at] == "(") - (pattern[at] == ")")
                at = _class_end(pattern, at) if pattern[at] == "[" else at + 1 + (pattern[at] == "\\")
        found.append(pattern[begun:at])
    return found


def _class_end(pattern: str, at: int) -> int:
    """Where a class of characters that begins there ends; classes may hold others."""
    depth = 0
    while at < len(pattern):
        if pattern[at] == "[":
            depth += 1
            at += 1 + (pattern[at + 1 : at + 2] == "^")
            at += pattern[at : at + 1] == "]"  # as the first character it is one
            continue
        depth -= pattern[at] == "]"
        at += 1 + (pattern[at] == "\\")
        if not depth:
            break
    return at
