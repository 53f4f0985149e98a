"""Reads the settings of indexers, which choose the positions that attention looks at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from engine.backends.indexer import IndexerShape
from engine.errors import BadCheckpoint
from engine.models.config import ModelConfig
from engine.models.config.indexer import Indexer
from engine.models.headers.decoder import MAX_CONTEXT, hf_layer_types
from engine.models.headers.keys import Keys
from engine.words import _

COUNT, DIM = 2048, 128
_MOST_HEADS, _WIDEST = 1 << 10, 1 << 12
_FULL, _SHARED = "full", "shared"


def hf_indexer(keys: Keys, read: dict[str, Any], heads: int, *, sharing: bool, interleaved: bool) -> Indexer:
    """The indexer of DeepSeek V3.2 and its like in config.json, of a model whose other fields were `read`.

    `heads` is the class's default, `sharing` says whether layers may use the choice of an earlier one. Raises
    `BadCheckpoint` and `UnsupportedModel`.
    """
    layers, rope_dim = read["layers"], read["latent"].rope_dim
    shape = IndexerShape(
        keys.integer("index_n_heads", 1, _MOST_HEADS, heads),
        keys.integer("index_head_dim", rope_dim, _WIDEST, DIM),
        keys.integer("index_topk", 1, MAX_CONTEXT, COUNT),
    )
    full = full_layers(keys, layers) if sharing else range(layers)
    return indexers(shape, read["context_length"], full, range(layers), interleaved)


def indexers(
    shape: IndexerShape, context: int, full: Iterable[int], choosing: Iterable[int], interleaved: bool = False
) -> Indexer:
    """The indexer of a model whose layers `choosing` attend to chosen positions, and whose layers `full` have
    an indexer of their own. No more is chosen than a `context` has. Raises `BadCheckpoint` if a layer has no
    indexer to share.
    """
    shape = replace(shape, count=min(shape.count, -(-context // shape.block)))
    choosing = frozenset(choosing)
    own = choosing.intersection(full)
    sharing = choosing - own
    if sharing and (not own or min(sharing) < min(own)):
        raise BadCheckpoint(
            _(
                "Layer {layer} of the model shares an earlier layer's choice of positions, but there is "
                "none; the file is damaged.",
                layer=min(sharing),
            )
        )
    return Indexer(shape, own, sharing, interleaved)


def full_layers(keys: Keys, layers: int) -> list[int]:
    """The layers with an indexer of their own: a list of kinds, a pattern, or one of every few."""
    pattern = keys.raw("index_topk_pattern")
    if keys.raw("indexer_types") is None and pattern is not None:
        if isinstance(pattern, str):
            pattern = [{"F": _FULL, "S": _SHARED}.get(one, one) for one in pattern]
        keys = keys.replaced("indexer_types", pattern)
    listed = hf_layer_types(keys, layers, (_FULL, _SHARED), "indexer_types")
    if listed is not None:
        return [layer for layer, kind in enumerate(listed) if kind == _FULL]
    step = max(1, keys.integer("index_topk_freq", 0, 1 << 14, 1))
    first = keys.integer("index_skip_topk_offset", 0, 1 << 14, 2) - 1
    return [layer for layer in range(layers) if max(layer - first, 0) % step == 0]


def gguf_indexer(
    keys: Keys, config: ModelConfig, full: Iterable[int], *, interleaved: bool = True,
    choosing: Iterable[int] | None = None,
) -> Indexer:  # fmt: skip
    """The indexer in GGUF metadata, of a model whose layers `full` have one of their own, and whose layers
    `choosing`, or all, attend to chosen positions. Raises `BadCheckpoint`.
    """
    assert config.latent is not None
    at, rope_dim = "attention.indexer.", config.latent.rope_dim
    shape = IndexerShape(
        keys.integer(at + "head_count", 1, _MOST_HEADS),
        keys.integer(at + "key_length", rope_dim, _WIDEST),
        keys.integer(at + "top_k", 1, MAX_CONTEXT),
    )
    choosing = range(config.layers) if choosing is None else choosing
    return indexers(shape, config.context_length, full, choosing, interleaved)
