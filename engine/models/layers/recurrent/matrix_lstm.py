"""The LSTM with a matrix as its memory (mLSTM, arXiv 2405.04517), from operations that other layers have.

With the gates i = e^a and f = sigmoid(b), whose a and b are soft-capped, a head's memory C (Dk, Dv) and its
sum of keys n (Dk,) advance as C = f C + i k v^T and n = f n + i k. They make h = C^T q / max(|n q|, 1), which
is layer-normed. The cap bounds the gates, so that no further state need keep exponents in bounds.
"""

from __future__ import annotations

import math

import numpy as np

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.config import ModelConfig
from engine.models.config.recurrent import MatrixLstm, matrix_lstm_shapes
from engine.models.layers.parts import Linear, Norm, RopeTables, scaled
from engine.models.layers.recurrent.parts import Recurrence, RecurrentSource

_SHIFT = 17.0
"""sigmoid(x) is e^x in float32 for all x below minus this."""
_HUGE = 2.0**50


@dataclass(frozen=True, slots=True)
class MatrixLstmMixer:
    """`memory` has the matrices, `keys` their sums of keys. `centred` takes the mean from each head's values,
    and `norm` is the rest of the layer norm: that of h is that of C^T q, with max(|n q|, 1) times the root of
    epsilon as one more number.
    """

    query: Linear
    key: Linear
    value: Linear
    gate: Linear
    input_gate: Linear
    forget_gate: Linear
    memory: Recurrence
    keys: Recurrence
    centred: Norm
    norm: Norm
    output: Linear
    kind: MatrixLstm

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        kind, cap = self.kind, self.kind.cap
        # Products of one input next to each other, so that backends run them at once.
        made = self.query, self.key, self.value, self.gate, self.input_gate, self.forget_gate
        q, k, v, gate, strength, decay = (each(ops, x) for each in made)
        q, v = scaled(ops, q, kind.key_dim**-0.5), self.centred(ops, v)
        # cap tanh(a / cap) is 2 cap sigmoid(2 a / cap) - cap
        shift = -2 * cap - _SHIFT
        strength = ops.activate_with(scaled(ops, strength, 2 / cap), "sigmoid", (2 * cap, shift))
        decay = ops.soft_cap(scaled(ops, decay, -1.0), 1.0, cap)
        y = self.memory(ops, (q, k, v), decay, strength)
        size = self.keys(ops, (q, k, self._constant(ops, decay, math.exp(cap + _SHIFT))), decay, strength)
        ones = self._constant(ops, decay, 1.0)
        above = ops.add(ops.activate(size, "relu"), ops.activate(scaled(ops, size, -1.0), "relu"))
        most = ops.add(ops.activate(ops.add(above, ones, -1.0), "relu"), ones)
        y = self.norm(ops, ops.join(y, scaled(ops, most, self._root), kind.heads))
        y = ops.columns(y, 0, kind.value_dim, kind.heads)
        return self.output(ops, ops.gated(gate, y, "sigmoid"), residual)

    @property
    def _root(self) -> float:
        return math.sqrt(self.kind.norm_eps * self.kind.value_dim)

    def _constant(self, ops: Ops, x: Array, value: float) -> Array:
        """This value for each row of x (T, H) and head."""
        zeros = np.zeros(self.kind.heads, np.float32)
        return ops.layer_norm(x, zeros, zeros + np.float32(value), 1.0)


# -- building


def matrix_lstm(layer: RecurrentSource, config: ModelConfig, kind: MatrixLstm, part: int) -> MatrixLstmMixer:
    """The mixer of one layer, whose first part of a state is number `part`."""
    names, width, dim = layer.names, config.width, kind.value_dim
    keys, values = kind.heads * kind.key_dim, kind.heads * dim
    rate, shift = np.full(kind.heads, -1, np.float32), np.zeros(kind.heads, np.float32)
    memory, sums = (
        Recurrence(part + i, shape, rate, shift) for i, shape in enumerate(matrix_lstm_shapes(kind))
    )
    weight = np.zeros((kind.heads, dim + 1), np.float32)
    stored = layer.source.vector(layer.at + names.norm + ".weight", values).reshape(kind.heads, dim)
    weight[:, :dim] = stored * np.float32(math.sqrt(dim / (dim + 1)))
    # A layer norm whose epsilon is so large that nothing else counts
    factor = np.float32(_HUGE * math.exp(kind.cap + _SHIFT))
    query, key, value, gate = (
        layer.linear(name, rows, width, False)
        for name, rows in (
            (names.query, keys),
            (names.key, keys),
            (names.value, values),
            (names.gate, values),
        )
    )
    return MatrixLstmMixer(
        query, key, value, gate, layer.linear(names.beta, kind.heads, width, True),
        layer.linear(names.decay, kind.heads, width, True), memory, sums,
        Norm(np.full(dim, factor, np.float32), _HUGE**2, None, True, kind.heads),
        Norm(weight.reshape(-1), 1e-30, heads=kind.heads),
        layer.linear(names.output, width, values, False), kind,
    )  # fmt: skip
