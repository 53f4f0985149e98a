"""Lowering of attention and of cache writes."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cpu.kernels.attention import attention, indexer
from engine.backends.cpu.kernels.attention.combine import SPLITS
from engine.backends.cpu.kernels.attention.pairs import in_pairs
from engine.backends.cpu.lowering.call import Argument, Calls, Slice, Table
from engine.backends.cpu.runtime.step_block import CROSS, SMALL_BATCH
from engine.backends.graph.attention import Attention, CrossAttention, KvWrite, TopKeys
from engine.backends.graph.buffers import Buffer
from engine.backends.kv_formats import QUANTISED, CacheType, key_bytes, value_bytes
from engine.core import PAGE_TOKENS


def _kv_write(calls: Calls, node: KvWrite) -> None:
    """One call for keys and one for values; query-aware rounding of quantised keys reads the queries too."""
    layer, q, k, v, shape = node.layer, node.q, node.k, node.v, node.shape
    (keys, values), kind = calls.cache.addresses(layer), calls.cache.kind
    key_page, value_page = _page_bytes(kind, shape.head_dim)
    groups, dim = shape.kv_heads, shape.head_dim
    arguments: list[Argument] = [_from(k, node.k_first), k.stride, keys, groups, dim, key_page]
    if kind.keys in QUANTISED:
        more: dict[str, Any] = {"tiles": (groups, 1, groups, 1 << 40)} if kind.keys == "q4" else {}
        arguments += [q, q.stride, shape.heads]
        calls.add(f"write_keys_{kind.keys}", arguments, [k, q], [("keys", layer)], **more)
    else:
        calls.add(f"write_keys_{kind.keys}", arguments, [k], [("keys", layer)])
    if v is None:
        return
    arguments = [_from(v, node.v_first), v.stride, values, groups, dim, value_page]
    calls.add(f"write_values_{kind.values}", arguments, [v], [("values", layer)])


def _from(buffer: Buffer, first: int) -> Buffer | Slice:
    return Slice(buffer, first) if first else buffer


def _page_bytes(kind: CacheType, dim: int) -> tuple[int, int]:
    """Bytes of one head's keys and of its values in a page."""
    return PAGE_TOKENS * key_bytes(kind.keys, dim), PAGE_TOKENS * value_bytes(kind.values, dim)


def _attention(calls: Calls, node: Attention) -> None:
    """Attention in splits of the pages and a call that combines them, which large batches do not need.

    Latent attention reads keys alone, by a group of heads in each tile.
    """
    layer, q, y, shape, kind = node.layer, node.q, node.y, node.shape, calls.cache.kind
    keys, values = calls.cache.addresses(layer)
    heads, groups, dim, value_dim = shape.heads, shape.kv_heads, shape.head_dim, shape.value_dim
    if shape.latent:
        assert groups == 1
        groups, kind = attention.head_groups(heads), CacheType(kind.keys, kind.keys)
    key_page, value_page = _page_bytes(kind, dim)
    calls.scratch = max(calls.scratch, attention.scratch_bytes(heads, groups, dim, shape.latent))
    partial = calls.partial_results(attention.partial_bytes(heads, groups, value_dim))
    window = (-shape.window if shape.chunked else shape.window) or attention.NO_WINDOW
    ahead = (attention.NO_WINDOW if shape.backward_window else abs(window)) - 1 if shape.bidirectional else 0
    sinks: Argument = 0 if node.sinks is None else calls.constants.vector(node.sinks)
    sinks, sink_stride = (sinks, 0) if node.row_sinks is None else (node.row_sinks, node.row_sinks.stride)
    slopes = calls.constants.vector(np.array(shape.slopes, np.float32)) if shape.slopes else 0
    distances, furthest = 0, 0
    if node.distances is not None:
        distances = calls.constants.vector(attention.distance_table(node.distances))
        furthest = node.distances.shape[1] // 2
    arguments: list[Argument] = [
        q, q.stride, keys, values, y, y.stride, heads, groups, dim, float(shape.scale), partial,
        key_page, value_page, *attention.widths(kind, dim, value_dim), window, float(shape.soft_cap), sinks,
        value_dim, slopes, float(shape.rounded_slopes), ahead, distances, furthest, *_lists(node),
        0 if node.beside is None else calls.cache.addresses(node.beside)[0], node.block,
        sink_stride, 0, *_relative(calls, node),
    ]  # fmt: skip
    window = attention.NO_WINDOW if node.beside is not None else window
    also = [] if node.beside is None else [("keys", node.beside)]
    calls.add(
        _kernel(node, kind, calls.prompt_bits),
        arguments,
        [*node.reads, ("keys", layer), ("values", layer), *also],
        [y, "partial"],
        tiles=(groups * SPLITS, SMALL_BATCH, groups, SMALL_BATCH),
        position_bytes=(key_page if shape.latent else groups * (key_page + value_page)) // PAGE_TOKENS,
        window=abs(window),
        shape=(heads, shape.kv_heads, dim),
    )
    arguments = [partial, y, y.stride, heads, groups, value_dim, window, sinks, sink_stride]
    sources = ["partial", *([] if node.row_sinks is None else [node.row_sinks])]
    calls.add("combine", arguments, sources, [y], tiles=(heads, SMALL_BATCH, 0, SMALL_BATCH))


def _cross_attention(calls: Calls, node: CrossAttention) -> None:
    """As attention, by the second step block."""
    layer, q, y, shape, cache = node.layer, node.q, node.y, node.shape, calls.cache.crossed
    (keys, values), kind = cache.addresses(layer), cache.kind
    heads, groups, dim = shape.heads, shape.kv_heads, shape.head_dim
    key_page, value_page = _page_bytes(kind, dim)
    calls.scratch = max(calls.scratch, attention.scratch_bytes(heads, groups, dim))
    partial = calls.partial_results(attention.partial_bytes(heads, groups, dim))
    arguments: list[Argument] = [
        q, q.stride, keys, values, y, y.stride, heads, groups, dim, float(shape.scale), partial,
        key_page, value_page, *attention.widths(kind, dim, dim), attention.NO_WINDOW, 0.0, 0,
        dim, 0, 0.0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, CROSS,
    ]  # fmt: skip
    calls.add(
        f"attention_{kind.keys}_{kind.values}", arguments, [q, ("cross", layer)], [y, "partial"],
        tiles=(groups * SPLITS, SMALL_BATCH, groups, SMALL_BATCH), shape=(heads, groups, dim),
    )  # fmt: skip
    arguments = [partial, y, y.stride, heads, groups, dim, attention.NO_WINDOW, 0, 0, CROSS]
    calls.add("combine", arguments, ["partial"], [y], tiles=(heads, SMALL_BATCH, 0, SMALL_BATCH))


def _lists(node: Attention) -> list[Argument]:
    """Where the positions are that a row looks at."""
    if node.chosen is None:
        return [0, 0, 0, 0]
    width = node.chosen.width // node.lists
    return [node.chosen, node.chosen.stride, width, node.shape.heads // node.lists]


def _kernel(node: Attention, kind: CacheType, prompt_bits: int) -> str:
    """The kernel's name for a cache type. What adds a `RelativeBias` or multiplies pairs is compiled apart;
    pairs make a prompt's logits differ from those of decoding, as activations of 8 bits do.
    """
    if node.shape.latent:
        return f"attention_latent_{kind.keys}"
    if node.relative is not None:
        return f"attention_relative_{kind.keys}_{kind.values}"
    return f"attention_{'pairs_' if prompt_bits == 8 and in_pairs(kind) else ''}{kind.keys}_{kind.values}"


def _relative(calls: Calls, node: Attention) -> list[Argument]:
    """What the kernels of a `RelativeBias` read."""
    if node.relative is None or node.profiles is None:
        return []
    count, extent = node.profiles.shape
    table = calls.constants.vector(attention.profile_table(node.profiles))
    return [node.relative, node.relative.stride, count, table, extent]


def _top_keys(calls: Calls, node: TopKeys) -> None:
    layer, q, y, shape, name = node.layer, node.q, node.y, node.shape, calls.cache.kind.keys
    keys, kind = calls.cache.addresses(layer)[0], CacheType(name, name)
    calls.scratch = max(calls.scratch, indexer.scratch_bytes(shape))
    key_page = _page_bytes(kind, shape.head_dim)[0]
    weights, stride = (0, 0) if node.weights is None else (node.weights, node.weights.stride)
    arguments: list[Argument] = [
        q, q.stride, keys, key_page, weights, stride, y, y.stride, shape.heads, shape.head_dim,
        attention.widths(kind, shape.head_dim, 0)[0], shape.count, shape.block, int(shape.pooled),
        shape.local, shape.width, shape.lists, int(shape.each), int(shape.ends),
    ]  # fmt: skip
    calls.add(
        f"indexer_{name}", arguments, [*node.reads, ("keys", layer)], [y], tiles=(1, 1, 1, 1),
        position_bytes=key_page // PAGE_TOKENS, window=attention.NO_WINDOW,
        shape=(shape.heads, 1, shape.head_dim),
    )  # fmt: skip


LOWER: Table = {
    KvWrite: _kv_write, Attention: _attention, CrossAttention: _cross_attention, TopKeys: _top_keys,
}  # fmt: skip
