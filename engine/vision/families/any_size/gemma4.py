"""Gemma 4 (its model card): a tower with norms on all sides, limits of numbers, and a place table for each
axis.

Pictures keep their shape, and are enlarged or made smaller to about the same number of tokens; squares of
patches are averaged to one. Of a head, the first half is rotated by the column of its patch, the second by
the row.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from functools import partial

import numpy as np

from engine.backends.base import Array, Ops
from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.models.building.attention import Attention, SeparateQkv
from engine.models.building.source import WHOLE, View, WeightSource, linear, norm
from engine.models.headers.keys import Keys
from engine.models.layers.parts import Block, GatedMlp, Linear, Norm, Order, bare_norm
from engine.tensors import Floats
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.grid_encoder import GridDesign, GridParts
from engine.vision.headers import (
    HALF,
    MOST_HEADS,
    MOST_LAYERS,
    MOST_WIDTH,
    activation,
    inner,
    prefix_of,
    resampling,
    rotated_dim,
    square,
    tower_from_gguf,
)
from engine.vision.layers.grid import Axial, frequencies
from engine.vision.layers.grid_passes import Head
from engine.vision.layers.projector import Projector
from engine.vision.layers.tower import GGUF, TowerShape, patch_linear
from engine.vision.pictures.images import BICUBIC, Normalisation
from engine.vision.pictures.sizes import size_of_tokens
from engine.words import _

SPEC = VisionSpec("gemma4", "<|image|>", "<|image|>")
_BEFORE, _AFTER = "<|image>", "<image|>"
_BASE = 100.0
_EPS = 1e-6
_TOKENS, _POOLED = 280, 3
_BUDGETS = (70, 140, 280, 560, 1120)
"""The numbers of tokens that Gemma 4 has learned to read pictures in."""
_MOST_TOKENS, _MOST_POOLED = _BUDGETS[-1], 16
_NO_LIMITS = (-math.inf, math.inf)
_LIMITS = ("input_min", "input_max"), ("output_min", "output_max")
_PREFIXES = ("model.", "")


def layout(rows: int, columns: int) -> tuple[Piece, ...]:
    """The tokens between those that begin and end a picture."""
    return (_BEFORE, Span(rows, columns), _AFTER)


@dataclass(frozen=True, slots=True)
class Limited(Linear):
    """A linear layer whose numbers are kept within limits before and after it."""

    before: tuple[float, float] = _NO_LIMITS
    after: tuple[float, float] = _NO_LIMITS

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        x = _between(ops, x, self.before)
        if self.after == _NO_LIMITS:
            return Linear.__call__(self, ops, x, residual)
        y = _between(ops, Linear.__call__(self, ops, x), self.after)
        return y if residual is None else ops.add(residual, y)


def _between(ops: Ops, x: Array, limits: tuple[float, float]) -> Array:
    return x if limits == _NO_LIMITS else ops.activate_with(x, "between", limits)


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of an encoder's tensors, without ".weight". Those of a layer follow `layer`; the limits of a
    linear layer have the name of the layer without `linear`.
    """

    first: str
    places: str
    standard: str
    projection: str
    layer: str
    linear: str
    parts: tuple[str, ...]


_PARTS = (
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm",
    "self_attn.k_norm", "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
    "post_feedforward_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
)  # fmt: skip
_GGUF_PARTS = (
    GGUF.query, GGUF.key, GGUF.value, GGUF.output, GGUF.query_norm, GGUF.key_norm, GGUF.attention_norm,
    "attn_post_norm", GGUF.mlp_norm, "ffn_post_norm", GGUF.gate, GGUF.up, GGUF.down,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Shape:
    """`tower` with `kv_heads`, and what else is needed: `places` is the length of each place table. If
    `flat`, of each pixel all colours stand together.
    """

    tower: TowerShape
    kv_heads: int
    patch: int
    pooled: int
    tokens: int
    places: int
    outputs: int
    base: float
    flat: bool


def _parts(shape: _Shape, names: _Names, source: WeightSource) -> Generator[int, None, GridParts]:
    """As `GridDesign.make`."""
    width = shape.tower.width
    first = patch_linear(source, names.first, width, shape.patch, False, flat=shape.flat)
    tables = source.vector(names.places, 2, shape.places, width)
    tables = np.ascontiguousarray(tables[:, : shape.tokens * shape.pooled])  # a picture may be one row
    blocks = list[Block]()
    for number in range(shape.tower.layers):
        blocks.append(_Layer(source, shape, names, names.layer.format(number)).block())
        yield number + 1
    bias, scale = None, None
    if source.has(names.standard + "std_bias"):
        bias, scale = (source.vector(names.standard + name, width) for name in ("std_bias", "std_scale"))
    projector = Projector(
        linear(source, names.projection, shape.outputs, width, False), bare_norm(width, shape.tower.eps, 1)
    )
    head = Head(partial(_pooled, bias, scale), width, projector)
    return GridParts((first,), tuple(blocks), head, place=partial(_placed, tables))


def _placed(tables: Floats, rows: int, columns: int) -> Floats:
    """The sum of the rows for a patch's column and row, of `tables` (2, P, E)."""
    across, down = tables[0, :columns], tables[1, :rows]
    return (down[:, None] + across[None]).reshape(rows * columns, -1)


def _pooled(bias: Floats | None, scale: Floats | None, cells: Floats) -> Floats:
    """The mean of each square of patches times sqrt(E), and (x - bias) * scale of that."""
    mean: Floats = cells.mean(axis=1, dtype=np.float32) * np.float32(cells.shape[2] ** 0.5)
    return mean if bias is None or scale is None else (mean - bias) * scale


@dataclass(frozen=True, slots=True)
class _Layer:
    """Builds one layer, whose names begin with `at`."""

    source: WeightSource
    shape: _Shape
    names: _Names
    at: str

    def block(self) -> Block:
        """The layer."""
        tower, width = self.shape.tower, self.shape.tower.width
        attention, dim, groups = tower.attention, tower.attention.head_dim, self.shape.kv_heads
        query, key, value, output, query_norm, key_norm, *norms = self.names.parts[:10]
        gate, up, down = self.names.parts[10:]
        before, after, before_mlp, after_mlp = (self._norm(name, width) for name in norms)
        mixer = Attention(
            0,
            replace(attention, kv_heads=groups, scale=1.0),
            SeparateQkv(
                self._linear(query, attention.heads * dim, width, _rotary_order(dim, attention.heads)),
                self._linear(key, groups * dim, width, _rotary_order(dim, groups)),
                self._linear(value, groups * dim, width),
            ),
            self._linear(output, width, attention.heads * dim),
            query_norm=self._head_norm(query_norm, attention.heads),
            key_norm=self._head_norm(key_norm, groups),
            value_norm=bare_norm(dim, tower.eps, groups),
        )
        mlp = GatedMlp(
            self._linear(gate, tower.mlp_width, width), self._linear(up, tower.mlp_width, width),
            self._linear(down, width, tower.mlp_width), tower.mlp_width, tower.activation,
        )  # fmt: skip
        return Block(mixer, mlp, before, before_mlp, after, after_mlp)

    def _norm(self, name: str, size: int) -> Norm:
        return norm(self.source, self.at + name, size, self.shape.tower.eps, layer_norm=False, bias=False)

    def _head_norm(self, name: str, heads: int) -> Norm:
        dim = self.shape.tower.attention.head_dim
        found = self._norm(name, dim)
        return replace(found, weight=np.ascontiguousarray(found.weight[_rotary_order(dim, 1)]), heads=heads)

    def _linear(self, name: str, rows: int, columns: int, order: Order | None = None) -> Linear:
        view = WHOLE if order is None else View(order=order, stored_rows=rows)
        made = linear(self.source, self.at + name + self.names.linear, rows, columns, False, view)
        limits = tuple(self._limits(name, pair) for pair in _LIMITS)
        return Limited(made.weight, made.bias, made.adapters, *limits)

    def _limits(self, name: str, ends: tuple[str, str]) -> tuple[float, float]:
        """The least and the greatest number before a linear layer, or after it; infinite ones if the file
        has none.
        """
        whole = [f"{self.at}{name}.{end}" for end in ends]
        if not all(self.source.has(each) for each in whole):
            return _NO_LIMITS
        low, high = (float(self.source.vector(each, 1)[0]) for each in whole)
        return low, high


def _rotary_order(dim: int, heads: int) -> Order:
    """Indices that put the dimensions of `heads` so that the halves of what is rotated by rows, and of what
    is rotated by columns, are half a head apart.
    """
    quarters = np.arange(heads * dim).reshape(heads, 4, dim // 4)
    return np.ascontiguousarray(quarters[:, [2, 0, 3, 1]].reshape(-1))


def _design(shape: _Shape, names: _Names, filter: int, *, bidirectional: bool) -> GridDesign:
    side, dim, longest = shape.patch * shape.pooled, rotated_dim(shape.tower), shape.tokens * shape.pooled
    if shape.places < longest:
        raise BadCheckpoint(
            _(
                "The vision encoder has positions for {found} patches in a row, but {longest} were expected; "
                "the file is damaged.",
                found=shape.places,
                longest=longest,
            )
        )
    pairs = frequencies(dim // 4, dim // 2, shape.base)
    return GridDesign(
        replace(SPEC, bidirectional=bidirectional, windows_alone=bidirectional), shape.tower, shape.patch,
        shape.pooled, shape.outputs, Normalisation(HALF, HALF),
        partial(size_of_tokens, factor=side, most=shape.tokens), filter, shape.tokens * shape.pooled**2,
        Axial(pairs, pairs), partial(_parts, shape, names), layout, colours_last=shape.flat,
        of_tokens=partial(_limited, shape, names, filter, bidirectional),
    )  # fmt: skip


def _limited(shape: _Shape, names: _Names, filter: int, bidirectional: bool, tokens: int) -> GridDesign:
    """The design for the largest of the budgets that is not above `tokens`, whatever the files advise."""
    most = min(tokens, _MOST_TOKENS, max(1, shape.places // shape.pooled))
    budget = max((each for each in _BUDGETS if each <= most), default=most)
    return _design(replace(shape, tokens=budget), names, filter, bidirectional=bidirectional)


def _from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`Gemma4ForConditionalGeneration`."""
    vision, text = inner(config, "vision_config"), inner(config, "text_config")
    prefix = prefix_of(tensors, "vision_tower.patch_embedder.input_proj.weight", _PREFIXES)
    tower = prefix + "vision_tower."
    heads = vision.integer("num_attention_heads", 1, MOST_HEADS, 12)
    shape = TowerShape(
        vision.integer("hidden_size", 1, MOST_WIDTH, 768),
        vision.integer("num_hidden_layers", 1, MOST_LAYERS, 16), heads,
        vision.integer("intermediate_size", 1, MOST_WIDTH, 3072),
        vision.number("rms_norm_eps", 0.0, 1.0, _EPS),
        activation(vision, "hidden_activation", "gelu_pytorch_tanh"),
        head_dim=vision.integer("head_dim", 1, MOST_WIDTH, 64), rotated=True,
    )  # fmt: skip
    names = _Names(
        tower + "patch_embedder.input_proj", tower + "patch_embedder.position_embedding_table", tower,
        prefix + "embed_vision.embedding_projection", tower + "encoder.layers.{}.", ".linear", _PARTS,
    )  # fmt: skip
    rope = vision.table("rope_parameters") or vision
    whole = _Shape(
        shape, vision.integer("num_key_value_heads", 1, heads, 12), square(vision, "patch_size", 16),
        vision.integer("pooling_kernel_size", 1, _MOST_POOLED, _POOLED),
        processor.integer("max_soft_tokens", 1, _MOST_TOKENS, _TOKENS),
        vision.integer("position_embedding_size", 1, 1 << 20, 10 * 1024),
        text.integer("hidden_size", 1, MOST_WIDTH, 2304), rope.number("rope_theta", 1.0, 1e12, _BASE), True,
    )  # fmt: skip
    both = text.raw("use_bidirectional_attention") == "vision"
    return _design(whole, names, resampling(processor), bidirectional=both)


def _from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`gemma4v` in llama.cpp's mmproj files."""
    tower = replace(tower_from_gguf(keys), activation="gelu_tanh", rotated=True)
    table = tensors.get("v.position_embd.weight")
    places = table.shape[1] if table is not None and len(table.shape) == 3 else 1
    shape = _Shape(
        tower, tower.heads, keys.integer("patch_size", 1, 1 << 10),
        keys.integer("projector.scale_factor", 1, _MOST_POOLED, _POOLED), _TOKENS, places,
        keys.integer("projection_dim", 1, MOST_WIDTH), _BASE, False,
    )  # fmt: skip
    names = _Names(
        "v.patch_embd", "v.position_embd.weight", "v.", "mm.input_projection", GGUF.layer, "", _GGUF_PARTS
    )
    # Of the models that look at pictures in both directions, none has embeddings for each layer.
    model = Keys(keys.source, "the model", "gemma4.")
    per_layer = model.integer("embedding_length_per_layer_input", 0, MOST_WIDTH, 0)
    return _design(shape, names, BICUBIC, bidirectional=not per_layer)


GEMMA4 = Family("gemma4", ("Gemma4ForConditionalGeneration",), ("gemma4v",), _from_hf, _from_gguf)
