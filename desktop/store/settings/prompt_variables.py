"""Placeholders in a saved prompt: `{{topic}}`, `{{language=English}}` with what stands there unless the
user writes something else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["filled", "variables"]

_PLACE = re.compile(r"\{\{\s*(?P<name>[^{}=\n]+?)\s*(?:=(?P<value>[^{}]*))?\}\}")


def variables(text: str) -> dict[str, str]:
    """The names of the placeholders in their order, each with its default; the first default of a name
    counts.
    """
    found: dict[str, str] = {}
    for match in _PLACE.finditer(text):
        name, value = match["name"], (match["value"] or "").strip()
        found[name] = found.get(name) or value
    return found


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with `values` in the places; where there is none, the default, and where there is no
    default, nothing.
    """
    defaults = variables(text)
    return _PLACE.sub(lambda match: values.get(match["name"], "") or defaults[match["name"]], text)
