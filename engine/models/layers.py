"""The parts decoders are made of. Each knows its weights and calls `Ops`; none knows a device.

Shape letters as in `engine/core.py`: T rows, E width, H heads, G key/value heads, D head dimension, F feed-forward width.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.backends.base import Array, AttentionShape, Floats, Ops, RotaryTable, Weight


@dataclass(frozen=True, slots=True)
class Linear:
    """x (T, K) -> (T, N)."""

    weight: Weight
    bias: Floats | None = None

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        return ops.linear(x, self.weight, self.bias, residual)


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """x (T, E) -> (T, E)."""

    weight: Floats
    eps: float

    def __call__(self, ops: Ops, x: Array) -> Array:
        return ops.rms_norm(x, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class Attention:
    """Norm, rotary grouped-query attention over the cache, and the way back, added to x (T, E)."""

    layer: int
    shape: AttentionShape
    norm: RmsNorm
    query: Linear
    key: Linear
    value: Linear
    output: Linear

    def __call__(self, ops: Ops, x: Array, rotary: RotaryTable) -> Array:
        h = self.norm(ops, x)
        q = ops.rope(self.query(ops, h), rotary, self.shape.heads)  # (T, H * D)
        k = ops.rope(self.key(ops, h), rotary, self.shape.kv_heads)  # (T, G * D)
        attended = ops.attention(self.layer, q, k, self.value(ops, h), self.shape)
        return self.output(ops, attended, residual=x)


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """Norm, down(silu(gate) * up), added to x (T, E). Source: SwiGLU, arXiv 2002.05202."""

    norm: RmsNorm
    gate: Linear
    up: Linear
    down: Linear

    def __call__(self, ops: Ops, x: Array) -> Array:
        h = self.norm(ops, x)
        return self.down(ops, ops.gated(self.gate(ops, h), self.up(ops, h), "silu"), residual=x)


@dataclass(frozen=True, slots=True)
class Block:
    """One layer: attention, then the feed-forward part."""

    attention: Attention
    mlp: GatedMlp

    def __call__(self, ops: Ops, x: Array, rotary: RotaryTable) -> Array:
        return self.mlp(ops, self.attention(ops, x, rotary))


@dataclass(frozen=True, slots=True)
class Parts:
    """A whole decoder. With a tied embedding `head.weight` is `embed` itself."""

    embed: Weight
    blocks: tuple[Block, ...]
    norm: RmsNorm
    head: Linear

    def __call__(self, ops: Ops, rotary: RotaryTable) -> Array:
        """The logits (logit_rows, V)."""
        x = ops.embed(self.embed)
        for block in self.blocks:
            x = block(ops, x, rotary)
        return self.head(ops, self.norm(ops, ops.last_rows(x)))
