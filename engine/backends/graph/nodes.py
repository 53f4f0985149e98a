"""The operations of a recorded pass as nodes: one class for each of `Ops`, and those that fusion makes.

A node has no address, kernel or memory: a backend's `lowering` turns it into calls. A buffer is written by
one node; only the nodes of experts of several weight layouts write disjoint rows of one buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from engine.backends.base import AttentionShape, RotaryTable, Routing, Weight
from engine.backends.graph.buffers import Buffer
from engine.tensors import Floats


@dataclass(frozen=True, eq=False)
class NormParams:
    """A norm: `kind` "rms" or "layer", and its weight and bias, which have the same size."""

    kind: str
    weight: Floats
    bias: Floats | None
    eps: float


@dataclass(frozen=True, eq=False)
class Routes:
    """The experts that rows go to, int32, and their weights, float32: (T, used) each."""

    routing: Routing
    experts: Buffer
    weights: Buffer


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """One operation. `INPUTS` names the fields with the buffers that it reads."""

    INPUTS: ClassVar[tuple[str, ...]] = ("x",)

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """The buffers that it reads."""
        inputs = (getattr(self, name) for name in self.INPUTS)
        return tuple(each for each in inputs if each is not None)

    @property
    def device(self) -> int:
        """The number of the device that runs it."""
        return self.reads[0].device


@dataclass(frozen=True, eq=False, kw_only=True)
class Value(Node):
    """A node that writes the rows `y`."""

    y: Buffer

    @property
    def device(self) -> int:
        return self.y.device


@dataclass(frozen=True, eq=False, kw_only=True)
class Producer(Value):
    """A node whose rows may be written as floats (y), as packed activations of a `form`, or as both."""

    floats: bool = True
    form: str = "none"
    packed: Buffer | None = None


# -- rows


@dataclass(frozen=True, eq=False, kw_only=True)
class Embed(Value):
    """y = `scale` times the rows of `table` for the step's token ids."""

    INPUTS = ()
    table: Weight
    scale: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Norm(Producer):
    """y = the norm of each of the `heads` equal parts of x's rows."""

    x: Buffer
    params: NormParams
    heads: int = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Add(Value):
    """y = x + scale z."""

    INPUTS = ("x", "z")
    x: Buffer
    z: Buffer
    scale: float


@dataclass(frozen=True, eq=False, kw_only=True)
class AddNorm(Producer):
    """total = x + scale z, or x + scale `post`(z); y = the norm of total."""

    INPUTS = ("x", "z")
    x: Buffer
    z: Buffer
    scale: float
    post: NormParams | None
    total: Buffer
    params: NormParams


@dataclass(frozen=True, eq=False, kw_only=True)
class Gated(Producer):
    """y = activation(gate) * up."""

    INPUTS = ("gate", "up")
    gate: Buffer
    up: Buffer
    activation: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Activate(Producer):
    """y = activation(x)."""

    x: Buffer
    activation: str


@dataclass(frozen=True, eq=False, kw_only=True)
class SoftCap(Value):
    """y = scale x, then, unless `cap` is 0, cap tanh(scale x / cap)."""

    x: Buffer
    scale: float
    cap: float


@dataclass(frozen=True, eq=False, kw_only=True)
class AddPositions(Value):
    """y = x plus the row of `table` at each row's position."""

    x: Buffer
    table: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Columns(Value):
    """y = columns of x from `first` on."""

    x: Buffer
    first: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Permute(Value):
    """y[:, k] = x[:, order[k]]."""

    x: Buffer
    order: npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False, kw_only=True)
class LastRows(Value):
    """y = the rows of x that need logits."""

    x: Buffer


@dataclass(frozen=True, eq=False, kw_only=True)
class PeerCopy(Value):
    """y = x, which lies on another device."""

    x: Buffer


# -- products


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


# -- attention


@dataclass(frozen=True, eq=False, kw_only=True)
class Rope(Value):
    """y = x from column `first` on, rotated by the step's positions, each head normed before where there is a
    norm.
    """

    x: Buffer
    table: RotaryTable
    heads: int
    norm: NormParams | None = None
    first: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class RopeGroup(Node):
    """Rotations of the same kind by one table: of queries and keys."""

    INPUTS = ()
    parts: tuple[Rope, ...]

    @property
    def device(self) -> int:
        return self.parts[0].device


@dataclass(frozen=True, eq=False, kw_only=True)
class KvWrite(Node):
    """Write k and v, from columns `k_first` and `v_first` on, to a layer's cache; q steers k's rounding."""

    INPUTS = ("q", "k", "v")
    layer: int
    q: Buffer
    k: Buffer
    v: Buffer
    shape: AttentionShape
    k_first: int = 0
    v_first: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Attention(Producer):
    """y = causal attention of q over a layer's cache."""

    INPUTS = ("q",)
    layer: int
    q: Buffer
    shape: AttentionShape
    sinks: Floats | None


# -- experts


@dataclass(frozen=True, eq=False, kw_only=True)
class Route(Node):
    """The experts of each row of x, the router's logits, and their weights."""

    x: Buffer
    routes: Routes


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
    residual: Buffer
