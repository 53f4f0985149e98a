"""Lowering of attention and of cache writes."""

from __future__ import annotations

from engine.backends.cuda.kernels.attention import attention, prefill
from engine.backends.cuda.kernels.kv_write import kv_write
from engine.backends.cuda.lowering.call import Operation
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.graph.attention import Attention, KvWrite
from engine.errors import BadSetting
from engine.words import _


def _without_slopes(node: Attention) -> None:
    if node.shape.slopes:
        raise BadSetting(
            _(
                "The GPU has no kernels for this model's ALiBi positions; choose the processor (CPU) or "
                "automatic as the device."
            )
        )


def _attention(context: Context, node: Attention) -> Calls:
    _without_slopes(node)
    cache, sm_count = context.cache, context.constants.sm_count(node.device)
    packed = None if node.packed is None else (node.form, node.packed)
    return attention.attention_calls(
        cache.kind, cache.addresses(node.layer), node.q, node.y, packed, node.shape,
        context.vector(node.sinks, node.device), sm_count, node.floats,
    )  # fmt: skip


def _kv_write(context: Context, node: KvWrite) -> Operation:
    cache = context.cache
    addresses = cache.addresses(node.layer)
    assert node.v is not None  # the products of latent attention, which has no kernels, are refused before
    return kv_write.kv_write_calls(cache.kind, addresses, node.q, node.k, node.v, node.shape)


def _large_attention(context: Context, node: Attention) -> Calls:
    _without_slopes(node)
    cache, flash = context.cache, context.constants.has_flash(node.device, node.shape)
    addresses, sinks = cache.addresses(node.layer), context.vector(node.sinks, node.device)
    call = prefill.prefill_attention(cache.kind, addresses, node.q, node.y, node.shape, sinks, flash)
    return (call,)


def _large_kv_write(context: Context, node: KvWrite) -> Calls:
    operation = _kv_write(context, node)
    return operation.small if operation.large is None else operation.large


SMALL: Table = {KvWrite: lambda context, node: _kv_write(context, node).small, Attention: _attention}
LARGE: Table = {KvWrite: _large_kv_write, Attention: _large_attention}
