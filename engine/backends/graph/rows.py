"""Operations on rows: their nodes, and how they are recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.backends.activations import SHAPED
from engine.backends.base import Weight
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.linear import Permute
from engine.backends.graph.nodes import Producer, Recording, Value
from engine.lazy_dataclass import dataclass
from engine.tensors import Floats


@dataclass(frozen=True, eq=False)
class NormParams:
    """A norm: `kind` "rms" or "layer", and its weight and bias, which have the same size."""

    kind: str
    weight: Floats
    bias: Floats | None
    eps: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Embed(Value):
    """y = `scale` times the rows of `table` for the step's token ids, or for the `heads` ids of each row."""

    INPUTS = ("ids",)
    table: Weight
    scale: float
    ids: Buffer | None = None
    heads: int = 1


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
class ActivateWith(Value):
    """y = function(x) of its numbers."""

    x: Buffer
    function: str
    numbers: tuple[float, ...]


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
class Join(Value):
    """y = part by part, the `heads` equal parts of rows of x and of z."""

    INPUTS = ("x", "z")
    x: Buffer
    z: Buffer
    heads: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Mix(Value):
    """y = residual plus the sum of `parts`, each times a column of `weights` from `first` on."""

    INPUTS = ("weights", "residual")
    parts: tuple[Buffer, ...]
    weights: Buffer
    first: int
    residual: Buffer | None

    @property
    def reads(self) -> tuple[Buffer, ...]:
        return (*self.parts, *super().reads)


@dataclass(frozen=True, eq=False, kw_only=True)
class Magnitude(Value):
    """y = the root mean square of each row of x, or of its differences from the row's mean."""

    x: Buffer
    centred: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Balance(Value):
    """y = the matrices (size, size) that `Ops.balance` makes of logits."""

    x: Buffer
    size: int
    rounds: int
    eps: float
    added: float


@dataclass(frozen=True, eq=False, kw_only=True)
class LastRows(Value):
    """y = the rows of x that need logits."""

    x: Buffer


@dataclass(frozen=True, eq=False, kw_only=True)
class Keep(Value):
    """y = x, and so are the rows of `out`."""

    x: Buffer
    out: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Given(Value):
    """y = the first rows of `rows`."""

    INPUTS = ()
    rows: Floats


class RowOps(Recording):
    """The operations of `Ops` on rows."""

    def embed(self, table: Weight, scale: float = 1.0) -> Buffer:
        y = Buffer(table.shape[1], device=self._device_of(table))
        return self._add(Embed(table=table, scale=float(scale), y=y))

    def rms_norm(self, x: Buffer, weight: Floats, eps: float, heads: int = 1) -> Buffer:
        return self._norm(x, NormParams("rms", weight, None, eps), heads)

    def layer_norm(
        self, x: Buffer, weight: Floats, bias: Floats | None, eps: float, heads: int = 1
    ) -> Buffer:
        return self._norm(x, NormParams("layer", weight, bias, eps), heads)

    def _norm(self, x: Buffer, params: NormParams, heads: int) -> Buffer:
        assert x.width % heads == 0
        assert params.weight.size in (x.width // heads, x.width)
        assert params.bias is None or params.bias.size == params.weight.size
        return self._add(Norm(x=x, params=params, heads=heads, y=x.like()))

    def gated(self, gate: Buffer, up: Buffer, activation: str) -> Buffer:
        up = self._at(up, gate.device)
        return self._add(Gated(gate=gate, up=up, activation=activation, y=gate.like()))

    def activate(self, x: Buffer, activation: str) -> Buffer:
        return self._add(Activate(x=x, activation=activation, y=x.like()))

    def activate_with(self, x: Buffer, function: str, numbers: tuple[float, ...]) -> Buffer:
        assert function in SHAPED
        return self._add(ActivateWith(x=x, function=function, numbers=numbers, y=x.like()))

    def add(self, x: Buffer, y: Buffer, scale: float = 1.0) -> Buffer:
        x = self._at(x, y.device)  # that of the later layer, where the text's rows then stay
        return self._add(Add(x=x, z=y, scale=float(scale), y=x.like()))

    def soft_cap(self, x: Buffer, scale: float, cap: float) -> Buffer:
        return self._add(SoftCap(x=x, scale=float(scale), cap=float(cap), y=x.like()))

    def add_positions(self, x: Buffer, table: Floats) -> Buffer:
        assert table.shape[1] == x.width
        assert not x.on_logit_rows
        return self._add(AddPositions(x=x, table=self._table(table), y=x.like()))

    def columns(self, x: Buffer, start: int, width: int, heads: int = 1) -> Buffer:
        assert x.width % heads == 0
        assert 0 <= start <= start + width <= x.width // heads
        if heads > 1:
            of_heads = np.arange(x.width, dtype=np.int32).reshape(heads, -1)[:, start : start + width]
            order = np.ascontiguousarray(of_heads.reshape(-1))
            return self._add(Permute(x=x, order=order, y=x.like(order.size)))
        return self._add(Columns(x=x, first=start, y=x.like(width)))

    def join(self, x: Buffer, y: Buffer, heads: int) -> Buffer:
        assert x.width % heads == y.width % heads == 0
        return self._add(Join(x=x, z=self._at(y, x.device), heads=heads, y=x.like(x.width + y.width)))

    def mix(
        self, parts: Sequence[Buffer], weights: Buffer, first: int, residual: Buffer | None = None
    ) -> Buffer:
        assert 0 <= first <= first + len(parts) <= weights.width
        y = parts[0].like()
        parts = tuple(self._at(part, y.device) for part in parts)
        assert {part.width for part in parts} == {y.width if residual is None else residual.width}
        weights = self._at(weights, y.device)
        residual = None if residual is None else self._at(residual, y.device)
        return self._add(Mix(parts=parts, weights=weights, first=first, residual=residual, y=y))

    def magnitude(self, x: Buffer, centred: bool = False) -> Buffer:
        return self._add(Magnitude(x=x, centred=centred, y=x.like(1)))

    def balance(self, x: Buffer, size: int, rounds: int, eps: float, added: float | None = None) -> Buffer:
        assert x.width == size * size or not (rounds or x.width % size)
        own = float(eps if added is None else added)
        return self._add(Balance(x=x, size=size, rounds=rounds, eps=float(eps), added=own, y=x.like()))

    def last_rows(self, x: Buffer) -> Buffer:
        return self._add(LastRows(x=x, y=Buffer(x.width, on_logit_rows=True, device=x.device)))

    def keep(self, x: Buffer, out: Floats) -> Buffer:
        assert out.shape[1] == x.width
        assert not x.on_logit_rows
        return self._add(Keep(x=x, out=out, y=x.like()))

    def given(self, rows: Floats) -> Buffer:
        return self._add(Given(rows=rows, y=Buffer(rows.shape[1])))
