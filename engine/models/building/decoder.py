"""Builds the decoder of any architecture from its `ModelConfig` and `TensorNames`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from engine.backends.base import AttentionShape, Weight
from engine.models.building.attention import (
    Attention,
    FusedQkv,
    Inputs,
    KeysAsValues,
    QueryAlone,
    SeparateQkv,
    qk_norm,
)
from engine.models.building.crossing import cross_block, with_crossing
from engine.models.building.feed_forward import FeedForwards, experts_of, with_bias_of_sum
from engine.models.building.source import WHOLE, View, WeightSource, linear, linear_parts, norm, vector_if
from engine.models.config import ModelConfig
from engine.models.config.recurrent import Rwkv4, Rwkv6, Rwkv7
from engine.models.layers.attention.cross import CrossBlock
from engine.models.layers.attention.indexer import LastChoice, block_chooser
from engine.models.layers.attention.row_orders import fused_order, half_of_queries
from engine.models.layers.before_head import before_head, logit_factors
from engine.models.layers.gated_norm import norm_before
from engine.models.layers.parts import Block, Changes, FeedForward, Linear, Mixer, Norm, bare_norm, unit_norm
from engine.models.layers.positions.distances import by_distance
from engine.models.layers.positions.embedded import positions_table
from engine.models.layers.whole import Blocks, Parts, Stack
from engine.models.names import TensorNames
from engine.tensors import Floats

Layers = Callable[["Builder"], Generator[int, None, Stack]]
"""Builds all layers; yields the number of finished ones after each."""
QUERY_PARTS = (" queries", " gate")
"""After a name in `WeightSource.linears`: the part of the matrix that a linear holds."""
STORED_TRANSPOSED = View(transposed=True)


def build(
    source: WeightSource, config: ModelConfig, names: TensorNames, layers: Layers | None = None
) -> Generator[int, None, Parts]:
    """Build the whole decoder; yields the number of finished layers after each layer. `layers` builds these
    where they are no row of blocks.
    """
    builder = Builder(source, config, names)
    narrow = config.embed_width or config.width
    rows, view = config.vocab_size, WHOLE
    if config.picture_layers:  # the token of a picture is among the further rows
        rows += config.extra_embeddings
    elif config.extra_embeddings:
        view = View(order=np.arange(rows), stored_rows=rows + config.extra_embeddings)
    # Of tied tables, transformers takes the one that the file has.
    alone = config.tied and not source.has(names.embed + ".weight") and source.has(names.head + ".weight")
    table = names.head if alone else names.embed
    embed, changes = source.matrix(table + ".weight", rows, narrow, view), Changes()
    if not config.extra_embeddings:
        source.linears[names.embed] = Linear(embed, None, changes)
    wide = narrow if config.narrow_positions else config.width
    positions = positions_table(source, config, names, wide)
    final = builder.norm(names.norm, config.width, last=True) if config.final_norm else None
    final = final if final is None else builder.of_terms(final, 2 * config.layers + 1)
    head = _head(source, config, names, embed)
    stack = yield from (layers or _blocks)(builder)
    return Parts(
        embed, stack, final, head, positions, config.embed_scale, config.logit_scale,
        config.logit_cap,
        embed_norm=builder.norm(names.embed_norm, wide) if config.embed_norm else None,
        project_in=builder.projection(names.project_in, config.width, narrow, config.narrow_positions),
        project_out=before_head(source, config, names),
        headless=config.headless, narrow_positions=config.narrow_positions, changes=changes,
        head_factors=logit_factors(source, config, names),
        looking=with_crossing(stack, builder.crossing) if builder.crossing else None,
    )  # fmt: skip


def block_of(
    source: WeightSource, config: ModelConfig, names: TensorNames, layer: int = 0, input_width: int = 0
) -> Block:
    """One layer of a decoder; `input_width` is as in `Builder`."""
    return Builder(source, config, names, input_width).block(layer)


def layers_of(source: WeightSource, config: ModelConfig, names: TensorNames) -> Stack:
    """The layers of a decoder without its embedding and its head."""
    builder = Builder(source, config, names)
    return _stack(source, config, names, [builder.block(layer) for layer in range(config.layers)])


def norm_of(source: WeightSource, config: ModelConfig, names: TensorNames, name: str) -> Norm:
    """A norm (E,) of the kind that the decoder has."""
    return Builder(source, config, names).norm(name, config.width)


def _blocks(builder: Builder) -> Generator[int, None, Stack]:
    blocks = []
    for layer in range(builder.config.layers):
        blocks.append(builder.block(layer))
        builder.cross(layer)
        yield layer + 1
    return _stack(builder.source, builder.config, builder.names, blocks)


def is_layered(config: ModelConfig) -> bool:
    """Whether the layers of a decoder of the usual build are `Layered`."""
    others = config.altup, config.cycles, config.hyper
    return all(part is None for part in others) and not isinstance(config.recurrent, Rwkv4 | Rwkv6 | Rwkv7)


def _stack(source: WeightSource, config: ModelConfig, names: TensorNames, blocks: Sequence[Block]) -> Stack:
    if is_layered(config) and config.per_layer is None and config.layer_scale is False:
        return Blocks(tuple(blocks))
    from engine.models.building.uncommon import stack  # of which most models import nothing

    return stack(source, config, names, blocks, partial(norm_of, source, config, names))


def _head(source: WeightSource, config: ModelConfig, names: TensorNames, embed: Weight) -> Linear:
    if config.tied or config.headless:
        # A tied table is loaded once: the head multiplies by the matrix that embeddings are looked up in.
        head = Linear(embed, vector_if(source, names.head + ".bias", config.head_bias, config.vocab_size))
    else:
        head = linear(source, names.head, config.vocab_size, embed.shape[1], config.head_bias)
    if config.silent_tokens[1]:
        bias = np.zeros(config.vocab_size, np.float32) if head.bias is None else head.bias.copy()
        bias[slice(*config.silent_tokens)] = np.finfo(np.float32).min
        head = replace(head, bias=bias)
    source.linears[names.head] = head
    return head


class Builder:
    """Builds the parts of layers from the tensors of `source`."""

    def __init__(
        self, source: WeightSource, config: ModelConfig, names: TensorNames, input_width: int = 0
    ) -> None:
        """`input_width` is that of what queries, keys and values are made of; 0: the model's width."""
        self.source, self.config, self.names = source, config, names
        self.input_width = input_width or config.width
        self.view = STORED_TRANSPOSED if names.transposed else WHOLE
        self.distances, self.last_choice = None, LastChoice()
        self.crossing: dict[int, CrossBlock] = {}
        if config.distance_buckets:
            table = source.vector(names.distances + ".weight", config.distance_buckets, config.heads)
            self.distances = by_distance(table)

    def norm(self, name: str, size: int, *, post: bool = False, last: bool = False) -> Norm:
        """A norm of a row; `post`: after a half of a block, `last`: after all of them."""
        config = self.config
        eps = config.post_norm_eps or config.norm_eps if post else config.norm_eps
        if config.sphere is not None:
            return unit_norm(size, eps)
        if not (config.norm_weights and name):
            return Norm(np.ones(size, np.float32), eps, None, config.norm == "layer")
        return norm(
            self.source, self._norm_name(name), size, eps, layer_norm=config.norm == "layer",
            bias=config.norm_bias, offset=config.norm_offset if config.offset_last or not last else 0.0,
        )  # fmt: skip

    def _norm_name(self, name: str) -> str:
        """The name that the file has for the norm `name`."""
        others = (
            name.removesuffix(own) + other for own, other in self.names.other_norms if name.endswith(own)
        )
        return next((each for each in (name, *others) if self.source.has(each + ".weight")), name)

    def of_terms(self, norm: Norm, terms: int) -> Norm:
        """A norm of a sum of this many terms."""
        return replace(norm, eps=norm.eps * terms) if self.config.eps_by_terms else norm

    def projection(self, name: str, rows: int, columns: int, bias: bool = False) -> Linear | None:
        """The matrix between the embedding or the head and the layers, where these have another width."""
        return None if rows == columns else self.linear(name, rows, columns, bias)

    def block(self, layer: int) -> Block:
        config, names, at = self.config, self.names, self._at(layer)
        first = config.placement == "after" and layer in config.recurrent_layers
        before = first or config.placement not in ("after", "after_sum", "")
        after = not first and config.placement in ("after", "both", "after_sum")
        mixes = layer not in config.mlp_layers
        feeds = (not mixes or not config.one_part) and layer not in config.bare_layers
        routed = experts_of(config, layer)
        # Experts beside a plain feed-forward part norm its input themselves.
        beside = routed is not None and routed.beside
        mlp_norm = before and feeds and config.placement != "parallel" and not beside
        post = self.norm(at + names.attention_post, config.width, post=True) if after else None
        first_norm, second_norm = (
            lambda name, size, terms=terms: self.of_terms(self.norm(name, size), terms)
            for terms in (2 * layer + 1, 2 * layer + 2)
        )
        made = Block(
            attention=self._attention(layer, at) if mixes else None,
            mlp=self.mlp(layer, at) if feeds else None,
            attention_norm=norm_before(self.source, config, first_norm, at + names.attention_norm)
            if before and mixes and layer not in config.unnormed_layers
            else None,
            mlp_norm=norm_before(self.source, config, second_norm, at + names.mlp_norm, routed is not None)
            if mlp_norm
            else None,
            attention_post=post,
            mlp_post=self.norm(at + names.mlp_post, config.width, post=True)
            if after or (routed is not None and routed.normed)
            else None,
            parallel=config.placement.startswith("parallel"),
            scales=config.scales_of(layer),
            norms_sum=config.placement == "after_sum",
            norms_both=config.placement == "kept",
            attention_again=self.norm(at + names.attention_again, config.width)
            if config.normed_twice
            else None,
            mlp_residual=with_bias_of_sum(self.source, config, names, layer, post),
        )
        if not config.residual_gates:
            return made
        from engine.models.layers.residual.residual_gates import with_residual_gates

        return with_residual_gates(self.source, config, names, layer, made)

    def cross(self, layer: int) -> None:
        """Build what looks at pictures in a layer that does nothing else, if it does so."""
        if layer in self.config.picture_layers:
            at, number = self._at(layer), len(self.crossing)
            mlp = self.mlp(layer, at)
            self.crossing[layer] = cross_block(self.source, self.config, self.names, at, mlp, number)

    def mlp(self, layer: int, at: str) -> FeedForward:
        """The feed-forward part of a layer, whose names begin with `at`."""
        # Made again each time: kept, it would be a cycle that holds the weights until the collector comes.
        made = FeedForwards(self.source, self.config, self.names, self.view, self.norm, self.linear)
        return made.of(layer, at)

    def _at(self, layer: int) -> str:
        cycles = self.config.cycles
        return self.names.at(layer, cycles.first if cycles else 0)

    def linear(self, name: str, rows: int, columns: int, bias: bool | None) -> Linear:
        """A matrix (rows, columns), which may be a piece of one in the file."""
        for part, whole, number, count in self.names.pieces:
            if name.endswith(part):
                view = View(order=np.arange(number * rows, (number + 1) * rows), stored_rows=count * rows)
                fused = name.removesuffix(part) + whole
                made = linear(self.source, fused, rows, columns, bias, view)
                self.source.linears[name] = self.source.linears.pop(fused)
                return made
        return linear(self.source, name, rows, columns, bias, self.view)

    def _attention(self, layer: int, at: str) -> Mixer:
        config = self.config
        if config.recurrent is None and config.compressed is None and config.latent_of(layer) is None:
            return self.over_cache(layer, at)
        from engine.models.building.uncommon import mixer

        return mixer(self.source, config, self.names, layer, at, self.last_choice, self.over_cache)

    def over_cache(self, layer: int, at: str) -> Attention:
        config, names = self.config, self.names
        shape = config.shape(layer)
        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        rope = "none" if config.rope is None or layer in config.nope_layers else "main"
        if rope == "main" and config.has_local_rope(layer):
            rope = "local"
        if config.scaled_nope and layer in config.nope_layers:
            rope = "scaled"
        own = config.kv_layer(layer) == layer
        results = shape.heads * (config.value_dim or shape.head_dim)
        return Attention(
            layer=config.cache_layer(layer),
            shape=shape,
            inputs=self._inputs(layer, at, queries, keys),
            output=self.linear(at + names.output, config.width, results, config.output_bias),
            rope=rope,
            query_norm=qk_norm(self.source, config, at + names.query_norm, shape.heads, shape.head_dim, rope),
            key_norm=qk_norm(self.source, config, at + names.key_norm, shape.kv_heads, shape.head_dim, rope)
            if own
            else None,
            value_norm=bare_norm(shape.head_dim, config.norm_eps, shape.kv_heads)
            if own and config.value_norm
            else None,
            sinks=self._sinks(layer, at + names.sinks, shape.heads),
            distances=self.distances,
            gate=self._output_gate(at, shape),
            activation=config.gate_activation,
            norm_last=config.qk_norm_last,
            result_norm=bare_norm(shape.head_dim, config.norm_eps, shape.heads)
            if config.head_results_normed
            else self.norm(at + names.mixed_norm, queries)
            if config.inner_norms
            else None,
            clip=config.attention_clip,
            value_dim=config.value_dim,
            value_scale=config.value_scale,
            chooser=block_chooser(self.source, config, at, names, layer, self.last_choice),
        )

    def _sinks(self, layer: int, name: str, heads: int) -> Floats | None:
        has = self.config.sinks
        has = self.source.has(name) if has is None else has if isinstance(has, bool) else layer in has
        return self.source.vector(name, heads) if has else None

    def _output_gate(self, at: str, shape: AttentionShape) -> Linear | None:
        kind, queries = self.config.output_gate, shape.heads * shape.head_dim
        if kind == "queries":
            return self._half_of_queries(at, queries, 2 * shape.kv_heads * shape.head_dim, 1)
        if not kind:
            return None
        if kind == "row":
            gate = self.linear(at + self.names.output_gate, queries, self.config.width, None)
            if not self.names.gate_bias:
                return gate
            return replace(
                gate, bias=self.source.vector(at + self.names.gate_bias, shape.heads).repeat(shape.head_dim)
            )
        # A number of a head is made as often as the head has numbers.
        order = np.repeat(np.arange(shape.heads), shape.head_dim)
        view = View(order=order, stored_rows=shape.heads)
        name = at + self.names.output_gate
        return linear(self.source, name, queries, self.config.width, False, view)

    def _half_of_queries(self, at: str, queries: int, others: int, half: int) -> Linear:
        """Of a matrix with the queries (0) and then the gate (1) of each head in turn. Where one matrix makes
        keys and values, too, these `others` rows follow.
        """
        order, name = half_of_queries(self.config, half), at + self.names.query
        fused = at + self.names.query_key_value
        whole = bool(self.names.query_key_value) and self.source.has(fused + ".weight")
        view = View(order=order, stored_rows=2 * queries + (others if whole else 0))
        stored, bias = fused if whole else name, self.config.attention_bias
        made = linear(self.source, stored, queries, self.config.width, bias, view)
        self.source.linears[name + QUERY_PARTS[half]] = self.source.linears.pop(stored)
        return made

    def _beside_gates(self, at: str, queries: int, keys: int, whole: bool) -> tuple[Linear, ...]:
        """Keys and values, of matrices of their own or of the `whole` that begins with queries and gates."""
        bias, names = self.config.attention_bias, (at + self.names.key, at + self.names.value)
        if not whole:
            return tuple(self.linear(name, keys, self.input_width, bias) for name in names)
        fused, made = at + self.names.query_key_value, list[Linear]()
        for name, start in zip(names, (2 * queries, 2 * queries + keys), strict=True):
            view = View(order=np.arange(start, start + keys), stored_rows=2 * (queries + keys))
            made.append(linear(self.source, fused, keys, self.input_width, bias, view))
            self.source.linears[name] = self.source.linears.pop(fused)
        return tuple(made)

    def _inputs(self, layer: int, at: str, queries: int, keys: int) -> Inputs:
        config, names, bias = self.config, self.names, self.config.attention_bias
        values = config.heads_of(layer)[0] * config.value_dim or keys
        fused, rows = at + names.query_key_value, queries + keys + values
        whole = bool(names.query_key_value) and self.source.has(fused + ".weight")
        if config.kv_layer(layer) != layer:
            if not whole:
                return QueryAlone(self.linear(at + names.query, queries, self.input_width, bias))
            # llama.cpp's converter fuses what nothing reads, too.
            order = fused_order(config, names)
            first = (np.arange(rows) if order is None else order)[:queries]
            view = View(transposed=names.transposed, order=first, stored_rows=rows)
            return QueryAlone(linear(self.source, fused, queries, self.input_width, bias, view))
        if layer in config.keys_as_values:
            return KeysAsValues(
                self.linear(at + names.query, queries, self.input_width, bias),
                self.linear(at + names.key, keys, self.input_width, bias),
            )
        if config.output_gate == "queries":
            both = self._beside_gates(at, queries, keys, whole)
            return SeparateQkv(self._half_of_queries(at, queries, 2 * keys, 0), *both)
        if whole:
            order = fused_order(config, names)
            view = (
                self.view
                if order is None
                else View(transposed=names.transposed, order=order, stored_rows=rows)
            )
            return FusedQkv(
                linear(self.source, fused, rows, self.input_width, bias, view), (queries, keys, values)
            )
        if names.key_value:
            parts = (config.kv_heads, 2, config.head_dim) if names.grouped else (1, 2, keys)
            pair = np.arange(2 * keys).reshape(parts).swapaxes(0, 1).reshape(2, keys)
            query = self.linear(at + names.query, queries, self.input_width, bias)
            made = linear_parts(self.source, at + names.key_value, (pair[0], pair[1]), self.input_width, bias)
            return SeparateQkv(query, *made)
        return SeparateQkv(
            self.linear(at + names.query, queries, self.input_width, bias),
            self.linear(at + names.key, keys, self.input_width, bias),
            self.linear(at + names.value, values, self.input_width, bias),
        )
