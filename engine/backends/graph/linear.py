"""Products with matrices: their nodes, and how they are recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.backends.base import Weight
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.nodes import Node, Recording, Value
from engine.backends.packing.composite import Composite
from engine.lazy_dataclass import dataclass
from engine.tensors import Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Permute(Value):
    """y[:, k] = x[:, order[k]]."""

    x: Buffer
    order: npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False, kw_only=True)
class Pack(Value):
    """y = x as packed activations of a `form`."""

    x: Buffer
    form: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Linear(Value):
    """y = x times `weight` transposed, plus bias and residual.

    `packed` is x as packed activations, for steps that read those. Where no step reads floats, x is packed.
    """

    INPUTS = ("x", "packed", "residual")
    x: Buffer
    weight: Weight
    bias: Floats | None
    residual: Buffer | None
    packed: Buffer | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearGroup(Node):
    """Products of one input, one right after the other."""

    INPUTS = ()
    parts: tuple[Linear, ...]

    @property
    def device(self) -> int:
        return self.parts[0].device


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadLinear(Value):
    """y = each of the equal parts of x's rows times its own matrix transposed."""

    x: Buffer
    weights: tuple[Weight, ...]


class LinearOps(Recording):
    """The products of `Ops`."""

    def linear(
        self, x: Buffer, weight: Weight, bias: Floats | None = None, residual: Buffer | None = None
    ) -> Buffer:
        if isinstance(weight, Composite):
            return self._composite(x, weight, bias, residual)
        device = self._device_of(weight)
        x, residual = self._at(x, device), None if residual is None else self._at(residual, device)
        y = x.like(weight.shape[0])
        return self._add(Linear(x=x, weight=weight, bias=bias, residual=residual, y=y))

    def head_linear(self, x: Buffer, weights: Sequence[Weight]) -> Buffer:
        rows, columns = weights[0].shape
        assert all(each.shape == (rows, columns) for each in weights)
        assert x.width == columns * len(weights)
        x = self._at(x, self._device_of(weights[0]))
        return self._add(HeadLinear(x=x, weights=tuple(weights), y=x.like(rows * len(weights))))

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
        return self._once((x, order.tobytes()), lambda: Permute(x=x, order=order, y=x.like(order.size)))
