"""Lightning attention (MiniMax, arXiv 2501.08313): linear attention whose heads decay at fixed rates, and how
it is built from a file's tensors.

Shape letters as in `engine.models.layers.parts`.
"""

from __future__ import annotations

import numpy as np

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.config import ModelConfig
from engine.models.config.recurrent import Lightning, lightning_shape
from engine.models.layers.parts import Linear, Norm, RopeTables, scaled
from engine.models.layers.recurrent.parts import Recurrence, RecurrentSource
from engine.tensors import Floats

_SHIFT = float(np.log(np.expm1(1.0)))
"""Its softplus is 1."""


@dataclass(frozen=True, slots=True)
class LightningMixer:
    """`inputs` makes query, key and value of each head in turn; the result is normed as a row and gated by
    the sigmoid of `gate`. A step of the recurrence is 1 at each row.
    """

    inputs: Linear
    gate: Linear
    recurrence: Recurrence
    norm: Norm
    output: Linear
    activation: str

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        heads, dim = self.recurrence.shape.key_heads, self.recurrence.shape.key_dim
        mixed, gate = self.inputs(ops, x), self.gate(ops, x)
        mixed = ops.activate(mixed, self.activation)
        q, k, v = (ops.columns(mixed, part * dim, dim, heads) for part in range(3))
        steps = scaled(ops, ops.columns(mixed, 0, heads), 0.0)
        y = self.recurrence(ops, (q, k, v), steps, None)
        return self.output(ops, ops.gated(gate, self.norm(ops, y), "sigmoid"), residual)


def lightning_mixer(
    layer: RecurrentSource, config: ModelConfig, kind: Lightning, part: int
) -> LightningMixer:
    """The mixer of the layer whose only part of a state is number `part`."""
    names, width, inner = layer.names, config.width, kind.heads * kind.dim
    shift = np.full(kind.heads, _SHIFT, np.float32)
    rates = -decay_rates(kind.heads, sorted(config.recurrent_layers)[part], config.layers)
    return LightningMixer(
        layer.linear(names.input, 3 * inner, width, False),
        layer.linear(names.gate, inner, width, False),
        Recurrence(part, lightning_shape(kind), rates, shift),
        layer.norm(1, kind.norm_eps, inner),
        layer.linear(names.output, width, inner, False),
        config.activation,
    )


def decay_rates(heads: int, layer: int, layers: int) -> Floats:
    """How fast each head (H,) forgets in a layer: slower in later ones. Source: MiniMax's reference code."""
    share = 1.0 - layer / (layers - 1 + 1e-5) + 1e-5
    return (2.0 ** (-8.0 * np.arange(1, heads + 1) / heads) * share).astype(np.float32)
