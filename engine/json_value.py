"""JSON from strangers: what is none, is not UTF-8 or is nested without an end has no value."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["json_value"]


def json_value(text: str | bytes, otherwise: Any = None) -> Any:
    """The value that a JSON text stands for; `otherwise` for a text that is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        return otherwise
