"""Reading how many experts a model has."""

from __future__ import annotations

from typing import Any

from engine.models.config import Experts
from engine.models.keys import Keys

_MOST = 1 << 12


def gguf_experts(keys: Keys, shape: dict[str, Any], *, normalise: bool = True) -> Experts | None:
    """The experts of a GGUF file, in all layers; None when it has none.

    `shape` as `gguf_shape` gave it. Raises `BadCheckpoint`.
    """
    count = keys.integer("expert_count", 0, _MOST, 0)
    if not count:
        return None
    width = keys.integer("expert_feed_forward_length", 1, 1 << 22, shape["ffn_width"])
    return Experts(
        count,
        keys.integer("expert_used_count", 1, _MOST),
        width,
        normalise,
        frozenset(range(shape["layers"])),
    )


def hf_experts(
    keys: Keys, layers: frozenset[int], *, count: str, used: str, width: int, normalise: bool
) -> Experts:
    """The experts of a folder; `count` and `used` are their keys in config.json. Raises `BadCheckpoint`."""
    return Experts(keys.integer(count, 1, _MOST), keys.integer(used, 1, _MOST), width, normalise, layers)
