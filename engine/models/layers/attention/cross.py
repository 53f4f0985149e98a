"""Layers that look at pictures alone (Llama 3.2 Vision, arXiv 2407.21783, section 7.2): cross-attention to
what a vision encoder made of them, and a feed-forward part, each behind a gate.

x = x + tanh(a) out(softmax(scale norm(query(norm(x))) norm(key(p))^T) value(p)), then x = x + tanh(b) s
mlp(norm(x)), where p (L, E) are the rows of the pictures. s is 1, but 0 for rows that see no picture; to
these the first half adds nothing either, since they see keys and values of zeros. A further layer without
weights tells s: its values are ones for pictures, and its queries zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.base import Array, AttentionShape, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.layers.parts import Block, GatedMlp, Linear, Norm, RopeTables, scaled
from engine.models.layers.whole import Observe, unobserved


@dataclass(frozen=True, slots=True)
class CrossBlock:
    """One such layer; `number` is that of its keys and values in `KVCache.cross`. The `gates` are tanh(a) and
    tanh(b).
    """

    number: int
    shape: AttentionShape
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    query_norm: Norm
    key_norm: Norm
    attention_norm: Norm
    mlp_norm: Norm
    mlp: GatedMlp
    gates: tuple[float, float]

    def __call__(self, ops: Ops, x: Array, sees: Array) -> Array:
        """x (T, E) after the layer; `sees` (T, 1) are s of each row."""
        q = self.query_norm(ops, self.query(ops, self.attention_norm(ops, x)))
        y = self.output(ops, ops.cross_attention(self.number, q, self.shape))
        x = ops.add(x, y, self.gates[0])
        y = self.mlp(ops, self.mlp_norm(ops, x))
        return ops.mix([y], scaled(ops, sees, self.gates[1]), 0, x)

    @property
    def nbytes(self) -> int:
        """Of its matrices."""
        gate = self.mlp.gate
        assert isinstance(gate, Linear)
        assert isinstance(self.mlp.up, Linear)
        every = (self.query, self.key, self.value, self.output, gate, self.mlp.up, self.mlp.down)
        return sum(each.weight.nbytes for each in every)

    def write(self, ops: Ops, rows: Array) -> None:
        """Write the keys and values of a picture's rows (L, E)."""
        k, v = self.key_norm(ops, self.key(ops, rows)), self.value(ops, rows)
        ops.kv_write(self.number, k, v, self.shape)


@dataclass(frozen=True, slots=True)
class CrossingBlocks:
    """Layers one after the other, some of which look at pictures."""

    blocks: tuple[Block | CrossBlock, ...]
    lookups: Sequence[Weight] = ()

    @property
    def crossing(self) -> tuple[CrossBlock, ...]:
        """Those that look at pictures."""
        return tuple(block for block in self.blocks if isinstance(block, CrossBlock))

    @property
    def nbytes(self) -> int:
        """Of the matrices of those."""
        return sum(block.nbytes for block in self.crossing)

    @property
    def shapes(self) -> tuple[AttentionShape, ...]:
        """The layers of `KVCache.cross`; the last one tells whether a row sees a picture."""
        shapes = [block.shape for block in self.crossing]
        dim = shapes[0].head_dim
        return (*shapes, AttentionShape(1, 1, dim, dim**-0.5))

    @property
    def kv_shapes(self) -> tuple[tuple[int, int], ...]:
        """As `ModelInfo.kv_shapes`, of those layers of the cache."""
        return tuple((shape.kv_heads, shape.head_dim) for shape in self.shapes)

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        return self.observed(ops, x, tables, unobserved)

    def observed(self, ops: Ops, x: Array, tables: RopeTables, observe: Observe) -> Array:
        """As `Layered.observed`."""
        shapes = self.shapes
        zeros = scaled(ops, ops.columns(x, 0, shapes[-1].head_dim), 0.0)
        sees = ops.columns(ops.cross_attention(len(shapes) - 1, zeros, shapes[-1]), 0, 1)
        x = observe(0, x)
        for layers, block in enumerate(self.blocks, 1):
            made = block(ops, x, sees) if isinstance(block, CrossBlock) else block(ops, x, tables)
            x = observe(layers, made)
        return x

    def write(self, ops: Ops, rows: Array, ones: Array) -> Array:
        """Write what rows of pictures (L, E) are in all layers; `ones` (L, D) are those of the last."""
        for block in self.crossing:
            block.write(ops, rows)
        return ops.kv_write(len(self.crossing), scaled(ops, ones, 0.0), ones, self.shapes[-1])
