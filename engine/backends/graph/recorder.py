"""Recording: `Ops` that notes nodes instead of computing anything, for every backend with a lowering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from engine.backends.base import AttentionShape, RotaryTable, Routing, Weight
from engine.backends.composite import Composite
from engine.backends.graph import nodes
from engine.backends.graph.buffers import Buffer
from engine.tensors import Floats


class PackedWeight(Weight, Protocol):
    """A backend's matrix; matrices of one weight layout share a kernel."""

    weight_layout: object


class Recorder:
    """`Ops` that notes nodes.

    `layer_devices` are the numbers of the devices of each layer's cache, `device_of` gives a weight's; by
    default all is on device 0. Rows are copied to the device of the weight or cache they meet.
    """

    def __init__(
        self, layer_devices: Sequence[int] = (), device_of: Callable[[Weight], int] = lambda _: 0
    ) -> None:
        self.nodes: list[nodes.Node] = []
        self.positions = 1 << 31
        """The length of the shortest table of positions."""
        self._layer_devices, self._device_of = layer_devices, device_of
        self._copies: dict[tuple[Buffer, int], Buffer] = {}
        self._permuted: dict[tuple[Buffer, bytes], Buffer] = {}

    def _add(self, node: nodes.Value) -> Buffer:
        self.nodes.append(node)
        return node.y

    def _at(self, x: Buffer, device: int) -> Buffer:
        """x on this device, copied there once where it is not."""
        if x.device == device:
            return x
        if (x, device) not in self._copies:
            y = Buffer(x.width, x.on_logit_rows, x.copies, device)
            self._copies[x, device] = self._add(nodes.PeerCopy(x=x, y=y))
        return self._copies[x, device]

    def _table(self, table: Floats) -> Floats:
        assert table.ndim == 2
        self.positions = min(self.positions, len(table))
        return table

    # -- rows

    def embed(self, table: Weight, scale: float = 1.0) -> Buffer:
        y = Buffer(table.shape[1], device=self._device_of(table))
        return self._add(nodes.Embed(table=table, scale=float(scale), y=y))

    def rms_norm(self, x: Buffer, weight: Floats, eps: float, heads: int = 1) -> Buffer:
        return self._norm(x, nodes.NormParams("rms", weight, None, eps), heads)

    def layer_norm(
        self, x: Buffer, weight: Floats, bias: Floats | None, eps: float, heads: int = 1
    ) -> Buffer:
        return self._norm(x, nodes.NormParams("layer", weight, bias, eps), heads)

    def _norm(self, x: Buffer, params: nodes.NormParams, heads: int) -> Buffer:
        assert x.width % heads == 0
        assert params.weight.size in (x.width // heads, x.width)
        assert params.bias is None or params.bias.size == params.weight.size
        return self._add(nodes.Norm(x=x, params=params, heads=heads, y=x.like()))

    def gated(self, gate: Buffer, up: Buffer, activation: str) -> Buffer:
        up = self._at(up, gate.device)
        return self._add(nodes.Gated(gate=gate, up=up, activation=activation, y=gate.like()))

    def activate(self, x: Buffer, activation: str) -> Buffer:
        return self._add(nodes.Activate(x=x, activation=activation, y=x.like()))

    def add(self, x: Buffer, y: Buffer, scale: float = 1.0) -> Buffer:
        return self._add(nodes.Add(x=x, z=self._at(y, x.device), scale=float(scale), y=x.like()))

    def soft_cap(self, x: Buffer, scale: float, cap: float) -> Buffer:
        return self._add(nodes.SoftCap(x=x, scale=float(scale), cap=float(cap), y=x.like()))

    def add_positions(self, x: Buffer, table: Floats) -> Buffer:
        assert table.shape[1] == x.width
        assert not x.on_logit_rows
        return self._add(nodes.AddPositions(x=x, table=self._table(table), y=x.like()))

    def columns(self, x: Buffer, start: int, width: int) -> Buffer:
        assert 0 <= start <= start + width <= x.width
        return self._add(nodes.Columns(x=x, first=start, y=x.like(width)))

    def last_rows(self, x: Buffer) -> Buffer:
        return self._add(nodes.LastRows(x=x, y=Buffer(x.width, on_logit_rows=True, device=x.device)))

    # -- products

    def linear(
        self, x: Buffer, weight: Weight, bias: Floats | None = None, residual: Buffer | None = None
    ) -> Buffer:
        if isinstance(weight, Composite):
            return self._composite(x, weight, bias, residual)
        device = self._device_of(weight)
        x, residual = self._at(x, device), None if residual is None else self._at(residual, device)
        y = x.like(weight.shape[0])
        return self._add(nodes.Linear(x=x, weight=weight, bias=bias, residual=residual, y=y))

    def _composite(
        self, x: Buffer, weight: Composite[Weight], bias: Floats | None, residual: Buffer | None
    ) -> Buffer:
        """The sum of the parts' products; each begins where the one before ended."""
        y = residual
        for part, order in zip(weight.parts, weight.orders, strict=True):
            y = self.linear(self._in_order(self._at(x, self._device_of(part)), order), part, bias, y)
            bias = None
        assert y is not None
        return y

    def _in_order(self, x: Buffer, order: npt.NDArray[np.int32]) -> Buffer:
        """Columns `order` of x; matrices with the same order share them."""
        key = x, order.tobytes()
        if key not in self._permuted:
            self._permuted[key] = self._add(nodes.Permute(x=x, order=order, y=x.like(order.size)))
        return self._permuted[key]

    # -- attention

    def rope(self, x: Buffer, table: RotaryTable, heads: int) -> Buffer:
        assert not x.on_logit_rows
        self._table(table.cos)
        return self._add(nodes.Rope(x=x, table=table, heads=heads, y=x.like()))

    def attention(
        self, layer: int, q: Buffer, k: Buffer, v: Buffer, shape: AttentionShape, sinks: Floats | None = None
    ) -> Buffer:
        device = self._layer_devices[layer] if self._layer_devices else 0
        q, k, v = (self._at(each, device) for each in (q, k, v))
        self.nodes.append(nodes.KvWrite(layer=layer, q=q, k=k, v=v, shape=shape))
        y = q.like(shape.heads * shape.head_dim)
        return self._add(nodes.Attention(layer=layer, q=q, shape=shape, sinks=sinks, y=y))

    # -- experts

    def route(self, logits: Buffer, routing: Routing) -> nodes.Routes:
        assert 0 < routing.used <= logits.width == routing.experts
        routes = nodes.Routes(routing, logits.like(routing.used), logits.like(routing.used))
        self.nodes.append(nodes.Route(x=logits, routes=routes))
        return routes

    def spread(self, x: Buffer, routes: nodes.Routes) -> Buffer:
        assert (x.copies, x.on_logit_rows) == (1, routes.experts.on_logit_rows)
        y = Buffer(x.width, x.on_logit_rows, routes.routing.used, x.device)
        return self._add(nodes.Spread(x=x, routes=routes, y=y))

    def expert_linear(
        self, x: Buffer, weights: Sequence[Weight], routes: nodes.Routes, bias: Floats | None = None
    ) -> Buffer:
        """Experts of several weight layouts take a node for each."""
        shape = weights[0].shape
        assert len(weights) == routes.routing.experts
        assert all(each.shape == shape for each in weights)
        assert (shape[1], x.copies) == (x.width, routes.routing.used)
        device = self._device_of(weights[0])
        x, experts = self._at(x, device), self._at(routes.experts, device)
        y, layouts = x.like(shape[0]), dict[object, Weight]()
        for weight in weights:
            layouts.setdefault(cast(PackedWeight, weight).weight_layout, weight)
        for weight in layouts.values():
            node = nodes.ExpertLinear(
                x=x, weights=tuple(weights), weight=weight, routes=routes, experts=experts, bias=bias, y=y
            )
            self.nodes.append(node)
        return y

    def gather(self, x: Buffer, routes: nodes.Routes, residual: Buffer) -> Buffer:
        assert (x.width, x.copies) == (residual.width, routes.routing.used)
        weights, residual = self._at(routes.weights, x.device), self._at(residual, x.device)
        return self._add(
            nodes.Gather(x=x, routes=routes, weights=weights, residual=residual, y=residual.like())
        )
