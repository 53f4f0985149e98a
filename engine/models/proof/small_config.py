"""What a small model of the same architecture as a large one is like (`engine.models.proof.miniature`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import replace

from engine.models.config import ModelConfig
from engine.models.config.convolved import ConvolvedHeads, ConvolvedKeys
from engine.models.config.experts import Experts
from engine.models.config.indexer import Indexer
from engine.models.config.recurrent import Recurrent
from engine.models.config.relative import ClippedHeads, RelativeHeads
from engine.models.proof.few_heads import few_heads, heads_of

_FFN, _EXPERT, _VOCABULARY, _WINDOW, POSITIONS = 256, 256, 256, 100, 1024


def small_config(config: ModelConfig, layers: tuple[int, ...]) -> ModelConfig:
    """The large model's `config` with these `layers` alone, and with few heads, features and tokens."""
    heads = heads_of(config)

    def few(kv_heads: int) -> int:
        """As many key/value heads as leave the queries of each; latent attention has one for any number."""
        return 1 if config.latent is not None else kv_heads * heads // config.heads

    def own(chosen: Container[int]) -> frozenset[int]:
        return frozenset(i for i, layer in enumerate(layers) if layer in chosen)

    sources = tuple(layers.index(config.kv_layer(layer)) for layer in layers) if config.kv_sources else ()
    small = replace(
        config,
        layers=len(layers),
        heads=heads,
        kv_heads=few(config.kv_heads),
        slopes=config.slopes[:heads],
        layer_queries=tuple(config.layer_queries[i] * heads // config.heads for i in layers)
        if config.layer_queries
        else (),
        sinks=own(config.sinks) if isinstance(config.sinks, frozenset) else config.sinks,
        layer_heads=tuple((few(config.layer_heads[i][0]), config.layer_heads[i][1]) for i in layers)
        if config.layer_heads
        else (),
        layer_latents=tuple(config.layer_latents[i] for i in layers) if config.layer_latents else (),
        shared_kv=0 if sources else sum(config.kv_layer(layer) != layer for layer in layers),
        kv_sources=sources,
        keys_as_values=own(config.keys_as_values),
        ffn_widths=tuple(min(config.ffn_of(layer), _FFN) for layer in layers) if config.ffn_widths else (),
        per_layer=config.per_layer
        and replace(config.per_layer, vocab_size=min(config.per_layer.vocab_size, _VOCABULARY)),
        altup=config.altup
        and replace(config.altup, deviations=tuple(config.altup.deviations[layer] for layer in layers)),
        ffn_width=min(config.ffn_width, _FFN),
        vocab_size=min(config.vocab_size, _VOCABULARY),
        extra_embeddings=min(config.extra_embeddings, 8),
        mlp_limits=tuple(config.mlp_limits[i] for i in layers) if config.mlp_limits else (),
        expert_limits=tuple(config.expert_limits[i] for i in layers) if config.expert_limits else (),
        windows=tuple(min(config.windows[layer], _WINDOW) for layer in layers) if config.windows else (),
        nope_layers=own(config.nope_layers),
        compressed=config.compressed
        and replace(config.compressed, blocks=tuple(config.compressed.blocks[layer] for layer in layers)),
        local_layers=own(config.local_layers),
        recurrent_layers=own(config.recurrent_layers),
        mlp_layers=own(config.mlp_layers),
        bare_layers=own(config.bare_layers),
        # the steps may be longer than the model's own table
        learned_positions=POSITIONS if config.learned_positions else 0,
        silent_tokens=(0, 0),
        experts=config.experts and _few_features(config.experts, own),
        cycles=config.cycles and config.cycles.of(len(layers)),
        indexer=config.indexer and _few_lists(config.indexer, heads, own),
    )
    return replace(small, recurrent=_as_wide(few_heads(config.recurrent), small, layers, own))


def _few_features(experts: Experts, own: Callable[[Container[int]], frozenset[int]]) -> Experts:
    """The experts of the layers that are kept."""
    return replace(
        experts, width=min(experts.width, _EXPERT), shared_width=min(experts.shared_width, _FFN),
        layers=own(experts.layers), tabled=own(experts.tabled),
    )  # fmt: skip


def _as_wide(
    kind: Recurrent | None, small: ModelConfig, layers: tuple[int, ...],
    own: Callable[[Container[int]], frozenset[int]],
) -> Recurrent | None:  # fmt: skip
    """What is beside attention, as wide as the heads that are kept."""
    match kind:
        case ConvolvedKeys():
            shapes = [small.shape(layer) for layer in range(small.layers)]
            return replace(kind, widths=tuple(shape.kv_heads * shape.head_dim for shape in shapes))
        case ConvolvedHeads():
            return replace(kind, heads=small.heads, groups=small.kv_heads)
        case RelativeHeads():
            shapes = [small.shape(layer) for layer in range(small.layers)]
            wide = replace(
                kind, extents=tuple(kind.extents[layer] for layer in layers), tempered=own(kind.tempered),
                keys=tuple(shape.kv_heads * shape.head_dim for shape in shapes),
            )  # fmt: skip
            return _of_few_layers(wide, layers, own) if isinstance(wide, ClippedHeads) else wide
        case _:
            return kind


def _of_few_layers(
    kind: ClippedHeads, layers: tuple[int, ...], own: Callable[[Container[int]], frozenset[int]]
) -> ClippedHeads:
    """The same of a stack of these runs of layers, each of which is a block."""
    files = sorted({kind.order[layer] for layer in layers})
    first, end = (sum(layer < limit for layer in files) for limit in (kind.first, kind.last))
    return replace(
        kind, order=tuple(files.index(kind.order[layer]) for layer in layers), dynamic=own(kind.dynamic),
        block=1, first=first, last=end, passes=min(kind.passes, 2) if first < end else 1,
    )  # fmt: skip


def _few_lists(indexer: Indexer, heads: int, own: Callable[[Container[int]], frozenset[int]]) -> Indexer:
    """The indexers of the layers that are kept, with a list for whole numbers of heads. They choose all
    positions: of two scores that are nearly equal, rounding would choose another one than the reference.
    """
    shape = replace(indexer.shape, count=max(indexer.shape.count, -(-POSITIONS // indexer.shape.block)))
    if shape.each:
        shape = replace(shape, heads=math.gcd(shape.heads, heads))
    return replace(indexer, shape=shape, layers=own(indexer.layers), sharing=own(indexer.sharing))
