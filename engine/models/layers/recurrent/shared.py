"""Recurrent layers, before some of which stand attention and a feed-forward part with weights that these
layers share (Zamba, arXiv 2405.16712, and Zamba 2, arXiv 2411.15242), and how they are built.

Shape letters as in `engine.models.layers.parts`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import field, replace

from engine.backends.base import Array, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.building.attention import Attention, SeparateQkv
from engine.models.building.decoder import Builder
from engine.models.building.source import linear
from engine.models.layers.parts import GatedMlp, Linear, Mixer, Norm, RopeTables
from engine.models.layers.recurrent.mixers import recurrent_mixer
from engine.models.layers.recurrent.parts import RecurrentSource

_MAMBA_EPS = 1e-5
"""Of the norm in Mamba-2, whatever that of the layers is."""


@dataclass(frozen=True, slots=True)
class AddedLinear(Linear):
    """A matrix to whose product up(down(x)) is added."""

    down: Linear = field(kw_only=True)
    up: Linear = field(kw_only=True)

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        return self.up(ops, self.down(ops, x), Linear.__call__(self, ops, x, residual))


@dataclass(frozen=True, slots=True)
class SharedBlock:
    """projection(mlp(norm(attention(norm(x and the embeddings))))): (T, E) twice -> (T, E), plus x."""

    norm: Norm
    attention: Attention
    mlp_norm: Norm
    mlp: GatedMlp
    projection: Linear

    def __call__(self, ops: Ops, x: Array, embedded: Array, tables: RopeTables) -> Array:
        y = self.attention(ops, self.norm(ops, ops.join(x, embedded, 1)), tables)
        return self.projection(ops, self.mlp(ops, self.mlp_norm(ops, y)), x)


@dataclass(frozen=True, slots=True)
class SharingBlock:
    """x plus mixer(norm(x)), or of what a shared block makes of x."""

    shared: SharedBlock | None
    norm: Norm
    mixer: Mixer

    def __call__(self, ops: Ops, x: Array, embedded: Array, tables: RopeTables) -> Array:
        y = x if self.shared is None else self.shared(ops, x, embedded, tables)
        return self.mixer(ops, self.norm(ops, y), tables, residual=x)


@dataclass(frozen=True, slots=True)
class SharingBlocks:
    """All layers; see `engine.models.layers.whole.Stack`."""

    blocks: tuple[SharingBlock, ...]
    lookups: Sequence[Weight] = ()

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        embedded = x
        for block in self.blocks:
            x = block(ops, x, embedded, tables)
        return x


# -- building


def sharing_blocks(builder: Builder) -> Generator[int, None, SharingBlocks]:
    """The layers; yields the number of finished ones."""
    config, names, made, blocks = builder.config, builder.names, list[SharingBlock](), list[_Block]()
    assert config.shared is not None
    assert names.recurrent is not None
    mamba = replace(config, norm_eps=_MAMBA_EPS)
    number = 0
    for layer in range(config.layers):
        at, shared = names.layer.format(layer), None
        if layer not in config.mlp_layers:
            # transformers shares no weights at all where the head has its own
            if len(blocks) < config.shared.count or not config.tied:
                blocks.append(_Block(builder, at))
            shared = blocks[number % config.shared.count if config.tied else -1].of(layer, number)
            number, at = number + 1, at + "mamba_decoder."
        source = RecurrentSource(builder.source, at, names.recurrent)
        made.append(
            SharingBlock(
                shared, builder.norm(at + names.attention_norm, config.width),
                recurrent_mixer(source, mamba, config.first_state_part(layer)),
            )
        )  # fmt: skip
        yield layer + 1
    return SharingBlocks(tuple(made))


class _Block:
    """A shared block, whose tensors are those of the first layer that has it, `at`."""

    def __init__(self, builder: Builder, at: str) -> None:
        config, names, self.builder, self.at = builder.config, builder.names, builder, at
        width, wide, inner = config.width, 2 * config.width, config.ffn_width
        self.norm = builder.norm(at + names.embed_norm, wide)
        self.mlp_norm = builder.norm(at + names.mlp_norm, width)
        queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
        query, key, value = (
            self.linear(name, rows, wide, config.attention_bias)
            for name, rows in ((names.query, queries), (names.key, keys), (names.value, keys))
        )
        self.qkv = SeparateQkv(query, key, value)
        self.output = self.linear(names.output, width, queries, config.output_bias)
        down = self.linear(names.down, width, inner, config.mlp_bias)
        if config.shared is not None and config.shared.rank:
            gate, up = None, self.linear(names.gate_up, 2 * inner, width, config.mlp_bias)
        else:
            gate, up = (self.linear(name, inner, width, config.mlp_bias) for name in (names.gate, names.up))
        self.mlp = GatedMlp(gate, up, down, inner, config.activation)

    def linear(self, name: str, rows: int, columns: int, bias: bool | None) -> Linear:
        return linear(self.builder.source, self.at + name, rows, columns, bias)

    def of(self, layer: int, number: int) -> SharedBlock:
        """The block before `layer`, the layer of this `number` among those that have any."""
        config, names, kind = self.builder.config, self.builder.names, self.builder.config.shared
        assert kind is not None
        qkv, mlp = self.qkv, self.mlp
        if kind.attention_rank:
            lists = (
                name.replace("_proj", "_adapter_list").replace("attn.", "attn.linear_")
                for name in (names.query, names.key, names.value)
            )
            query, key, value = (
                self.added(made, name, number, kind.attention_rank)
                for made, name in zip((qkv.query, qkv.key, qkv.value), lists, strict=True)
            )
            qkv = SeparateQkv(query, key, value)
        if kind.rank:
            assert isinstance(mlp.up, Linear)
            mlp = replace(mlp, up=self.added(mlp.up, names.gate_up + "_adapter_list", number, kind.rank))
        rope = "none" if config.rope is None else "main"
        attention = Attention(config.cache_layer(layer), config.shape(layer), qkv, self.output, rope)
        linked = names.layer.format(layer) + "linear"
        return SharedBlock(
            self.norm, attention, self.mlp_norm, mlp,
            linear(self.builder.source, linked, config.width, config.width, False),
        )  # fmt: skip

    def added(self, made: Linear, name: str, number: int, rank: int) -> AddedLinear:
        """A matrix with what a layer adds to it."""
        (rows, columns), at = made.weight.shape, f"{name}.{number}."
        down = self.linear(at + "0", rank, columns, False)
        up = self.linear(at + "1", rows, rank, False)
        return AddedLinear(made.weight, made.bias, made.adapters, down=down, up=up)
