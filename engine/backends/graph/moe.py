"""Mixture of experts: its nodes, and how they are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from engine.backends.base import Weight
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.nodes import Node, Recording, Value
from engine.backends.routing import Routing
from engine.lazy_dataclass import dataclass
from engine.tensors import Floats, Ints


class PackedWeight(Weight, Protocol):
    """A backend's matrix; matrices of one weight layout share a kernel."""

    weight_layout: object


@dataclass(frozen=True, eq=False)
class Routes:
    """The experts that rows go to, int32, and their weights, float32: (T, used) each."""

    routing: Routing
    experts: Buffer
    weights: Buffer


@dataclass(frozen=True, eq=False, kw_only=True)
class Route(Node):
    """The experts of each row of x, the router's logits, and their weights."""

    x: Buffer
    routes: Routes
    bias: Floats | None
    scales: Floats | None
    table: Ints | None = None
    """The experts of each token (V, used)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Spread(Value):
    """y = each row of x once for each of its experts."""

    x: Buffer
    routes: Routes


@dataclass(frozen=True, eq=False, kw_only=True)
class ExpertLinear(Value):
    """y = spread rows x times their experts' weights, all of one weight layout, plus their rows of `bias`.

    `weights` are all experts', `weight` is one of this node's layout; rows of y that are the others' stay
    as they are. `experts` are those of the routes, on this node's device.
    """

    INPUTS = ("x", "packed", "experts")
    x: Buffer
    weights: tuple[Weight, ...]
    weight: Weight
    routes: Routes
    experts: Buffer
    bias: Floats | None
    packed: Buffer | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Gather(Value):
    """y = residual plus each row's spread rows x times their `weights`."""

    INPUTS = ("x", "weights", "residual")
    x: Buffer
    routes: Routes
    weights: Buffer
    residual: Buffer | None


class ExpertOps(Recording):
    """The operations of `Ops` for experts."""

    def route(
        self, logits: Buffer, routing: Routing, bias: Floats | None = None, scales: Floats | None = None,
        table: Ints | None = None,
    ) -> Routes:  # fmt: skip
        assert 0 < routing.used <= logits.width == routing.experts
        assert routing.experts % routing.groups == 0
        assert routing.used <= routing.experts // routing.groups * routing.used_groups
        assert table is None or (table.shape[1] == routing.used and not logits.on_logit_rows)
        routes = Routes(routing, logits.like(routing.used), logits.like(routing.used))
        self.nodes.append(Route(x=logits, routes=routes, bias=bias, scales=scales, table=table))
        return routes

    def spread(self, x: Buffer, routes: Routes) -> Buffer:
        assert (x.copies, x.on_logit_rows) == (1, routes.experts.on_logit_rows)
        y = Buffer(x.width, x.on_logit_rows, routes.routing.used, x.device)
        return self._add(Spread(x=x, routes=routes, y=y))

    def expert_linear(
        self, x: Buffer, weights: Sequence[Weight], routes: Routes, bias: Floats | None = None
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
            node = ExpertLinear(
                x=x, weights=tuple(weights), weight=weight, routes=routes, experts=experts, bias=bias, y=y
            )
            self.nodes.append(node)
        return y

    def gather(self, x: Buffer, routes: Routes, residual: Buffer | None = None) -> Buffer:
        assert x.copies == routes.routing.used
        weights = self._at(routes.weights, x.device)
        if residual is not None:
            assert residual.width == x.width
            residual = self._at(residual, x.device)
        y = Buffer(x.width, x.on_logit_rows, 1, x.device)
        return self._add(Gather(x=x, routes=routes, weights=weights, residual=residual, y=y))
