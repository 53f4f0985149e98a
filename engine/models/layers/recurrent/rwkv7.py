"""RWKV-7 (arXiv 2503.14456): time mixing by the generalised delta rule, and channel mixing.

Shape letters as in `engine.models.layers.parts`; H heads, Dk keys and Dv values of each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.backends.states import DeltaWeights
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear
from engine.models.config import ModelConfig
from engine.models.config.recurrent import Rwkv7, rwkv_shape
from engine.models.layers.parts import Block, Linear, Norm, RopeTables
from engine.models.layers.recurrent.parts import Convolution
from engine.models.names import RwkvNames, TensorNames
from engine.tensors import Floats


@dataclass(frozen=True, slots=True)
class LowRank:
    """up(activation(down(x))), where the activation is "tanh", "sigmoid" or "identity"."""

    down: Linear
    up: Linear
    activation: str = "identity"

    def __call__(self, ops: Ops, x: Array) -> Array:
        y = self.down(ops, x)
        if self.activation == "tanh":
            y = ops.soft_cap(y, 1.0, 1.0)
        elif self.activation == "sigmoid":
            # A gate multiplies a row: here one of ones, which is what a norm without a weight leaves.
            size = self.down.weight.shape[0]
            ones = ops.layer_norm(y, np.zeros(size, np.float32), np.ones(size, np.float32), 1.0)
            y = ops.gated(y, ones, "sigmoid")
        return self.up(ops, y)


@dataclass(frozen=True, slots=True)
class TimeMixing:
    """What takes the place of attention. `shifts` mix each row with the one before: for receptances, decays,
    keys, values, rates, and perhaps the gate.

    In layers with `value_share`, values move towards those of the first layer by the sigmoid of what that
    makes. Results are normed head by head; `DeltaWeights.bonus` adds values that are not.
    """

    shifts: tuple[Convolution, ...]
    receptance: Linear
    key: Linear
    value: Linear
    decay: LowRank
    rate: LowRank
    value_share: LowRank | None
    gate: LowRank | None
    part: int
    weights: DeltaWeights
    norm: Norm | None
    output: Linear

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        return self.mixed(ops, x, None, residual)[0]

    def mixed(
        self, ops: Ops, x: Array, first: Array | None, residual: Array | None = None
    ) -> tuple[Array, Array]:
        """The result, and the first layer's values (T, H * Dv), which are this layer's without `first`."""
        for_r, for_decay, for_k, for_v, for_rate, *for_gate = (shift(ops, x) for shift in self.shifts)
        v = self.value(ops, for_v)
        if first is not None and self.value_share is not None:
            share = self.value_share(ops, for_v)
            v = ops.add(v, ops.gated(share, ops.add(first, v, -1.0), "sigmoid"))
        inputs = self.receptance(ops, for_r), self.key(ops, for_k), v
        both = ops.generalised_delta(
            self.part, inputs, self.decay(ops, for_decay), self.rate(ops, for_rate), self.weights
        )
        values = self.value.weight.shape[0]
        y, own = ops.columns(both, 0, values), ops.columns(both, values, values)
        y = ops.add(self.norm(ops, y) if self.norm else y, own)
        if self.gate is not None:
            y = ops.gated(self.gate(ops, for_gate[0]), y, "identity")
        return self.output(ops, y, residual), v if first is None else first


@dataclass(frozen=True, slots=True)
class RwkvBlock:
    """A block whose feed-forward part's input may be mixed with the row before by `shift`."""

    block: Block
    mixing: TimeMixing
    shift: Convolution | None

    def __call__(self, ops: Ops, x: Array, first: Array | None) -> tuple[Array, Array]:
        block = self.block
        assert block.attention_norm is not None
        assert block.mlp_norm is not None
        assert block.mlp is not None
        x, first = self.mixing.mixed(ops, block.attention_norm(ops, x), first, x)
        h = block.mlp_norm(ops, x)
        return block.mlp(ops, self.shift(ops, h) if self.shift else h, residual=x), first


@dataclass(frozen=True, slots=True)
class RwkvBlocks:
    """The layers, all of which get the values of the first; see `engine.models.layers.parts.Stack`."""

    blocks: tuple[RwkvBlock, ...]
    lookups: Sequence[Weight] = ()

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        first: Array | None = None
        for block in self.blocks:
            x, first = block(ops, x, first)
        return x


# -- building


def rwkv_blocks(
    source: WeightSource, config: ModelConfig, names: TensorNames, kind: Rwkv7, blocks: Sequence[Block]
) -> RwkvBlocks:
    """The blocks, joined."""
    assert names.rwkv is not None
    made = []
    for layer, block in enumerate(blocks):
        assert isinstance(block.attention, TimeMixing)
        shift = None
        if kind.mixes_channels:
            own = names.rwkv.channel_share
            share = _stored(source, names, names.layer.format(layer), own, config.width)
            part = config.first_state_part(layer) + 1 + len(block.attention.shifts)
            shift = shifting(part, share)
        made.append(RwkvBlock(block, block.attention, shift))
    return RwkvBlocks(tuple(made))


def time_mixing(
    source: WeightSource, config: ModelConfig, names: TensorNames, kind: Rwkv7, layer: int
) -> TimeMixing:
    """The time mixing of one layer."""
    own, at, width = names.rwkv, names.layer.format(layer), config.width
    assert own is not None
    part, keys, values = (
        config.first_state_part(layer),
        kind.heads * kind.key_dim,
        kind.heads * kind.value_dim,
    )
    shifts = _shares(source, names, own, at, kind, width)

    def low(pair: tuple[str, str], rank: int, rows: int, activation: str, bias: str = "") -> LowRank:
        down = linear(source, at + pair[0], rank, width, False)
        up = linear(source, at + pair[1], rows, rank, bool(activation != "sigmoid" and not bias))
        if bias:
            up = Linear(up.weight, source.vector(at + bias, rows), up.adapters)
            source.linears[at + pair[1]] = up
        return LowRank(down, up, activation)

    decay, rate, share, gate = kind.ranks
    by_head = (kind.heads, kind.key_dim)
    weights = DeltaWeights(
        rwkv_shape(kind),
        source.vector(at + own.removal, keys).reshape(by_head),
        source.vector(at + own.mixing, keys).reshape(by_head),
        _stored(source, names, at, own.bonus, keys).reshape(by_head),
    )
    normed = kind.norm_eps > 0
    return TimeMixing(
        tuple(shifting(part + 1 + i, row) for i, row in enumerate(shifts)),
        linear(source, at + names.query, keys, width, False),
        linear(source, at + names.key, keys, width, False),
        linear(source, at + names.value, values, width, False),
        low(own.decay, decay, keys, "tanh", own.biases[0]),
        low(own.rate, rate, keys, "identity", own.biases[1]),
        low(own.value_share, share, values, "identity", own.biases[2]) if layer else None,
        low(own.gate, gate, values, "sigmoid") if gate else None,
        part,
        weights,
        Norm(
            source.vector(at + own.norm + ".weight", values), kind.norm_eps,
            source.vector(at + own.norm + ".bias", values), True, kind.heads,
        ) if normed else None,
        linear(source, at + names.output, width, values, False),
    )  # fmt: skip


def _shares(
    source: WeightSource, names: TensorNames, own: RwkvNames, at: str, kind: Rwkv7, width: int
) -> list[Floats]:
    """The shares of the row before in what the parts are made of."""
    count = 5 + (kind.ranks[3] > 0)
    if len(own.shares) == 1:
        rows = _stored(source, names, at, own.shares[0], count * width).reshape(count, width)
        return list(rows)
    return [_stored(source, names, at, name, width) for name in own.shares[:count]]


def _stored(source: WeightSource, names: TensorNames, at: str, name: str, size: int) -> Floats:
    """A vector that files have in several shapes."""
    assert names.rwkv is not None
    shape = dict(names.rwkv.dims).get(name, ())
    shape = shape if math.prod(shape) == size else (size,)
    return source.vector(at + name, *shape).reshape(size)


def shifting(part: int, share: Floats) -> Convolution:
    """x (1 - share) + share times the row before: a convolution of two taps."""
    return Convolution(part, np.stack([share, 1 - share]), None)
