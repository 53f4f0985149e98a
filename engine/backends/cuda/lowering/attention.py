"""Lowering of attention and of cache writes."""

from __future__ import annotations

from engine.backends.cuda.kernels.attention import attention, prefill
from engine.backends.cuda.kernels.kv_write import kv_write
from engine.backends.cuda.lowering.call import Operation
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.graph.attention import Attention, KvWrite


def _attention(context: Context, node: Attention) -> Calls:
    assert node.distances is None  # models with them are encoders, which run on the CPU
    assert node.chosen is None  # those with indexers run there, too
    cache, sm_count = context.cache, context.constants.sm_count(node.device)
    packed = None if node.packed is None else (node.form, node.packed)
    return attention.attention_calls(
        cache.kind, cache.addresses(node.layer), node.q, node.y, packed, node.shape,
        context.vector(node.sinks, node.device), sm_count, node.floats, _slopes(context, node),
    )  # fmt: skip


def _slopes(context: Context, node: Attention) -> int:
    """The address of the slopes, which layers of one shape share; 0 without any."""
    return context.vector(attention.slope_pairs(node.shape), node.device)


def _kv_write(context: Context, node: KvWrite) -> Operation:
    cache = context.cache
    return kv_write.kv_write_calls(
        cache.kind, cache.addresses(node.layer), node.q, node.k, node.v, node.shape
    )


def _large_attention(context: Context, node: Attention) -> Calls:
    cache, flash = context.cache, context.constants.has_flash(node.device, node.shape)
    addresses, sinks = cache.addresses(node.layer), context.vector(node.sinks, node.device)
    slopes = _slopes(context, node)
    call = prefill.prefill_attention(cache.kind, addresses, node.q, node.y, node.shape, sinks, flash, slopes)
    return (call,)


def _large_kv_write(context: Context, node: KvWrite) -> Calls:
    operation = _kv_write(context, node)
    return operation.small if operation.large is None else operation.large


SMALL: Table = {KvWrite: lambda context, node: _kv_write(context, node).small, Attention: _attention}
LARGE: Table = {KvWrite: _large_kv_write, Attention: _large_attention}
