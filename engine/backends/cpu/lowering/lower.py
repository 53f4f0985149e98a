"""Lowers a model's forward function to the kernel calls that a program replays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.backends.base import Forward
from engine.backends.cpu.kernels import moe, pointwise
from engine.backends.cpu.kernels import rows as row_kernels
from engine.backends.cpu.lowering.attention import lower_attention, lower_kv_write, lower_rope
from engine.backends.cpu.lowering.call import Argument, Calls
from engine.backends.cpu.lowering.constants import Constants
from engine.backends.cpu.lowering.linear import form_of, lower_experts, lower_linears, lower_pack
from engine.backends.cpu.weight import WeightSpec
from engine.backends.graph import nodes
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.cache import CacheAddresses
from engine.backends.graph.fusion import columns_kv_write, fuse, group_linears
from engine.backends.graph.packing import pack_inputs
from engine.backends.graph.recorder import Recorder

PATTERNS = (columns_kv_write,)
"""The fusions that the CPU has kernels for."""


class LoweredPass:
    """A pass as kernel calls: `operations`, the buffer of the logits, and the positions of its tables."""

    def __init__(
        self,
        forward: Forward,
        cache: CacheAddresses,
        prompt_bits: int = 16,
        constants: Constants | None = None,
    ) -> None:
        recorder = Recorder()
        self.logits: Buffer = forward(recorder)
        self.positions = recorder.positions
        graph = fuse(recorder.nodes, self.logits, PATTERNS)
        graph = group_linears(pack_inputs(graph, form_of(prompt_bits), keep_floats=True), any_layout=True)
        calls = Calls(cache, prompt_bits, constants or Constants())
        for node in graph:
            LOWER[type(node)](calls, node)
        self.operations, self.scratch, self.constants = calls.operations, calls.scratch, calls.constants
        self.constants.kept.append(graph)  # calls hold addresses of its weights

    @property
    def kernels(self) -> list[str]:
        """The names of the kernels that the pass calls."""
        return [operation.kernel for operation in self.operations]


def _embed(calls: Calls, node: nodes.Embed) -> None:
    table, y = node.table, node.y
    assert isinstance(table, WeightSpec)
    arguments: list[Argument] = [
        table.address, table.tile_bytes, table.blocks, table.shape[1], y, y.stride, node.scale
    ]  # fmt: skip
    kernel, row_bytes = f"embed_{table.weight_layout.name}", table.nbytes // table.shape[0]
    calls.add(kernel, arguments, [], [y], bytes=table.nbytes, row_bytes=row_bytes, shape=table.shape)


def _norm(calls: Calls, node: nodes.Norm) -> None:
    x, y, heads, params = node.x, node.y, node.heads, node.params
    width, size = x.width // heads, params.weight.size
    weight = calls.constants.vector(params.weight)
    bias = calls.constants.zeros(size) if params.bias is None else calls.constants.vector(params.bias)
    step = 0 if size == width else 4 * width
    arguments: list[Argument] = [x, x.stride, y, y.stride, weight, bias, heads, width, step]
    calls.each_row(f"{params.kind}_norm", [*arguments, float(params.eps)], [x], y)


def _pointwise(
    calls: Calls, kernel: str, x: Buffer, other: Buffer, y: Buffer, first: float = 0.0, second: float = 0.0
) -> None:
    assert (x.width, x.copies, x.on_logit_rows) == (other.width, other.copies, other.on_logit_rows)
    chunks = -(-(y.stride // 64) // pointwise.CHUNK_VECTORS)
    calls.each_row(kernel, [x, other, y, y.stride, chunks, first, second], [x, other], y, chunks)


def _gated(calls: Calls, node: nodes.Gated) -> None:
    _pointwise(calls, f"gated_{node.activation}", node.gate, node.up, node.y)


def _activate(calls: Calls, node: nodes.Activate) -> None:
    _pointwise(calls, f"activate_{node.activation}", node.x, node.x, node.y)


def _add(calls: Calls, node: nodes.Add) -> None:
    _pointwise(calls, "add", node.x, node.z, node.y, node.scale)


def _soft_cap(calls: Calls, node: nodes.SoftCap) -> None:
    x, y = node.x, node.y
    if node.cap:
        _pointwise(calls, "soft_cap", x, x, y, node.scale / node.cap, node.cap)
    else:
        _pointwise(calls, "times", x, x, y, node.scale)


def _add_positions(calls: Calls, node: nodes.AddPositions) -> None:
    x, y = node.x, node.y
    calls.each_row("add_positions", [x, x.stride, y, calls.constants.table(node.table), x.width], [x], y)


def _columns(calls: Calls, node: nodes.Columns) -> None:
    x, y = node.x, node.y
    calls.each_row("columns", [x, x.stride, y, y.stride, node.first, y.width], [x], y)


def _permute(calls: Calls, node: nodes.Permute) -> None:
    x, y = node.x, node.y
    chunks, order = -(-y.width // row_kernels.PERMUTED_AT_ONCE), calls.constants.integers(node.order)
    calls.each_row("permute", [x, x.stride, y, y.stride, order, y.width, chunks], [x], y, chunks)


def _last_rows(calls: Calls, node: nodes.LastRows) -> None:
    calls.add("last_rows", [node.x, node.y, node.x.stride], [node.x], [node.y], on_logit_rows=True)


def _route(calls: Calls, node: nodes.Route) -> None:
    """Choose experts, then sort the rows by expert."""
    x, routing, chosen, weights = node.x, node.routes.routing, node.routes.experts, node.routes.weights
    count, used = routing.experts, routing.used
    assert count <= moe.MOST_EXPERTS
    table, places = calls.constants.room(4 * moe.table_words(count)), chosen.like()
    calls.sorted_routes[node.routes] = places, table
    arguments: list[Argument] = [x, x.stride, chosen, weights, chosen.stride, count, used]
    arguments.append(int(routing.normalise))
    calls.add("route", arguments, [x], [chosen, weights], on_logit_rows=x.on_logit_rows)
    arguments = [chosen, chosen.stride, count, used, places, table, int(x.on_logit_rows)]
    once = (1, 1 << 40, 1, 1 << 40)
    calls.add("sort_routes", arguments, [chosen], [places, ("routes", table)], tiles=once)


def _spread(calls: Calls, node: nodes.Spread) -> None:
    x, y = node.x, node.y
    places, _ = calls.sorted_routes[node.routes]
    arguments: list[Argument] = [x, x.stride, places, places.stride, node.routes.routing.used, y]
    calls.add("spread", arguments, [x, places], [y], on_logit_rows=x.on_logit_rows)


def _gather(calls: Calls, node: nodes.Gather) -> None:
    x, y, used = node.x, node.y, node.routes.routing.used
    places, _ = calls.sorted_routes[node.routes]
    arguments: list[Argument] = [x, x.stride, places, places.stride, used, y, node.weights, node.residual]
    calls.each_row("gather", arguments, [x, places, node.weights, node.residual], y)


LOWER: dict[type[nodes.Node], Callable[[Calls, Any], None]] = {
    nodes.Embed: _embed,
    nodes.Norm: _norm,
    nodes.Pack: lower_pack,
    nodes.LinearGroup: lower_linears,
    nodes.Rope: lower_rope,
    nodes.KvWrite: lower_kv_write,
    nodes.Attention: lower_attention,
    nodes.Gated: _gated,
    nodes.Activate: _activate,
    nodes.Add: _add,
    nodes.SoftCap: _soft_cap,
    nodes.AddPositions: _add_positions,
    nodes.Columns: _columns,
    nodes.Permute: _permute,
    nodes.LastRows: _last_rows,
    nodes.Route: _route,
    nodes.Spread: _spread,
    nodes.ExpertLinear: lower_experts,
    nodes.Gather: _gather,
}
"""The function that adds the calls of each type of node."""
