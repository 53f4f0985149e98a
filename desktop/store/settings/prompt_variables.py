"""Placeholders in a saved prompt: `{{topic}}`, or `{{language=English}}` with a default value; and the
present date in any prompt: `{{date}}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["filled", "is_date", "variables", "with_date"]

_PLACE = re.compile(r"\{\{\s*(?P<name>[^{}=\n]+?)\s*(?:=(?P<value>[^{}]*))?\}\}")
_DATES = ("date", "current_date")
"""The names that the date has here, in LibreChat and Jan, and in capitals in Open WebUI."""


def is_date(name: str) -> bool:
    """Whether a placeholder of this name is the present date."""
    return name.casefold() in _DATES


def with_date(text: str, date: str) -> str:
    """The text with `date` for its placeholders of the present date; other placeholders stay."""
    return _PLACE.sub(lambda match: date if is_date(match["name"]) else match[0], text)


def variables(text: str) -> dict[str, str]:
    """The placeholders in order, each with its default; the first default of a name wins."""
    found: dict[str, str] = {}
    for match in _PLACE.finditer(text):
        name, value = match["name"], (match["value"] or "").strip()
        found[name] = found.get(name) or value
    return found


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with `values` for the placeholders; without a value the default, and without that nothing."""
    defaults = variables(text)
    return _PLACE.sub(lambda match: values.get(match["name"], "") or defaults[match["name"]], text)
