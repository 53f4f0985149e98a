"""Layers that read a softmax over the sums of blocks of earlier layers, instead of the sum of all (Inkling
2), and such layers that run several times, each time with messages from the time before (Inkling 2 Mini).

With n(x) = x / sqrt(mean(x^2) + eps), states S_1 ... S_J and a learned query q, what is read is the sum over
j of p_j n(S_j), where p is the softmax of the q n(S_j) / sqrt(E). Shape letters as in
`engine.models.layers.parts`; J states, Q queries of all layers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import field, replace

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.building.decoder import Builder
from engine.models.config import ModelConfig
from engine.models.config.experts import Limits
from engine.models.config.relative import ClippedHeads
from engine.models.layers.attention.clipped import MODULES, ClippedAttention, clipped_attention, convolution
from engine.models.layers.mixture import ExpertStack, Mixture, mixture
from engine.models.layers.parts import Linear, Norm, RopeTables
from engine.models.layers.recurrent.parts import Convolution
from engine.tensors import Floats


@dataclass(frozen=True, slots=True)
class Queries:
    """The `count` queries of one reader, which are those from number `first` on of all."""

    own: Weight
    first: int

    @property
    def count(self) -> int:
        return self.own.shape[0]


@dataclass(frozen=True, slots=True)
class States:
    """The normed states of a pass so far, and their scores with all queries (T, J * Q), state by state."""

    norm: Norm
    every: Weight
    normed: tuple[Array, ...] = ()
    scores: Array | None = None

    def with_state(self, ops: Ops, x: Array) -> States:
        """The same with one more state x (T, E)."""
        return self.with_normed(ops, self.norm(ops, x))

    def with_normed(self, ops: Ops, normed: Array) -> States:
        """The same with one more normed state (T, E)."""
        scores = ops.linear(normed, self.every)
        scores = scores if self.scores is None else ops.join(self.scores, scores, 1)
        return replace(self, normed=(*self.normed, normed), scores=scores)

    def read(self, ops: Ops, queries: Queries, x: Array) -> list[Array]:
        """What each of the queries reads of all states and of x (T, E): (T, E) each."""
        last = self.norm(ops, x)
        scores = ops.linear(last, queries.own)
        if self.scores is not None:
            before = ops.columns(self.scores, queries.first, queries.count, len(self.normed))
            scores = ops.join(before, scores, 1)
        return _weighed(ops, (*self.normed, last), scores, queries.count)

    def messages(self, ops: Ops, first: int, count: int) -> list[Array]:
        """What the `count` queries from number `first` on read of all states alone."""
        scores = ops.columns(self.scores, first, count, len(self.normed))
        return _weighed(ops, self.normed, scores, count)


def _weighed(ops: Ops, states: Sequence[Array], scores: Array, queries: int) -> list[Array]:
    """`scores` (T, J * queries) are those of each state in turn."""
    shares = ops.balance(scores, len(states), 0, 0.0)
    if queries == 1:
        return [ops.mix(states, shares, 0)]
    return [ops.mix(states, ops.columns(shares, query, 1, len(states)), 0) for query in range(queries)]


@dataclass(frozen=True, slots=True)
class MessageGate:
    """(1 - tanh(f)) x + tanh(g) m of x and a message m, where f and g are made of what `down` makes of both,
    normed.
    """

    norm: Norm
    down: Linear
    forget: Linear
    gain: Linear

    def __call__(self, ops: Ops, x: Array, message: Array) -> Array:
        both = self.down(ops, ops.join(self.norm(ops, x), self.norm(ops, message), 1))
        forget, gain = (ops.soft_cap(each(ops, both), 1.0, 1.0) for each in (self.forget, self.gain))
        kept = ops.add(x, ops.gated(forget, x, "identity"), -1.0)
        return ops.add(kept, ops.gated(gain, message, "identity"))


@dataclass(frozen=True, slots=True)
class CappedStack(ExpertStack):
    """Experts that make sigmoid(gate) cap(gate) cap(up), with soft caps of these sizes (Inkling 2)."""

    caps: Limits = (1.0, 1.0)

    def inner(self, ops: Ops, gate: Array | None, up: Array) -> Array:
        """What stands before the last matrix."""
        assert gate is not None
        first, second = (ops.soft_cap(x, 1.0, cap) for x, cap in zip((gate, up), self.caps, strict=True))
        return ops.gated(gate, ops.gated(first, second, "identity"), "sigmoid")


@dataclass(frozen=True, slots=True)
class BlockLayer:
    """A layer. It `begins` a block where the state before it is kept. Queries, keys and values have an input
    and a norm each, or one for all; `reading` is None in the first layer, which reads the embedding. `gates`
    are of queries, keys, values and of the experts' input, if the layer gets messages.
    """

    begins: bool
    reading: Queries | None
    norms: tuple[Norm, ...]
    attention: ClippedAttention
    after_attention: Convolution
    mlp_reading: Queries
    mlp_norm: Norm
    mlp: Mixture
    after_mlp: Convolution
    gates: tuple[MessageGate, ...] = ()

    def __call__(
        self, ops: Ops, x: Array, states: States, tables: RopeTables, messages: Sequence[Array]
    ) -> tuple[Array, States]:
        """The next state (T, E), and the states with this layer's."""
        inputs = [x] * len(self.norms) if self.reading is None else states.read(ops, self.reading, x)
        norms = self.norms
        if messages:
            inputs, norms = inputs * (3 // len(inputs)), norms * (3 // len(norms))
            inputs = [gate(ops, *pair) for gate, *pair in zip(self.gates, inputs, messages, strict=False)]
        normed = [norm(ops, each) for norm, each in zip(norms, inputs, strict=True)]
        q, k, v = normed * (3 // len(normed))
        y = self.after_attention(ops, self.attention(ops, (q, k, v), tables))
        if self.begins:
            states = states.with_state(ops, x)
        else:
            y = ops.add(x, y)
        [read] = states.read(ops, self.mlp_reading, y)
        read = self.gates[-1](ops, read, messages[-1]) if messages else read
        made = self.after_mlp(ops, self.mlp(ops, self.mlp_norm(ops, read)))
        return ops.add(y, made), states


@dataclass(frozen=True, slots=True)
class MessageReading:
    """All queries of the messages, and how many each layer has."""

    every: Weight
    each: int = 4


@dataclass(frozen=True, slots=True)
class BlockStack:
    """All layers: those `before` the passes, each of the `passes`, and those `after` them. Every pass begins
    with the state that the layers before made. Of what the pass before kept, without its first state, and of
    its last state, each layer reads its messages.
    """

    before: tuple[BlockLayer, ...]
    passes: tuple[tuple[BlockLayer, ...], ...]
    after: tuple[BlockLayer, ...]
    norm: Norm
    every: Weight
    last: Queries
    reading: MessageReading | None = None
    lookups: Sequence[Weight] = field(default=())

    def __call__(self, ops: Ops, x: Array, tables: RopeTables) -> Array:
        states = States(self.norm, self.every)
        for layer in self.before:
            x, states = layer(ops, x, states, tables, ())
        start, kept = x, states
        for number, layers in enumerate(self.passes):
            previous = self._message_states(ops, states, len(kept.normed), x) if number else None
            x, states = start, kept
            for at, layer in enumerate(layers):
                messages = previous.messages(ops, 4 * at, 4) if previous else []
                x, states = layer(ops, x, states, tables, messages)
        for layer in self.after:
            x, states = layer(ops, x, states, tables, ())
        [x] = states.read(ops, self.last, x)
        return x

    def _message_states(self, ops: Ops, states: States, kept: int, x: Array) -> States:
        """What the layers of the next pass read their messages of."""
        assert self.reading is not None
        made = States(self.norm, self.reading.every)
        for normed in states.normed[kept + 1 :]:
            made = made.with_normed(ops, normed)
        return made.with_state(ops, x)


# -- building


_EPS = 1e-6
"""Of the norm of states."""
_GATES = {"attn": "q", "k": "k", "v": "v", "mlp": "mlp"}
"""The names of a layer's gates in the original files, and those in transformers."""


def block_layers(builder: Builder) -> Generator[int, None, BlockStack]:
    """All layers; yields the number of finished ones after each."""
    config, kind = builder.config, builder.config.recurrent
    assert isinstance(kind, ClippedHeads)
    count, size = len(set(kind.order)), kind.last - kind.first
    readers = _Readers(builder, kind, count)
    made = list[BlockLayer]()
    for layer in range(count):
        made.append(_layer(builder, kind, readers, layer))
        yield layer + 1
    runs = [
        _as_run(config, made[layer], run) if kind.order.index(layer) < run else made[layer]
        for run, layer in enumerate(kind.order)
    ]
    end = kind.first + kind.passes * size if size else len(runs)
    passes = [tuple(runs[at : at + size]) for at in range(kind.first, end, size)] if size else []
    first = kind.first if size else len(runs)
    return BlockStack(
        tuple(runs[:first]), tuple(passes), tuple(runs[end:]),
        Norm(np.ones(config.width, np.float32), _EPS), builder.source.constant(readers.every()),
        readers.of("last"), _messages(builder, size) if kind.passes > 1 else None,
    )  # fmt: skip


class _Readers:
    """The queries of all that read states, divided by sqrt(E), under the names of what reads."""

    def __init__(self, builder: Builder, kind: ClippedHeads, layers: int) -> None:
        self._builder, self._found = builder, dict[str, Floats]()
        at = builder.names.embed.rpartition(".")[0] + ".attn_res."
        for layer in range(layers):
            if layer:
                own = 3 if kind.order.index(layer) in kind.dynamic else 1
                self._read(f"attention {layer}", f"{at}attn_queries.{layer - 1}", own)
            self._read(f"mlp {layer}", f"{at}mlp_queries.{layer}", 1)
        self._read("last", at + "output_query", 1)

    def _read(self, reader: str, name: str, count: int) -> None:
        width = self._builder.config.width
        values = self._builder.source.vector(name, *((count, width) if count > 1 else (width,)))
        self._found[reader] = values.reshape(count, width) * np.float32(width**-0.5)

    def every(self) -> Floats:
        """All of them (Q, E)."""
        return np.concatenate(list(self._found.values()))

    def of(self, reader: str) -> Queries:
        names = list(self._found)
        first = sum(len(self._found[name]) for name in names[: names.index(reader)])
        return Queries(self._builder.source.constant(self._found[reader]), first)


def _layer(builder: Builder, kind: ClippedHeads, readers: _Readers, layer: int) -> BlockLayer:
    config, names, source = builder.config, builder.names, builder.source
    at, run = names.at(layer), kind.order.index(layer)
    part, width = config.first_state_part(run), config.width
    norms = [f"{each}_input_norm" for each in "qkv"] if run in kind.dynamic else [names.attention_norm]
    assert config.experts is not None
    experts = mixture(source, config, names, config.experts, at)
    stack = experts.experts
    looped = kind.passes > 1 and kind.first <= layer < kind.last
    made = BlockLayer(
        layer % kind.block == 0, readers.of(f"attention {layer}") if layer else None,
        tuple(builder.norm(at + name, width) for name in norms), clipped_attention(builder, run, at),
        convolution(builder, at + "attn_sconv", part + 2, width), readers.of(f"mlp {layer}"),
        builder.norm(at + names.mlp_norm, width),
        replace(experts, experts=CappedStack(stack.gate, stack.up, stack.down, caps=kind.caps)),
        convolution(builder, at + "mlp_sconv", part + 3, width),
        tuple(_gate(builder, kind, layer, name) for name in _GATES) if looped else (),
    )  # fmt: skip
    for own, module in MODULES.items():
        if at + own in source.linears:
            source.linears[f"model.layers.{layer}.{module}"] = source.linears.pop(at + own)
    return made


def _gate(builder: Builder, kind: ClippedHeads, layer: int, name: str) -> MessageGate:
    source, width, rank = builder.source, builder.config.width, kind.gate_rank
    at, module = builder.names.at(layer) + f"controllers.{name}.", f"model.layers.{layer}.{_GATES[name]}_"

    def linear(own: str, there: str, rows: int, columns: int) -> Linear:
        made = Linear(source.matrix(f"{at}{own}_weight", rows, columns))
        source.linears[f"{module}message_gate.{there}"] = made
        return made

    return MessageGate(
        Norm(np.ones(width, np.float32), builder.config.norm_eps),
        linear("down", "down_proj", rank, 2 * width), linear("forget", "forget_gate_proj", width, rank),
        linear("gain", "message_gate_proj", width, rank),
    )  # fmt: skip


def _messages(builder: Builder, layers: int) -> MessageReading:
    """The queries of each layer's four messages: the file has those of queries and experts, and those of keys
    and values.
    """
    width, at = builder.config.width, builder.names.embed.rpartition(".")[0] + ".middle_cycle_cross_pass_"
    outer, inner = (
        builder.source.vector(f"{at}{name}", 2 * layers, width).reshape(layers, 2, width)
        for name in ("queries", "kv_queries")
    )
    every = np.concatenate([outer[:, :1], inner, outer[:, 1:]], axis=1) * np.float32(width**-0.5)
    return MessageReading(builder.source.constant(every.reshape(-1, width)))


def _as_run(config: ModelConfig, layer: BlockLayer, run: int) -> BlockLayer:
    """The layer over the cache and the states of another run."""
    part = config.first_state_part(run)
    keys, values = (
        replace(each, convolution=replace(each.convolution, part=part + at))
        for at, each in enumerate((layer.attention.keys, layer.attention.values))
    )
    return replace(
        layer,
        attention=replace(layer.attention, layer=config.cache_layer(run), keys=keys, values=values),
        after_attention=replace(layer.after_attention, part=part + 2),
        after_mlp=replace(layer.after_mlp, part=part + 3),
    )
