"""RWKV-6 (arXiv 2404.05892): time mixing whose shares of the row before depend on the rows, and channel
mixing with a gate.

Shape letters as in `engine.models.layers.parts`; H heads, D numbers of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.backends.states import DeltaWeights
from engine.lazy_dataclass import dataclass
from engine.models.building.source import View, WeightSource, linear
from engine.models.config import ModelConfig
from engine.models.config.recurrent import Rwkv4, Rwkv6, rwkv_6_shape
from engine.models.layers.parts import Block, FeedForward, Linear, Norm, RopeTables, scaled
from engine.models.layers.recurrent.parts import Convolution
from engine.models.layers.recurrent.rwkv7 import LowRank, shifting
from engine.models.layers.whole import Blocks, Stack
from engine.models.names import ShiftNames, TensorNames
from engine.tensors import Floats

_MIXED = 5
"""The parts made of mixtures: decay, key, value, receptance, gate."""


@dataclass(frozen=True, slots=True)
class DependentMixing:
    """In place of attention. `moved` makes the row before minus the row, `first` a mixture of both;
    of that, `down` and `ups` make the shares of the row before in what each part is made of.

    Results are normed head by head if there is a `norm`; receptances are multiplied by `scale`.
    """

    moved: Convolution
    first: Convolution
    down: Linear
    ups: tuple[Linear, ...]
    decay: LowRank
    key: Linear
    value: Linear
    receptance: Linear
    gate: Linear
    part: int
    weights: DeltaWeights
    norm: Norm | None
    output: Linear
    scale: float

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        moved, rank = self.moved(ops, x), self.ups[0].weight.shape[1]
        inner = ops.soft_cap(self.down(ops, self.first(ops, x)), 1.0, 1.0)
        shares = [up(ops, ops.columns(inner, i * rank, rank)) for i, up in enumerate(self.ups)]
        mixed = [ops.add(x, ops.gated(share, moved, "identity")) for share in shares]
        for_decay, for_key, for_value, for_receptance, for_gate = mixed
        r = scaled(ops, self.receptance(ops, for_receptance), self.scale)
        decay = self.decay(ops, for_decay)
        both = ops.generalised_delta(
            self.part, (r, self.key(ops, for_key), self.value(ops, for_value)), decay, decay, self.weights
        )
        size = self.output.weight.shape[1]
        y = ops.columns(both, 0, size)
        if self.norm is not None:
            y = self.norm(ops, ops.add(y, ops.columns(both, size, size)))
        y = ops.gated(self.gate(ops, for_gate), y, "silu" if self.norm else "sigmoid")
        return self.output(ops, y, residual)


@dataclass(frozen=True, slots=True)
class ChannelMixing:
    """sigmoid(gate) * inner, each of a mixture with the row before."""

    shift: Convolution
    inner: FeedForward
    gate_shift: Convolution
    gate: Linear

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        y = ops.gated(self.gate(ops, self.gate_shift(ops, x)), self.inner(ops, self.shift(ops, x)), "sigmoid")
        return y if residual is None else ops.add(residual, y)


@dataclass(frozen=True, slots=True)
class HalvedBlocks:
    """Layers one after the other; after each `every` of them their sum is halved."""

    blocks: tuple[Block, ...]
    every: int
    lookups: Sequence[Weight] = ()

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        for layer, block in enumerate(self.blocks, 1):
            x = block(ops, x, tables)
            x = x if layer % self.every else scaled(ops, x, 0.5)
        return x


# -- building


def mixing_blocks(
    source: WeightSource,
    config: ModelConfig,
    names: TensorNames,
    kind: Rwkv4 | Rwkv6,
    blocks: Sequence[Block],
) -> Stack:
    """The blocks of RWKV-4 or 6, joined."""
    every, made = kind.halved_every, list(blocks)
    if isinstance(kind, Rwkv4) or not kind.gated:
        made = [_mixes_channels(source, config, names, block, layer) for layer, block in enumerate(blocks)]
    if isinstance(kind, Rwkv4) and every:  # the weights of files of RWKV-6 are halved already
        made = [
            replace(block, scales=((1.0, 0.5 ** (layer // every)),) * 2) for layer, block in enumerate(made)
        ]
    return HalvedBlocks(tuple(made), every) if every else Blocks(tuple(made))


def _mixes_channels(
    source: WeightSource, config: ModelConfig, names: TensorNames, block: Block, layer: int
) -> Block:
    own, at, width = names.shifted, names.layer.format(layer), config.width
    assert own is not None
    assert block.mlp is not None
    part = config.first_state_part(layer + 1) - 2
    shares = [share_of(source, own, at + name, width) for name in own.channel_shares]
    gate = linear(source, at + own.channel_gate, width, width, False)
    mixing = ChannelMixing(shifting(part, shares[0]), block.mlp, shifting(part + 1, shares[1]), gate)
    return replace(block, mlp=mixing)


def share_of(source: WeightSource, own: ShiftNames, name: str, width: int) -> Floats:
    """The share (E,) of the row before under this name."""
    stored = source.vector(name, 1, 1, width).reshape(width)
    return 1 - stored if own.of_the_row else stored


def rwkv_6_mixing(
    source: WeightSource, config: ModelConfig, names: TensorNames, kind: Rwkv6, layer: int
) -> DependentMixing:
    """The time mixing of one layer."""
    own, at, width, part = (
        names.shifted,
        names.layer.format(layer),
        config.width,
        config.first_state_part(layer),
    )
    assert own is not None
    size, keys = kind.heads * kind.dim, kind.groups * kind.dim
    bias = None if kind.gated else False
    first, *shares = _shares(source, own, at, width)
    ups = tuple(
        Linear(source.matrix(at + own.mixture[1] + ".weight", width, kind.rank, View(i, _MIXED)), share)
        for i, share in enumerate(shares)
    )
    up = linear(source, at + own.decay[1], size, kind.decay_rank, False)
    up = replace(up, bias=source.vector(at + own.decay[2], size))
    down = linear(source, at + own.decay[0], kind.decay_rank, width, False)
    weights = DeltaWeights(
        rwkv_6_shape(kind), None, None,
        None if kind.gated else source.vector(at + own.bonus, kind.heads, kind.dim),
    )  # fmt: skip
    return DependentMixing(
        Convolution(part + 1, np.stack([np.ones_like(first), -np.ones_like(first)]), None),
        shifting(part + 2, first),
        linear(source, at + own.mixture[0], _MIXED * kind.rank, width, False),
        ups,
        LowRank(down, up, "tanh"),
        linear(source, at + names.key, keys, width, bias),
        linear(source, at + names.value, keys, width, bias),
        linear(source, at + names.query, size, width, bias),
        linear(source, at + own.gate, size, width, False),
        part,
        weights,
        None if kind.gated else _norm(source, at + own.norm, kind, size),
        linear(source, at + names.output, width, size, False),
        kind.dim**-0.5 if kind.gated else 1.0,
    )


def _norm(source: WeightSource, name: str, kind: Rwkv6, size: int) -> Norm:
    weight, bias = (source.vector(f"{name}.{end}", size) for end in ("weight", "bias"))
    return Norm(weight, kind.norm_eps, bias, True, kind.heads)


def _shares(source: WeightSource, own: ShiftNames, at: str, width: int) -> list[Floats]:
    """The first, and those of decay, key, value, receptance and gate."""
    first, *others = own.shares
    rows = [source.vector(at + first, 1, 1, width)]
    if len(others) == 1:
        rows += list(source.vector(at + others[0], _MIXED, 1, 1, width))
    else:
        rows += [source.vector(at + name, 1, 1, width) for name in others]
    return [row.reshape(width) for row in rows]
