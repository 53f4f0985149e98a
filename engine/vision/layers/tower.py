"""The layers of a vision transformer (ViT, arXiv 2010.11929), built of the same parts as decoders.

A picture is cut into patches; each becomes a row (a linear layer over its pixels, plus its position), and all
rows attend to each other. Shape letters: T patches, E width, H heads, D head dimension, F feed-forward width.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import reduce

import numpy as np

from engine.backends.base import Array, AttentionShape, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.building.attention import Attention, FusedQkv, Inputs, SeparateQkv
from engine.models.building.source import WHOLE, View, WeightSource, linear, norm
from engine.models.layers.parts import (
    Block,
    Changes,
    FeedForward,
    GatedMlp,
    Linear,
    Norm,
    PlainMlp,
    RopeTables,
    scaled,
)
from engine.models.layers.whole import Blocks

QUICK = "quick_gelu"
"""x sigmoid(1.702 x), as in CLIP (arXiv 2103.00020)."""
ACTIVATIONS = {
    "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "quick_gelu": QUICK,
    "silu": "silu", "swish": "silu", "relu": "relu",
}  # fmt: skip
"""The names of config.json -> those of `Ops`, or `QUICK`."""


NO_ROPE = RopeTables()


@dataclass(frozen=True, slots=True)
class TowerShape:
    """Of a tower: E, the number of layers, H, F and D (0: E / H); `activation` is a value of `ACTIVATIONS`.

    `gated`: the feed-forward part has a gate. `layer_norm`: norms are layer norms, else RMS norms.
    `qk_norm` is "none", "row" or "head", RMS norms with `rms_qk_norm`. If `rotated`, queries and keys are
    rotated by the main rotary table. Of keys and values there are `kv_heads` (0: as many as of queries).
    """

    width: int
    layers: int
    heads: int
    mlp_width: int
    eps: float
    activation: str
    head_dim: int = 0
    gated: bool = False
    layer_norm: bool = True
    qk_norm: str = "none"
    rms_qk_norm: bool = False
    rotated: bool = False
    kv_heads: int = 0

    @property
    def attention(self) -> AttentionShape:
        """The attention of each layer: in both directions."""
        dim = self.head_dim or self.width // self.heads
        return AttentionShape(self.heads, self.kv_heads or self.heads, dim, dim**-0.5, bidirectional=True)


@dataclass(frozen=True, slots=True)
class TowerNames:
    """The names of a tower's tensors, without ".weight" and ".bias". Those of a layer follow `layer`, in
    which {} is its number. `query_key_value` counts where it is not empty. `scales` multiply what both halves
    of a layer add (layer scale, arXiv 2103.17239); their names have no end.
    """

    layer: str
    attention_norm: str
    query: str
    key: str
    value: str
    output: str
    mlp_norm: str
    up: str
    down: str
    gate: str = ""
    query_key_value: str = ""
    query_norm: str = ""
    key_norm: str = ""
    scales: tuple[str, str] | None = None

    def under(self, prefix: str) -> TowerNames:
        """The same with `prefix` before all names."""
        return replace(self, layer=prefix + self.layer)


GGUF = TowerNames(
    "v.blk.{}.", "ln1", "attn_q", "attn_k", "attn_v", "attn_out", "ln2", "ffn_up", "ffn_down", "ffn_gate",
    query_norm="attn_q_norm", key_norm="attn_k_norm", scales=("ls1.weight", "ls2.weight"),
)  # fmt: skip
"""The names in llama.cpp's mmproj files (tools/mtmd/clip-impl.h)."""
SIGLIP = TowerNames(
    "encoder.layers.{}.", "layer_norm1", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
    "self_attn.out_proj", "layer_norm2", "mlp.fc1", "mlp.fc2",
)  # fmt: skip
"""The names in Hugging Face's SigLIP (arXiv 2303.15343) and CLIP (arXiv 2103.00020), under a prefix."""


@dataclass(frozen=True, slots=True)
class QuickMlp:
    """down(quick_gelu(up(x)))."""

    up: Linear
    down: Linear

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        y = self.up(ops, x)
        return self.down(ops, ops.gated(scaled(ops, y, 1.702), y, "sigmoid"), residual)


def patch_linear(
    source: WeightSource, name: str, width: int, size: int, bias: bool | None, *, flat: bool = False
) -> Linear:
    """The convolution over patches of `size` pixels square as a linear layer: kernels (E, 3, size, size), or
    a matrix if it is stored `flat`.
    """
    return linear(source, name, width, 3 * size * size, bias, WHOLE if flat else View(kernel=(3, size, size)))


def tower_layers(
    source: WeightSource, shape: TowerShape, names: TowerNames, layers: int, first: int = 0
) -> Generator[int, None, Blocks]:
    """Build the layers from `first` up to this number; yields the number of the next one after each.

    All use the cache's layer 0: what a pass writes there it reads before the next layer writes.
    """
    blocks, zeros = list[Block](), None
    if names.scales and source.has(names.layer.format(0) + names.scales[0]):
        zeros = source.constant(np.zeros((shape.width, 1), np.float32))
    for number in range(first, layers):
        at = names.layer.format(number)
        builder = _Layer(source, shape, names, at, zeros)
        blocks.append(
            Block(
                builder.attention(),
                builder.feed_forward(),
                builder.norm(names.attention_norm, shape.width),
                builder.norm(names.mlp_norm, shape.width),
            )
        )
        yield number + 1
    return Blocks(tuple(blocks))


@dataclass(frozen=True, slots=True)
class _Layer:
    """Builds the parts of one layer, whose names begin with `at`. With `zeros` (E, 1) it has layer scales."""

    source: WeightSource
    shape: TowerShape
    names: TowerNames
    at: str
    zeros: Weight | None

    def norm(self, name: str, size: int, *, rms: bool = False) -> Norm:
        kind = self.shape.layer_norm and not rms
        bias = None if kind else False
        return norm(self.source, self.at + name, size, self.shape.eps, layer_norm=kind, bias=bias)

    def linear(self, name: str, rows: int, columns: int) -> Linear:
        return linear(self.source, self.at + name, rows, columns, None)

    def attention(self) -> Attention:
        width, shape, names = self.shape.width, self.shape.attention, self.names
        inner, others = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        inputs: Inputs
        if names.query_key_value:
            fused = self.linear(names.query_key_value, inner + 2 * others, width)
            inputs = FusedQkv(fused, (inner, others, others))
        else:
            each = (names.query, inner), (names.key, others), (names.value, others)
            inputs = SeparateQkv(*(self.linear(name, rows, width) for name, rows in each))
        query_norm = key_norm = None
        if self.shape.qk_norm != "none":
            query_norm = self._head_norm(names.query_norm, shape.heads)
            key_norm = self._head_norm(names.key_norm, shape.kv_heads)
        output = self._scaled(self.linear(names.output, width, inner), 0)
        rope = "main" if self.shape.rotated else "none"
        return Attention(0, shape, inputs, output, rope, query_norm, key_norm)

    def _head_norm(self, name: str, heads: int) -> Norm:
        dim, rms = self.shape.attention.head_dim, self.shape.rms_qk_norm
        if self.shape.qk_norm == "row":
            return self.norm(name, heads * dim, rms=rms)
        return replace(self.norm(name, dim, rms=rms), heads=heads)

    def feed_forward(self) -> FeedForward:
        width, inner, names = self.shape.width, self.shape.mlp_width, self.names
        up = self.linear(names.up, inner, width)
        down = self._scaled(self.linear(names.down, width, inner), 1)
        if self.shape.gated:
            gate = self.linear(names.gate, inner, width)
            return GatedMlp(gate, up, down, inner, self.shape.activation)
        return activated(up, down, self.shape.activation)

    def _scaled(self, output: Linear, half: int) -> Linear:
        """`output` with its layer scale, if there is one."""
        if self.zeros is None or self.names.scales is None:
            return output
        factors = self.source.vector(self.at + self.names.scales[half], self.shape.width)
        bias = None if output.bias is None else output.bias * factors
        return Linear(output.weight, bias, Changes(factors=(self.zeros, factors)))


def activated(up: Linear, down: Linear, activation: str) -> FeedForward:
    """down(activation(up(x))); `activation` is a value of `ACTIVATIONS`."""
    return QuickMlp(up, down) if activation == QUICK else PlainMlp(up, down, activation)


@dataclass(frozen=True, slots=True)
class Tower:
    """patches (T, K) and the rows of their positions (T, E) -> (T, E).

    `first` makes rows of patches, `before` and `after` stand before and after all layers. With several
    `features`, the result is the states after this many layers, side by side, (T, E * len(features)). If
    `placed_last`, positions are added to what `before` makes.
    """

    first: Linear
    blocks: Blocks
    before: Norm | None = None
    after: Norm | None = None
    features: tuple[int, ...] = ()
    placed_last: bool = False

    def __call__(
        self, ops: Ops, patches: Array, positions: Array | None, tables: RopeTables = NO_ROPE
    ) -> Array:
        x = self.first(ops, patches, None if self.placed_last else positions)
        x = self.before(ops, x) if self.before else x
        x = ops.add(x, positions) if self.placed_last else x
        states: dict[int, Array] = {}

        def observe(layers: int, x: Array) -> Array:
            states[layers] = x
            return x

        x = self.blocks.observed(ops, x, tables, observe)
        if len(self.features) > 1:
            return reduce(lambda y, z: ops.join(y, z, 1), [states[layers] for layers in self.features])
        return self.after(ops, x) if self.after else x
