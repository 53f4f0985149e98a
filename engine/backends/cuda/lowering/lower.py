"""From a model's forward function to the calls of small batches, and to those of large ones.

In small batches, rows that only products read are written packed, never as float32; up to three products of
one input are one call, and so are the rotations of queries and keys. Large batches leave products to torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from engine.backends.base import Forward, Weight
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels import moe, packed_activations_write, pointwise, rope, rows
from engine.backends.cuda.kernels import norm as norms
from engine.backends.cuda.kernels.attention import attention, prefill
from engine.backends.cuda.kernels.kv_write import kv_write
from engine.backends.cuda.kernels.linear import gemm, linear
from engine.backends.cuda.kernels.norm import RowNorm, sum_norm_call
from engine.backends.cuda.kernels.packed_activations import packed_buffer
from engine.backends.cuda.kernels.qk_norm import qk_norm_call
from engine.backends.cuda.lowering.call import Call, Operation, ScratchSize, TorchCall
from engine.backends.cuda.lowering.constants import Constants
from engine.backends.cuda.weight import WeightSpec
from engine.backends.graph import nodes
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.cache import CacheAddresses
from engine.backends.graph.fusion import add_norm, columns_rope, fuse, group_linears, group_ropes, norm_rope
from engine.backends.graph.nodes import PeerCopy
from engine.backends.graph.packing import pack_inputs, pack_where_made
from engine.backends.graph.recorder import Recorder
from engine.tensors import Floats

PATTERNS = (norm_rope, columns_rope, add_norm(norms.MOST_KEPT))
"""Patterns with fused kernels: between two launches a GPU idles for about a microsecond."""
MOST_PARTS = 3
"""Maximum number of products in one call of a small batch."""

Step = tuple[int, Call | TorchCall | PeerCopy]
"""The index of a device, and what runs there."""
Calls = Sequence[Call | TorchCall]


@dataclass(frozen=True)
class Context:
    """What calls need to know in addition to their node."""

    cache: CacheAddresses
    constants: Constants

    def vector(self, values: Floats | None, device: int) -> int:
        """The address of an array on a device, 0 for None."""
        return 0 if values is None else self.constants.array(values, device)

    def row_norm(self, params: nodes.NormParams, device: int) -> RowNorm:
        """A norm of whole rows."""
        weight, bias = self.vector(params.weight, device), self.vector(params.bias, device)
        return RowNorm(params.kind, params.eps, weight, bias)

    def head_norm(self, params: nodes.NormParams, width: int, device: int) -> rope.HeadNorm:
        """A norm of heads of this width, which share one weight or have one each."""
        weight, bias = self.vector(params.weight, device), self.vector(params.bias, device)
        return rope.HeadNorm(params.kind, params.eps, weight, bias, params.weight.size == width)


class LoweredPass:
    """A whole pass as calls, for `small` batches and for `large` ones.

    `positions` is the length of its shortest table; `kept` holds the arrays and
    weights whose addresses calls take.
    """

    def __init__(
        self,
        forward: Forward,
        cache: CacheAddresses,
        constants: Constants,
        layer_devices: Sequence[int] = (),
        device_of: Callable[[Weight], int] = lambda _: 0,
    ) -> None:
        recorder = Recorder(layer_devices, device_of)
        self.logits: Buffer = forward(recorder)
        self.positions = recorder.positions
        context, graph = Context(cache, constants), fuse(recorder.nodes, self.logits, PATTERNS)
        packed = pack_where_made(pack_inputs(graph, _form, keep_floats=False), self.logits)
        self.small = _steps(context, group_ropes(group_linears(packed, MOST_PARTS)), SMALL)
        self.large = _steps(context, group_ropes(group_linears(graph, any_layout=True)), LARGE)
        self.kept: list[Any] = [constants.kept, recorder.nodes]

    def kernels(self, device: int) -> list[Kernel]:
        """All kernels that may run on a device, each once."""
        found: dict[Kernel, None] = {}
        for at, step in [*self.small, *self.large]:
            if at == device and not isinstance(step, PeerCopy):
                found |= dict.fromkeys([step.kernel] if isinstance(step, Call) else step.kernels)
        return list(found)

    def scratch_sizes(self, device: int) -> dict[int, list[ScratchSize]]:
        """The scratch memory that calls need on a device, by place."""
        found: dict[int, set[ScratchSize]] = {}
        for at, step in self.large:
            if at == device and isinstance(step, TorchCall):
                for place, size in step.scratch_sizes.items():
                    found.setdefault(place, set()).add(size)
        return {place: list(sizes) for place, sizes in found.items()}


def _steps(context: Context, graph: Iterable[nodes.Node], table: Table) -> list[Step]:
    steps: list[Step] = []
    for node in graph:
        if isinstance(node, PeerCopy):
            steps.append((node.device, node))
        else:
            steps += [(node.device, call) for call in table[type(node)](context, node)]
    return steps


def _form(weight: Weight) -> tuple[str, int] | None:
    """The kind and width of the packed input of a product in a small batch, or None for float32."""
    form = cast(WeightSpec, weight).weight_layout.record
    return None if form == "fp32" else (form, packed_buffer(form, Buffer(weight.shape[1])).width)


# -- both


def _embed(context: Context, node: nodes.Embed) -> Calls:
    return (linear.embed_call(cast(WeightSpec, node.table), node.y, node.scale),)


def _norm(context: Context, node: nodes.Norm) -> Calls:
    x, y, params = node.x, node.y, node.params
    if node.heads > 1:
        head = context.head_norm(params, x.width // node.heads, node.device)
        kind = head.kind, head.eps
        return (qk_norm_call(kind, x, head.weight, head.bias, y, node.heads, head.shared),)
    row = context.row_norm(params, node.device)
    kind, out = (row.kind, row.eps), y if node.floats else None
    return (norms.norm_call(kind, x, row.weight, row.bias, out, node.form, node.packed),)


def _add_norm(context: Context, node: nodes.AddNorm) -> Calls:
    post = None if node.post is None else context.row_norm(node.post, node.device)
    norm, out = context.row_norm(node.params, node.device), node.y if node.floats else None
    call = sum_norm_call(node.z, post, node.x, node.scale, node.total, norm, out, node.form, node.packed)
    return (call,)


def _add(context: Context, node: nodes.Add) -> Calls:
    return (pointwise.add_call(node.x, node.z, node.y, node.scale),)


def _gated(context: Context, node: nodes.Gated) -> Calls:
    out = node.y if node.floats else None
    return (pointwise.gated_call(node.activation, node.gate, node.up, out, node.form, node.packed),)


def _activate(context: Context, node: nodes.Activate) -> Calls:
    out = node.y if node.floats else None
    return (pointwise.activate_call(node.activation, node.x, out, node.form, node.packed),)


def _soft_cap(context: Context, node: nodes.SoftCap) -> Calls:
    return (pointwise.soft_cap_call(node.x, node.y, node.scale, node.cap),)


def _add_positions(context: Context, node: nodes.AddPositions) -> Calls:
    table = context.constants.table(node.table, node.device)
    return (pointwise.add_positions_call(node.x, table, node.y),)


def _columns(context: Context, node: nodes.Columns) -> Calls:
    return (rows.columns_call(node.x, node.first, node.y),)


def _permute(context: Context, node: nodes.Permute) -> Calls:
    return (rows.permute_call(node.x, context.constants.array(node.order, node.device), node.y),)


def _last_rows(context: Context, node: nodes.LastRows) -> Calls:
    return (rows.last_rows_call(node.x, node.y),)


def _ropes(context: Context, node: nodes.RopeGroup) -> Calls:
    table, parts = node.parts[0].table, []
    for part in node.parts:
        params, width = part.norm, part.y.width // part.heads
        norm = None if params is None else context.head_norm(params, width, part.device)
        parts.append(rope.Rotated(part.x, part.y, part.heads, norm, part.first))
    cos, sin = (context.constants.table(each, node.device) for each in (table.cos, table.sin))
    return (rope.rope_call(parts, table, cos, sin),)


def _route(context: Context, node: nodes.Route) -> Calls:
    return (moe.route_call(node.x, node.routes.experts, node.routes.weights, node.routes.routing),)


def _spread(context: Context, node: nodes.Spread) -> Calls:
    return (moe.spread_call(node.x, node.y),)


def _gather(context: Context, node: nodes.Gather) -> Calls:
    return (moe.gather_call(node.x, node.weights, node.residual, node.y),)


# -- small batches


def _pack(context: Context, node: nodes.Pack) -> Calls:
    return (packed_activations_write.pack_call(node.form, node.x, node.y),)


def _linears(context: Context, node: nodes.LinearGroup) -> Calls:
    sm_count = context.constants.sm_count(node.device)
    return (linear.linear_call(_parts(context, node), node.parts[0].x, sm_count),)


def _parts(context: Context, node: nodes.LinearGroup) -> list[linear.Part]:
    parts = []
    for part in node.parts:
        weight, bias = cast(WeightSpec, part.weight), context.vector(part.bias, part.device)
        parts.append(linear.Part(weight, part.y, bias, part.residual))
    return parts


def _experts(context: Context, node: nodes.ExpertLinear) -> Calls:
    return (linear.expert_call(*_expert_arguments(context, node)),)


def _expert_arguments(context: Context, node: nodes.ExpertLinear) -> Any:
    constants, device = context.constants, node.device
    bias, stride = context.vector(node.bias, device), 4 * node.y.width
    table, sm_count = constants.expert_table(node), constants.sm_count(device)
    return table, node.x, node.experts, node.y, sm_count, bias, stride


def _attention(context: Context, node: nodes.Attention) -> Calls:
    cache, sm_count = context.cache, context.constants.sm_count(node.device)
    packed = None if node.packed is None else (node.form, node.packed)
    return attention.attention_calls(
        cache.kind, cache.addresses(node.layer), node.q, node.y, packed, node.shape,
        context.vector(node.sinks, node.device), sm_count, node.floats,
    )  # fmt: skip


def _kv_write(context: Context, node: nodes.KvWrite) -> Operation:
    cache = context.cache
    addresses = cache.addresses(node.layer)
    return kv_write.kv_write_calls(cache.kind, addresses, node.q, node.k, node.v, node.shape)


# -- large batches


def _large_linears(context: Context, node: nodes.LinearGroup) -> Calls:
    sm_count = context.constants.sm_count(node.device)
    return (gemm.product_call(_parts(context, node), node.parts[0].x, sm_count),)


def _large_experts(context: Context, node: nodes.ExpertLinear) -> Calls:
    return (gemm.expert_product_call(*_expert_arguments(context, node)),)


def _large_attention(context: Context, node: nodes.Attention) -> Calls:
    cache, flash = context.cache, context.constants.has_flash(node.device, node.shape)
    addresses, sinks = cache.addresses(node.layer), context.vector(node.sinks, node.device)
    call = prefill.prefill_attention(cache.kind, addresses, node.q, node.y, node.shape, sinks, flash)
    return (call,)


def _large_kv_write(context: Context, node: nodes.KvWrite) -> Calls:
    operation = _kv_write(context, node)
    return operation.small if operation.large is None else operation.large


Table = Mapping[type[nodes.Node], Callable[[Context, Any], Calls]]
SMALL: Table = {
    nodes.Embed: _embed,
    nodes.Norm: _norm,
    nodes.Add: _add,
    nodes.AddNorm: _add_norm,
    nodes.Gated: _gated,
    nodes.Activate: _activate,
    nodes.SoftCap: _soft_cap,
    nodes.AddPositions: _add_positions,
    nodes.Columns: _columns,
    nodes.Permute: _permute,
    nodes.LastRows: _last_rows,
    nodes.Pack: _pack,
    nodes.LinearGroup: _linears,
    nodes.RopeGroup: _ropes,
    nodes.KvWrite: lambda context, node: _kv_write(context, node).small,
    nodes.Attention: _attention,
    nodes.Route: _route,
    nodes.Spread: _spread,
    nodes.ExpertLinear: _experts,
    nodes.Gather: _gather,
}
"""Lowers each type of node to its calls in small batches."""
LARGE: Table = {
    **SMALL,
    nodes.LinearGroup: _large_linears,
    nodes.KvWrite: _large_kv_write,
    nodes.Attention: _large_attention,
    nodes.ExpertLinear: _large_experts,
}
"""Lowers each type of node to its calls in large batches."""
