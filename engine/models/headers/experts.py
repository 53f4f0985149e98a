"""Reads how a model's experts are chosen from its headers, config.json or GGUF metadata."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from engine.backends.routing import SCORES
from engine.errors import UnsupportedModel
from engine.models.config.experts import Experts, Limits
from engine.models.headers.decoder import MAX_LAYERS
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import unsupported
from engine.words import _

_MAX_EXPERTS = 1 << 10
_MAX_GROUPS = 32
_MAX_WIDTH = 1 << 22
_LEAST_LIMIT = 0.5
_METHODS = ("greedy", "group_limited_greedy")
GGUF_EXPERT_KEYS = ("expert_count", "expert_shared_count")
"""What a reader of GGUF metadata handles that calls `gguf_experts`."""


def gguf_experts(
    keys: Keys, shape: dict[str, Any], *, normalise: bool = True, scores: str = "softmax", **more: Any
) -> Experts | None:
    """The experts of a GGUF file, in every n-th layer after the leading dense ones; None when it has none.

    `shape` is the result of `gguf_shape`; `normalise` and `scores` hold where the file does not say; `more`
    are further fields of `Experts`. Raises `BadCheckpoint`, and `UnsupportedModel` for other scores.
    """
    count = keys.integer("expert_count", 0, _MAX_EXPERTS, 0)
    if not count:
        return None
    kind = keys.integer("expert_gating_func", 0, 1 << 10, 0)
    if kind > len(SCORES):
        raise UnsupportedModel(
            _(
                "The model scores its experts with an unknown function (expert_gating_func "
                "{kind}), which is not supported. Choose another model.",
                kind=kind,
            )
        )
    first = keys.integer("leading_dense_block_count", 0, MAX_LAYERS, 0)
    step = keys.integer("interleave_moe_layer_step", 1, MAX_LAYERS, 1)
    groups = keys.integer("expert_group_count", 0, _MAX_GROUPS, 0) or 1
    width = keys.integer("expert_feed_forward_length", 1, _MAX_WIDTH, shape["ffn_width"])
    shared = keys.integer("expert_shared_count", 0, _MAX_EXPERTS, 0) * width
    read: dict[str, Any] = {
        "scores": SCORES[kind - 1] if kind else scores,
        "scale": keys.number("expert_weights_scale", 0.0, 1e6, 0.0) or 1.0,
        "groups": groups,
        "used_groups": (groups > 1 and keys.integer("expert_group_used_count", 0, _MAX_GROUPS, 0)) or groups,
        "group_best": 2,
        "corrected": None,
        "router_bias": None,
        "bias": None,
        "shared_width": keys.integer("expert_shared_feed_forward_length", 0, _MAX_WIDTH, shared),
    }
    own = frozenset(layer for layer in range(first, shape["layers"]) if (layer + 1) % step == 0)
    return Experts(
        count,
        keys.integer("expert_used_count", 1, _MAX_EXPERTS),
        width,
        keys.flag("expert_weights_norm", normalise),
        **(read | {"layers": own} | more),
    )


def hf_experts(
    keys: Keys, layers: Iterable[int], *, count: str, used: str, width: int, normalise: bool, **more: Any
) -> Experts | None:
    """The experts of a folder, None if no layer has any. `count` and `used` name keys of config.json; `more`
    are further fields of `Experts`. Raises `BadCheckpoint`.
    """
    own = frozenset(layers)
    if not own:
        return None
    return Experts(
        keys.integer(count, 1, _MAX_EXPERTS), keys.integer(used, 1, _MAX_EXPERTS), width, normalise, own,
        **more,
    )  # fmt: skip


def limited_groups(keys: Keys) -> dict[str, int]:
    """`hf_groups` where `topk_method` of config.json says that experts of some groups alone are chosen, else
    nothing (DeepSeek V2). Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    method = keys.text("topk_method", "greedy")
    if method not in _METHODS:
        raise UnsupportedModel(
            _(
                "The model chooses its experts by {method!r}; only {methods} are supported for "
                "DeepSeek V2. Choose another model.",
                method=method,
                methods=", ".join(_METHODS),
            )
        )
    return hf_groups(keys, best=1) if method == "group_limited_greedy" else {}


def gate_limits(name: str, limit: float) -> Limits:
    """The limits where silu's input is at most `limit`, as the key `name` says, and what it multiplies no
    larger. Raises `UnsupportedModel` for one so small that silu's least value, -0.28, would be cut, too.
    """
    if limit < _LEAST_LIMIT:
        raise unsupported(name, limit)
    return limit / (1 + math.exp(-limit)), limit


def hf_groups(keys: Keys, groups: int = 1, used: int = 1, *, best: int = 2) -> dict[str, int]:
    """`n_group` and `topk_group` of config.json, whose absence means these; `best` is `group_best`.

    Raises `BadCheckpoint`.
    """
    found = keys.integer("n_group", 1, _MAX_GROUPS, groups)
    return {
        "groups": found,
        "used_groups": keys.integer("topk_group", 1, _MAX_GROUPS, min(used, found)),
        "group_best": best,
    }
