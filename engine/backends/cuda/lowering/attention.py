"""Lowering of attention and of cache writes."""

from __future__ import annotations

from engine.backends.cuda.kernels.attention import attention, beside, chosen, indexer, prefill, relative
from engine.backends.cuda.kernels.kv_write import kv_write
from engine.backends.cuda.lowering.call import Call, Operation
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.graph.attention import Attention, KvWrite, TopKeys
from engine.backends.graph.buffers import Buffer


def _attention(context: Context, node: Attention) -> Calls:
    _refuse_others(node)
    cache, sm_count = context.cache, context.constants.sm_count(node.device)
    if node.beside is not None:
        return _beside(context, node, beside.splits_for(node, context.positions, sm_count))
    if node.chosen is not None:
        blocks, width = len(chosen.head_blocks(node.shape, node.lists)), node.chosen.width // node.lists
        return _chosen(context, node, chosen.splits_for(blocks, width, sm_count))
    packed = None if node.packed is None else (node.form, node.packed)
    made, biases = _biases(context, node)
    return *made, *attention.attention_calls(
        cache.kind, cache.addresses(node.layer), node.q, node.y, packed, node.shape,
        _sinks(context, node), sm_count, node.floats, _slopes(context, node), biases,
    )  # fmt: skip


def _biases(context: Context, node: Attention) -> tuple[tuple[Call, ...], tuple[Buffer, int] | None]:
    """What makes the biases of a `RelativeBias`, and these with their extent."""
    if node.relative is None or node.profiles is None:
        return (), None
    heads, extent = node.shape.heads, node.profiles.shape[1]
    made, profiles = node.relative.like(heads * extent), context.vector(node.profiles, node.device)
    return (relative.biases_call(node.relative, profiles, made, heads, extent),), (made, extent)


def _refuse_others(node: Attention) -> None:
    """What only encoders have, which run on the CPU."""
    assert node.distances is None
    special = node.shape.chunked or node.shape.slopes or node.shape.latent
    assert not (node.shape.bidirectional and special)


def _beside(context: Context, node: Attention, splits: int) -> Calls:
    assert node.beside is not None
    cache, array, device = context.cache, context.constants.array, node.device
    tables = array(beside.every(1, context.positions), device), 0
    if node.chosen is None:
        tables = tables[0], array(beside.every(node.block, context.positions), device)
    return beside.beside_calls(
        node, cache.kind, cache.addresses(node.layer), cache.addresses(node.beside), tables,
        array(chosen.head_blocks(node.shape, node.lists), device), context.vector(node.sinks, device), splits,
    )  # fmt: skip


def _chosen(context: Context, node: Attention, splits: int) -> Calls:
    heads = context.constants.array(chosen.head_blocks(node.shape, node.lists), node.device)
    sinks = context.vector(node.sinks, node.device)
    return chosen.chosen_calls(
        node, context.cache.kind, context.cache.addresses(node.layer), heads, sinks, splits
    )


def _sinks(context: Context, node: Attention) -> int | Buffer:
    """Those of each row, or the address of all rows'; 0 without any."""
    return context.vector(node.sinks, node.device) if node.row_sinks is None else node.row_sinks


def _slopes(context: Context, node: Attention) -> int:
    """The address of the slopes, which layers of one shape share; 0 without any."""
    return context.vector(attention.slope_pairs(node.shape), node.device)


def _kv_write(context: Context, node: KvWrite) -> Operation:
    cache = context.cache
    return kv_write.kv_write_calls(
        cache.kind, cache.addresses(node.layer), node.q, node.k, node.v, node.shape
    )


def _large_attention(context: Context, node: Attention) -> Calls:
    if node.beside is not None:
        return _beside(context, node, 1)
    if node.chosen is not None:
        return _chosen(context, node, 1)
    _refuse_others(node)
    cache, flash = context.cache, context.constants.has_flash(node.device, node.shape)
    addresses, sinks = cache.addresses(node.layer), _sinks(context, node)
    bias = None
    if node.relative is not None and node.profiles is not None:
        count, extent = node.profiles.shape
        bias = prefill.Bias(node.relative, context.vector(node.profiles, node.device), count, extent)
    call = prefill.prefill_attention(
        cache.kind, addresses, node.q, node.y, node.shape, sinks, flash, _slopes(context, node), bias
    )
    return (call,)


def _large_kv_write(context: Context, node: KvWrite) -> Calls:
    operation = _kv_write(context, node)
    return operation.small if operation.large is None else operation.large


def _top_keys(context: Context, node: TopKeys) -> Calls:
    cache, sm_count = context.cache, context.constants.sm_count(node.device)
    addresses = cache.addresses(node.layer)
    return indexer.small_calls(node, cache.kind.keys, addresses, context.positions, sm_count)


def _large_top_keys(context: Context, node: TopKeys) -> Calls:
    cache, sm_count = context.cache, context.constants.sm_count(node.device)
    return (indexer.large_call(node, cache.kind.keys, cache.addresses(node.layer), sm_count),)


SMALL: Table = {
    KvWrite: lambda context, node: _kv_write(context, node).small,
    Attention: _attention,
    TopKeys: _top_keys,
}
LARGE: Table = {KvWrite: _large_kv_write, Attention: _large_attention, TopKeys: _large_top_keys}
