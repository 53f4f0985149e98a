"""Recording: `Ops` for GPUs, which notes a model's operations and, at the end, makes kernel calls of them.

Only then is it known who reads what: rows that just products read are never written as floats but as records;
up to three products of one input are one call, and so are the turns of queries and keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from engine.backends.base import AttentionShape, Floats, RotaryTable, Routing, Weight
from engine.backends.composite import Composite
from engine.backends.cuda.kernels import moe, pointwise, rows
from engine.backends.cuda.kernels import norm as norms
from engine.backends.cuda.kernels.attention import attention, prefill
from engine.backends.cuda.kernels.fused import RowNorm
from engine.backends.cuda.kernels.kv_write import kv_write
from engine.backends.cuda.kernels.linear import linear
from engine.backends.cuda.kernels.rope import HeadNorm
from engine.backends.cuda.lowering.call import Call, Operation
from engine.backends.cuda.lowering.nodes import (
    Build,
    Cut,
    ExpertProduct,
    HeadsNormed,
    Maker,
    Move,
    Node,
    Product,
    Ready,
    RowNormed,
    Sum,
    Turn,
)
from engine.backends.cuda.runtime.device import Device
from engine.backends.cuda.weight import ExpertTable, WeightSpec, expert_tables
from engine.backends.graph.buffers import Buffer
from engine.backends.kv_formats import CacheType


class Store(Protocol):
    """The cache, or what stands for it while only kernels are counted."""

    @property
    def kind(self) -> CacheType:
        """Of its keys and values."""
        ...

    def addresses(self, layer: int) -> tuple[int, int]:
        """Of the layer's keys and values."""
        ...


@dataclass(frozen=True)
class NoStore:
    """Stands for a cache that is not there yet, where only the kernels matter."""

    kind: CacheType

    def addresses(self, layer: int) -> tuple[int, int]:
        """None; but told apart."""
        return 2 * layer + 1, 2 * layer + 2


@dataclass(frozen=True)
class RecordedRoutes:
    """Which experts rows go to: `ids` int32 and `weights` float32, (T, used) each."""

    routing: Routing
    ids: Buffer
    weights: Buffer


class Recorder:
    """`Ops` for GPUs.

    `layer_devices` are the numbers of the devices that each layer's keys and values lie on.
    """

    def __init__(self, store: Store, devices: Sequence[Device], layer_devices: Sequence[int]) -> None:
        self.store, self.devices, self.layer_devices = store, list(devices), layer_devices
        self.processors = [device.processors for device in devices]
        self.nodes: list[Node] = []
        self.kept: list[Any] = []
        self.positions = 1 << 31
        self._homes: dict[Buffer, int] = {}
        self._moved: dict[tuple[Buffer, int], Buffer] = {}
        self._tables: dict[tuple[int, int], tuple[Floats, int]] = {}
        self._permuted: dict[tuple[Buffer, int], Buffer] = {}

    # -- memory

    def keep(self, values: Any, device: int) -> int:
        """Address of an array's bytes on a device, for as long as the recording lives."""
        memory = self.devices[device].upload(np.ascontiguousarray(values))
        self.kept.append(memory)
        return int(memory.data_ptr())

    def _vector(self, values: Floats, device: int) -> int:
        return self.keep(np.asarray(values, np.float32).reshape(-1), device)

    def _table(self, table: Floats, device: int) -> int:
        """Address of a table with a row for each position; one that many layers use is kept once."""
        assert table.ndim == 2
        key = id(table), device
        if key not in self._tables:
            # The original is kept beside its copy: its id must not come to mean another.
            self._tables[key] = table, self.keep(np.asarray(table, np.float32), device)
        self.positions = min(self.positions, len(table))
        return self._tables[key][1]

    # -- devices

    def _new(
        self,
        device: int,
        width: int,
        like: Buffer | None = None,
        on_logit_rows: bool = False,
        copies: int = 1,
    ) -> Buffer:
        y = Buffer(width, like.on_logit_rows if like else on_logit_rows, like.copies if like else copies)
        self._homes[y] = device
        return y

    def _at(self, x: Buffer, device: int) -> Buffer:
        """x on this device, brought over where it is not."""
        home = self._homes[x]
        if home == device:
            return x
        if (x, device) not in self._moved:
            y = self._new(device, x.width, x)
            self.nodes.append(Move(device=device, reads=(x,), source=x, target=y, source_device=home))
            self._moved[x, device] = y
        return self._moved[x, device]

    def _ready(self, device: int, reads: tuple[Buffer, ...], *calls: Call) -> None:
        self.nodes.append(Ready(device=device, reads=reads, operation=Operation(calls)))

    def _make(
        self, device: int, reads: tuple[Buffer, ...], y: Buffer, build: Build, long: Operation | None = None
    ) -> Buffer:
        self.nodes.append(Maker(device=device, reads=reads, y=y, build=build, long=long))
        return y

    # -- operations

    def embed(self, table: Weight, scale: float = 1.0) -> Buffer:
        """See `Ops.embed`."""
        assert isinstance(table, WeightSpec)
        device = self._weight_device(table)
        y = self._new(device, table.shape[1])
        self._ready(device, (), linear.embed_call(table, y, float(scale)))
        return y

    def _weight_device(self, weight: WeightSpec) -> int:
        self.kept.append(weight)
        return weight.device_number

    def rms_norm(self, x: Buffer, weight: Floats, eps: float, heads: int = 1) -> Buffer:
        """See `Ops.rms_norm`."""
        return self._norm("rms", x, weight, None, eps, heads)

    def layer_norm(
        self, x: Buffer, weight: Floats, bias: Floats | None, eps: float, heads: int = 1
    ) -> Buffer:
        """See `Ops.layer_norm`."""
        return self._norm("layer", x, weight, bias, eps, heads)

    def _norm(
        self, kind: str, x: Buffer, weight: Floats, bias: Floats | None, eps: float, heads: int
    ) -> Buffer:
        width = x.width // heads
        assert width * heads == x.width
        assert weight.size in (width, x.width)
        device = self._homes[x]
        y = self._new(device, x.width, x)
        factor, added = (
            self._vector(weight, device),
            0 if bias is None else self._vector(np.broadcast_to(bias, weight.shape), device),
        )
        if heads > 1:
            each = HeadNorm(kind, eps, factor, added, weight.size == width)
            self.nodes.append(HeadsNormed(device=device, reads=(x,), x=x, y=y, heads=heads, norm=each))
            return y
        norm = RowNorm(kind, eps, factor, added)

        def build(out: Buffer | None, record: str, to: Buffer | None) -> tuple[Call, ...]:
            return (norms.norm_call((kind, eps), x, factor, added, out, record, to),)

        self.nodes.append(RowNormed(device=device, reads=(x,), y=y, build=build, x=x, norm=norm))
        return y

    def linear(
        self, x: Buffer, weight: Weight, bias: Floats | None = None, residual: Buffer | None = None
    ) -> Buffer:
        """See `Ops.linear`."""
        if isinstance(weight, Composite):
            return self._composite(x, weight, bias, residual)
        assert isinstance(weight, WeightSpec)
        device = self._weight_device(weight)
        x = self._at(x, device)
        residual = None if residual is None else self._at(residual, device)
        y = self._new(device, weight.shape[0], x)
        added = 0 if bias is None else self._vector(bias, device)
        reads = () if residual is None else (residual,)
        self.nodes.append(
            Product(device=device, reads=reads, x=x, weight=weight, y=y, bias=added, residual=residual)
        )
        return y

    def _composite(
        self, x: Buffer, weight: Composite[WeightSpec], bias: Floats | None, residual: Buffer | None
    ) -> Buffer:
        """The sum of the parts' products; each begins where the one before ended."""
        y = residual
        for part, order in zip(weight.parts, weight.orders, strict=True):
            y = self.linear(self._in_order(self._at(x, self._weight_device(part)), order), part, bias, y)
            bias = None
        assert y is not None
        return y

    def _in_order(self, x: Buffer, order: Any) -> Buffer:
        """Columns `order` (int32) of x; matrices with the same order share them."""
        key = x, hash(order.tobytes())
        if key not in self._permuted:
            device = self._homes[x]
            y = self._new(device, order.size, x)
            self._ready(device, (x,), rows.permute_call(x, self.keep(order, device), y))
            self._permuted[key] = y
        return self._permuted[key]

    def rope(self, x: Buffer, table: RotaryTable, heads: int) -> Buffer:
        """See `Ops.rope`."""
        assert not x.on_logit_rows
        device = self._homes[x]
        y = self._new(device, x.width, x)
        cos, sin = self._table(table.cos, device), self._table(table.sin, device)
        self.nodes.append(
            Turn(device=device, reads=(x,), x=x, y=y, heads=heads, table=table, cos=cos, sin=sin)
        )
        return y

    def add_positions(self, x: Buffer, table: Floats) -> Buffer:
        """See `Ops.add_positions`."""
        assert table.shape[1] == x.width
        device = self._homes[x]
        y = self._new(device, x.width, x)
        self._ready(device, (x,), pointwise.add_positions_call(x, self._table(table, device), y))
        return y

    def attention(
        self, layer: int, q: Buffer, k: Buffer, v: Buffer, shape: AttentionShape, sinks: Floats | None = None
    ) -> Buffer:
        """See `Ops.attention`."""
        device = self.layer_devices[layer]
        q, k, v = (self._at(each, device) for each in (q, k, v))
        kind, addresses = self.store.kind, self.store.addresses(layer)
        self.nodes.append(
            Ready(
                device=device,
                reads=(q, k, v),
                operation=kv_write.append_calls(kind, addresses, q, k, v, shape),
            )
        )
        y = self._new(device, shape.heads * shape.head_dim)
        last = 0 if sinks is None else self._vector(sinks, device)
        processors = self.processors[device]

        def few(out: Buffer | None, record: str, to: Buffer | None) -> tuple[Call, ...]:
            wanted = None if to is None else (record, to)
            return attention.attention_calls(
                kind, addresses, q, y, wanted, shape, last, processors, out is not None
            )

        flash = self._flash(device, shape)
        long = prefill.prefill_attention(kind, addresses, q, y, shape, last, flash)
        return self._make(device, (q,), y, few, Operation((), (long,)))

    def _flash(self, device: int, shape: AttentionShape) -> bool:
        return prefill.has_flash(self.devices[device], shape)

    def gated(self, gate: Buffer, up: Buffer, activation: str) -> Buffer:
        """See `Ops.gated`."""
        device = self._homes[gate]
        up = self._at(up, device)
        y = self._new(device, gate.width, gate)
        return self._make(
            device,
            (gate, up),
            y,
            lambda out, record, to: (pointwise.gated_call(activation, gate, up, out, record, to),),
        )

    def activate(self, x: Buffer, activation: str) -> Buffer:
        """See `Ops.activate`."""
        device = self._homes[x]
        y = self._new(device, x.width, x)
        return self._make(
            device,
            (x,),
            y,
            lambda out, record, to: (pointwise.activate_call(activation, x, out, record, to),),
        )

    def add(self, x: Buffer, y: Buffer, scale: float = 1.0) -> Buffer:
        """See `Ops.add`."""
        device = self._homes[x]
        y = self._at(y, device)
        out = self._new(device, x.width, x)
        self.nodes.append(Sum(device=device, reads=(x, y), x=x, z=y, y=out, scale=scale))
        return out

    def soft_cap(self, x: Buffer, scale: float, cap: float) -> Buffer:
        """See `Ops.soft_cap`."""
        device = self._homes[x]
        y = self._new(device, x.width, x)
        self._ready(device, (x,), pointwise.soft_cap_call(x, y, scale, cap))
        return y

    def columns(self, x: Buffer, start: int, width: int) -> Buffer:
        """See `Ops.columns`."""
        assert 0 <= start <= start + width <= x.width
        device = self._homes[x]
        y = self._new(device, width, x)
        self.nodes.append(Cut(device=device, reads=(x,), x=x, start=start, y=y))
        return y

    def last_rows(self, x: Buffer) -> Buffer:
        """See `Ops.last_rows`."""
        device = self._homes[x]
        y = self._new(device, x.width, on_logit_rows=True)
        self._ready(device, (x,), rows.last_rows_call(x, y))
        return y

    # -- experts

    def route(self, logits: Buffer, routing: Routing) -> RecordedRoutes:
        """See `Ops.route`."""
        assert 0 < routing.used <= logits.width == routing.experts
        device = self._homes[logits]
        ids, weights = (self._new(device, routing.used, logits) for _ in range(2))
        self._ready(device, (logits,), moe.route_call(logits, ids, weights, routing))
        return RecordedRoutes(routing, ids, weights)

    def spread(self, x: Buffer, routes: RecordedRoutes) -> Buffer:
        """See `Ops.spread`; row t * used + j is row t for its expert j."""
        device = self._homes[x]
        y = self._new(device, x.width, on_logit_rows=x.on_logit_rows, copies=routes.routing.used)
        self._ready(device, (x,), moe.spread_call(x, y))
        return y

    def expert_linear(
        self, x: Buffer, weights: Sequence[Weight], routes: RecordedRoutes, bias: Floats | None = None
    ) -> Buffer:
        """See `Ops.expert_linear`. Experts of several layouts take a call for each."""
        packed = [weight for weight in weights if isinstance(weight, WeightSpec)]
        assert len(packed) == len(weights) == routes.routing.experts
        device = self._weight_device(packed[0])
        self.kept += packed
        x, ids = self._at(x, device), self._at(routes.ids, device)
        y = self._new(device, packed[0].shape[0], x)
        added = 0 if bias is None else self._vector(bias, device)
        for table in self._expert_tables(device, packed):
            self.kept.append(table)
            self.nodes.append(
                ExpertProduct(
                    device=device,
                    reads=(ids,),
                    x=x,
                    table=table,
                    ids=ids,
                    y=y,
                    bias=added,
                    bias_stride=4 * y.width,
                )
            )
        return y

    def _expert_tables(self, device: int, weights: Sequence[WeightSpec]) -> list[ExpertTable]:
        return expert_tables(self.devices[device], weights)

    def gather(self, x: Buffer, routes: RecordedRoutes, residual: Buffer) -> Buffer:
        """See `Ops.gather`."""
        device = self._homes[x]
        weights, residual = self._at(routes.weights, device), self._at(residual, device)
        y = self._new(device, x.width, residual)
        self._ready(device, (x, weights, residual), moe.gather_call(x, weights, residual, y))
        return y
