"""Attention that looks at chosen positions alone where a text is long."""

from __future__ import annotations

from typing import Any


def dense_context(shape: dict[str, Any], most: int) -> dict[str, Any]:
    """The fields of a model whose attention chooses `most` positions: up to this length of a text it looks at
    all of them, and no choice is made.
    """
    length = shape["context_length"]
    return {"context_length": min(length, most), "dense_tokens": most if most < length else 0}
