"""The heads of small models: as few as run the kernels of a large one."""

from __future__ import annotations

import math
from dataclasses import replace

from engine.models.config import ModelConfig
from engine.models.config.convolved import ConvolvedHeads
from engine.models.config.recurrent import DeltaNet, Mamba, Recurrent, Rwkv4, Rwkv6, Rwkv7


def heads_of(config: ModelConfig) -> int:
    """As few heads as layers of every size can have."""
    if config.latent is not None:
        kinds = config.layer_latents or (config.latent,)
        sizes = math.gcd(*(size for kind in kinds for size in (kind.nope_dim, kind.rope_dim, kind.value_dim)))
        unit = config.heads // math.gcd(config.heads, *config.layer_queries)
        return -(-_groups(sizes, 4, config.heads) // unit) * unit
    shapes = config.layer_heads or ((config.kv_heads, config.head_dim),)
    if config.layer_queries:  # a share of the heads that leaves whole numbers of all
        unit = math.gcd(config.heads, *config.layer_queries, *(kv_heads for kv_heads, _ in shapes))
        return config.heads // unit
    ratio = math.lcm(*(config.heads // kv_heads for kv_heads, _ in shapes))
    least = 2 if isinstance(config.recurrent, ConvolvedHeads) else 1  # one group's columns are not apart
    groups = config.heads // ratio
    return ratio * _groups(ratio * math.gcd(*(dim for _, dim in shapes)), min(least, groups), groups)


def few_heads(kind: Recurrent | None) -> Recurrent | None:
    """As few heads as run the same kernels: the norm of a row's parts stays one of two or more parts of the
    same width.
    """
    match kind:
        case DeltaNet():
            ratio = kind.value_heads // kind.key_heads
            groups = _groups(ratio * kind.value_dim, min(2, kind.key_heads), kind.key_heads)
            return replace(kind, key_heads=groups, value_heads=ratio * groups)
        case Mamba() if kind.norm_groups > 1 and kind.groups % kind.norm_groups == 0:
            ratio, shared = kind.heads // kind.groups, kind.groups // kind.norm_groups
            parts = _groups(ratio * shared * kind.head_dim, 2, kind.norm_groups)
            heads = ratio * shared * parts
            return replace(kind, groups=shared * parts, heads=heads, norm_groups=parts)
        case Rwkv7():
            return replace(kind, heads=_groups(kind.value_dim, min(2, kind.heads), kind.heads))
        case Rwkv6():
            ratio = kind.heads // kind.groups
            groups = _groups(ratio * kind.dim, min(2, kind.groups), kind.groups)
            every = min(2, kind.halved_every)
            return replace(kind, heads=ratio * groups, groups=groups, halved_every=every)
        case Rwkv4():
            channels = min(kind.channels, 256)
            return replace(kind, channels=channels, halved_every=min(2, kind.halved_every))
        case _:
            return kind


def _groups(each: int, least: int, most: int) -> int:
    """The fewest groups, of `each` columns, that make a multiple of 256."""
    return next((groups for groups in range(least, most + 1) if each * groups % 256 == 0), most)
