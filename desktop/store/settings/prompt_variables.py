"""Placeholders in a saved prompt: `{{topic}}`, or `{{language=English}}` with a default value."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["filled", "variables"]

_PLACE = re.compile(r"\{\{\s*(?P<name>[^{}=\n]+?)\s*(?:=(?P<value>[^{}]*))?\}\}")


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
