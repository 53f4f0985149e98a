"""Lowering of matrix products, of experts' products, and of packed inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from engine.backends.base import Weight
from engine.backends.cpu.kernels import packed_activations
from engine.backends.cpu.kernels.linear import amx, linear, panel_format, panels
from engine.backends.cpu.layouts.layout import READ_AHEAD
from engine.backends.cpu.lowering.call import TAG_BITS, Argument, Calls, Table
from engine.backends.cpu.runtime.step_block import SMALL_BATCH
from engine.backends.cpu.weight_spec import WeightSpec
from engine.backends.graph.linear import Linear, LinearGroup, Pack
from engine.backends.graph.moe import ExpertLinear
from engine.backends.graph.packing import Form

_LEAST_READ, _MOST_READ = 24 << 10, 160 << 10
"""Weight bytes of a small batch's tile. Below the first, about 2 microseconds of reading, taking tiles costs
too much; beyond the second nothing is gained.
"""
_TILES_OF_THREAD = 8
"""A product has at least as many tiles for each thread, so that all threads end at nearly the same time."""

_PACKED_BYTES = {
    "pack_int16": panel_format.INT16_ACTIVATIONS.activation_bytes,
    "pack_int8": panel_format.INT8_ACTIVATIONS.activation_bytes,
    **{name: form.activation_bytes for name, form in amx.FORMATS.items()},
}
"""Bytes of a block of packed activations for each packing kernel."""


def form_of(prompt_bits: int) -> Form:
    """The form in which large batches read a product's input: a packing kernel's name, and 4-byte words."""

    def form(weight: Weight) -> tuple[str, int] | None:
        assert isinstance(weight, WeightSpec)
        panel = panels.panel_format_of(weight.weight_layout, prompt_bits)
        if panel is None:
            return None
        blocks = weight.blocks * weight.weight_layout.unit // packed_activations.FEATURES
        kernel = f"pack_int{panel.bits}"
        if panel.amx:
            kernel = "pack_amx_bf16" if panel.amx == "bf16" else f"pack_amx_int{panel.bits}"
        return kernel, blocks * panel.activation_bytes // 4

    return form


def _pack(calls: Calls, node: Pack) -> None:
    x, y = node.x, node.y
    arguments: list[Argument] = [x, x.stride, y, y.stride, 4 * y.width // _PACKED_BYTES[node.form]]
    # Small batches read float32.
    calls.add(node.form, arguments, [x], [y], tiles=(0, 1, x.copies, 1), on_logit_rows=x.on_logit_rows)


def _linears(calls: Calls, group: LinearGroup) -> None:
    """One call for each product; they share an input and its number."""
    calls.inputs += 1
    for node in group.parts:
        _linear(calls, node)


def _tiles_at_once(calls: Calls, weight: WeightSpec, size: int) -> int:
    """Weight tiles of a small batch's tile of a product that reads `size` bytes. Threads take tiles in turn:
    the longer each is, the longer a processor's prefetcher can follow a thread.
    """
    read = min(_MOST_READ, max(_LEAST_READ, size // (_TILES_OF_THREAD * calls.threads)))
    least = max(2, weight.interleaved)
    return max(least, read // weight.tile_bytes // least * least)


def _linear(calls: Calls, node: Linear) -> None:
    x, y, weight, residual = node.x, node.y, node.weight, node.residual
    assert isinstance(weight, WeightSpec)
    group = _tiles_at_once(calls, weight, weight.nbytes)
    calls.scratch = max(calls.scratch, linear.scratch_bytes(weight.blocks * weight.weight_layout.unit))
    arguments: list[Argument] = [
        weight.address, weight.tile_bytes, weight.tiles, weight.blocks, x, x.stride, y, y.stride,
        0 if node.bias is None else calls.constants.vector(node.bias), 0 if residual is None else residual,
        group, int(x.on_logit_rows), weight.shape[1], calls.inputs, *_packed(node), weight.interleaved,
        READ_AHEAD, 0,
    ]  # fmt: skip
    small, large = -(-weight.tiles // group), -(-weight.tiles // linear.LARGE_TILES)
    calls.add(
        linear.product_name("linear", weight.weight_layout, calls.prompt_bits),
        arguments,
        list(node.reads),
        [y],
        tiles=(small, SMALL_BATCH, large, linear.LARGE_ROWS),
        on_logit_rows=x.on_logit_rows,
        bytes=weight.nbytes,
        shape=weight.shape,
        prefetches=True,
    )


def _packed(node: Linear | ExpertLinear) -> tuple[Argument, int]:
    """The packed input and its stride, or zeros."""
    return (0, 0) if node.packed is None else (node.packed, node.packed.stride)


def _experts(calls: Calls, node: ExpertLinear) -> None:
    x, y, first, routing = node.x, node.y, node.weight, node.routes.routing
    places, table = calls.sorted_routes[node.routes]
    assert isinstance(first, WeightSpec)
    assert x.on_logit_rows == places.on_logit_rows
    weights, layout = cast(Sequence[WeightSpec], node.weights), first.weight_layout
    addresses = [each.address if each.weight_layout is layout else 0 for each in weights]
    group = _tiles_at_once(calls, first, routing.used * first.nbytes)
    tiles = -(-first.tiles // group)
    calls.scratch = max(calls.scratch, linear.scratch_bytes(first.blocks * first.weight_layout.unit))
    bias = 0 if node.bias is None else calls.constants.vector(node.bias, y.stride // 4)
    arguments: list[Argument] = [
        calls.constants.integers(np.array(addresses, np.int64)), first.tile_bytes, first.tiles, first.blocks,
        x, x.stride, y, y.stride, bias, 0, group, 0, first.shape[1], 0, *_packed(node),
        first.interleaved, READ_AHEAD, 0, table, routing.experts, y.stride, calls.expert_tags,
        tiles,
    ]  # fmt: skip
    calls.expert_tags += routing.experts
    assert calls.expert_tags < 1 << TAG_BITS
    calls.add(
        linear.product_name("experts", first.weight_layout, calls.prompt_bits),
        arguments,
        [x, *([] if node.packed is None else [node.packed]), ("routes", table)],
        [y],
        # In a small batch each choice may be a different expert; in a large one every expert may have rows.
        tiles=(routing.used * tiles, 1, routing.experts * tiles, 1 << 40),
        on_logit_rows=x.on_logit_rows,
        bytes=sum(each.nbytes for each in weights if each.weight_layout is layout),
        row_bytes=routing.used * first.nbytes,
        shape=first.shape,
        prefetches=True,
    )


LOWER: Table = {Pack: _pack, LinearGroup: _linears, ExpertLinear: _experts}
