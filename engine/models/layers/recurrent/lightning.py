"""Lightning attention (MiniMax, arXiv 2501.08313; Ring-linear, arXiv 2510.19338): linear attention whose
heads decay at fixed rates, and how it is built from a file's tensors.

Shape letters as in `engine.models.layers.parts`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.config import ModelConfig
from engine.models.config.recurrent import Lightning, lightning_shape
from engine.models.layers.parts import Linear, Norm, RopeTables, scaled
from engine.models.layers.positions.alibi import alibi_slopes
from engine.models.layers.recurrent.parts import Recurrence, RecurrentSource, split
from engine.tensors import Floats

_SHIFT = float(np.log(np.expm1(1.0)))
"""Its softplus is 1."""


@dataclass(frozen=True, slots=True)
class LightningMixer:
    """`inputs` makes queries, keys and values; the result is normed and gated by the sigmoid of `gate`. A
    step of the recurrence is 1 at each row.

    If `rotated`, all queries come first, then all keys, then all values; the first two are normed, rotated
    and scaled as those of attention are. Otherwise the query, the key and the value of each head come in
    turn, changed by an `activation`.
    """

    inputs: Linear
    gate: Linear
    recurrence: Recurrence
    norm: Norm
    output: Linear
    activation: str
    rotated: bool
    query_norm: Norm | None = None
    key_norm: Norm | None = None

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        mixed, gate = self.inputs(ops, x), self.gate(ops, x)
        qkv = (self._rotated if self.rotated else self._activated)(ops, mixed, tables)
        steps = scaled(ops, ops.columns(mixed, 0, self.recurrence.shape.key_heads), 0.0)
        y = self.recurrence(ops, qkv, steps, None)
        return self.output(ops, ops.gated(gate, self.norm(ops, y), "sigmoid"), residual)

    def _activated(self, ops: Ops, mixed: Array, tables: RopeTables) -> tuple[Array, Array, Array]:
        heads, dim = self.recurrence.shape.key_heads, self.recurrence.shape.key_dim
        mixed = ops.activate(mixed, self.activation)
        q, k, v = (ops.columns(mixed, part * dim, dim, heads) for part in range(3))
        return q, k, v

    def _rotated(self, ops: Ops, mixed: Array, tables: RopeTables) -> tuple[Array, Array, Array]:
        heads, dim = self.recurrence.shape.key_heads, self.recurrence.shape.key_dim
        q, k, v = split(ops, mixed, (heads * dim,) * 3)
        q = self.query_norm(ops, q) if self.query_norm else q
        k = self.key_norm(ops, k) if self.key_norm else k
        if tables.main is not None:
            q, k = (ops.rope(part, tables.main, heads) for part in (q, k))
        return scaled(ops, q, dim**-0.5), k, v


def lightning_mixer(
    layer: RecurrentSource, config: ModelConfig, kind: Lightning, part: int
) -> LightningMixer:
    """The mixer of the layer whose only part of a state is number `part`."""
    names, width, inner = layer.names, config.width, kind.heads * kind.dim
    shift = np.full(kind.heads, _SHIFT, np.float32)
    number = sorted(config.recurrent_layers)[part]
    own = rotated_rates if kind.rotated else decay_rates
    weights = layer.norm(kind.norm_groups, kind.norm_eps, inner)
    made = LightningMixer(
        layer.linear(names.input, 3 * inner, width, config.attention_bias and kind.rotated),
        layer.linear(names.gate, inner, width, False),
        Recurrence(part, lightning_shape(kind), -own(kind.heads, number, config.layers), shift),
        weights,
        layer.linear(names.output, width, inner, config.output_bias and kind.rotated),
        config.activation,
        kind.rotated,
    )
    if not kind.rotated or config.qk_norm == "none":
        return made
    of_query, of_key = (
        Norm(layer.source.vector(f"{layer.at}{name}.weight", kind.dim), kind.norm_eps, heads=kind.heads)
        for name in (names.query_norm, names.key_norm)
    )
    return replace(made, query_norm=of_query, key_norm=of_key)


def decay_rates(heads: int, layer: int, layers: int) -> Floats:
    """How fast each head (H,) forgets in a layer: slower in later ones. Source: MiniMax's reference code."""
    share = 1.0 - layer / (layers - 1 + 1e-5) + 1e-5
    return (2.0 ** (-8.0 * np.arange(1, heads + 1) / heads) * share).astype(np.float32)


def rotated_rates(heads: int, layer: int, layers: int) -> Floats:
    """As `decay_rates`, for heads whose queries and keys are `rotated`: ALiBi's slopes, which the first layer
    has more than whole. Source: Ring-linear's reference code.
    """
    share = 1.0 - (layer - 1) / max(1, layers - 1) + 1e-5
    return (np.array(alibi_slopes(heads)) * share).astype(np.float32)
