"""A small model of the same architecture as a large one, whose passes run the same kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.backends.kv_formats import cache_type
from engine.backends.packing.blocked import in_blocks
from engine.backends.packing.composite import PERMUTED, is_composite
from engine.drain import drain
from engine.lazy_dataclass import dataclass
from engine.models.architecture import Architecture
from engine.models.base import rope_tables
from engine.models.building.source import WHOLE, View, is_expert
from engine.models.config import ModelConfig
from engine.models.config.hyper import Cycles, HyperConnections
from engine.models.config.recurrent import Rwkv4, Rwkv6, SelectiveScan, SeparateDelta
from engine.models.config.relative import ClippedHeads
from engine.models.layers.parts import Linear
from engine.models.layers.whole import Parts
from engine.models.names import TensorNames
from engine.models.proof.case import Case
from engine.models.proof.cases import CACHES
from engine.models.proof.random_tensors import BLOCKS, builder
from engine.models.proof.small_config import POSITIONS, small_config
from engine.tensors import Floats, RawTensor

NAME = "a small model of the same make"
SHARE, BF16_SHARE = 0.01, 0.04
"""The tolerated difference of logits, relative to the largest reference logit, with fp16 and with bf16
products. Rounding over a few layers stays below a third of it; a wrong kernel is far above it.
"""
STEPS = (1, 3, 8, 20, 72, 1)
FEWER_STEPS, FEWER_ROWS, FEWEST = (1, 8, 92), (1, 3, 8, 72, 1), (1, 8, 12)
"""The rows of successive steps: few, more, and more than the window; those of Gemma 3n and 4, whose layers
have so many operations that fewer steps must do; of models with indexers, scans or separate deltas, whose
matrices are so large that fewer rows have to; and of those that mix streams or hand messages on, too.
"""
_LAYERS = 6
_BASE_ROWS, _EXPERTS, _RANK = 64, 4, 16
ADAPTERS = "F32"
"""The type of the matrices of adapters (`engine.models.lora.apply`)."""

Key = tuple[str, int, int, str, int]


def miniatures(
    architecture: Architecture, config: ModelConfig, names: TensorNames, tensors: Mapping[str, RawTensor],
    prepare: Callable[[RawTensor], RawTensor] | None, cache_dtype: str,
) -> tuple[Case, Case]:  # fmt: skip
    """A model with one layer of each kind that the large one has, as wide but with few heads, features and
    tokens: without adapters, and with.
    """
    layers = _kinds(config, names, tensors)
    small = small_config(config, layers)
    kind = cache_type(cache_dtype, automatic="fp16")
    tables = rope_tables(small, POSITIONS, min(POSITIONS, config.context_length))

    def case(name: str, adapted: bool) -> Case:
        plan = _Plan(tensors, names, layers, prepare, small, config, adapted)
        _built(architecture, plan, small, names)

        def forward(ops: Ops, weights: Sequence[Weight]) -> Array:
            return _built(architecture, replace(plan, weights=weights), small, names)(ops, tables)

        share = BF16_SHARE if any(key[0] == "BF16" for key in plan.keys) else SHARE
        tolerance = share + 2 * max(CACHES[kind.keys], CACHES[kind.values])
        many = small.indexer is not None or isinstance(small.recurrent, SelectiveScan | SeparateDelta)
        mixed = isinstance(small.hyper, HyperConnections) and small.hyper.rounds > 0
        mixed |= isinstance(small.recurrent, ClippedHeads) and small.recurrent.passes > 1
        steps = FEWEST if mixed else FEWER_STEPS if small.value_norm else FEWER_ROWS if many else STEPS
        return Case(
            name, tolerance, forward, plan.random, steps, str(kind), small.cache_shapes, True,
            states=small.state_shapes,
        )  # fmt: skip

    return case(NAME, False), case(f"{NAME}, with adapters", True)


def kinds_of(
    tensors: Mapping[str, RawTensor], prepare: Callable[[RawTensor], RawTensor] | None
) -> tuple[list[str], list[str]]:
    """The packed types of all matrices, and those of the matrices of experts."""
    kinds: dict[bool, set[str]] = {False: set(), True: set()}
    for name, tensor in tensors.items():
        if len(tensor.shape) in (2, 3):
            kinds[is_expert(name)].add(_kind(tensor if len(tensor.shape) == 2 else tensor.part(0), prepare))
    return sorted(kinds[False] | kinds[True]), sorted(kinds[True])


def _kind(matrix: RawTensor, prepare: Callable[[RawTensor], RawTensor] | None) -> str:
    """The packed type of a matrix; F16 for one with permuted columns that is not composite."""
    matrix = in_blocks(prepare(matrix) if prepare else matrix)
    return "F16" if matrix.type.startswith(PERMUTED) and not is_composite(matrix) else matrix.type


def _built(architecture: Architecture, source: _Plan, config: ModelConfig, names: TensorNames) -> Parts:
    parts = drain(architecture.build(source, config, names))
    source.adapt()
    return parts


def _kinds(config: ModelConfig, names: TensorNames, tensors: Mapping[str, RawTensor]) -> tuple[int, ...]:
    """Layers that together cover every type of each tensor and every kind of attention and feed-forward
    part.
    """
    has: dict[int, set[object]] = {}
    for layer in range(config.layers):
        at = _at(names, config, layer)
        window = bool(config.windows and config.windows[layer])
        experts = config.experts is not None and layer in config.experts.layers
        has[layer] = {
            (name.removeprefix(at), tensor.type) for name, tensor in tensors.items() if name.startswith(at)
        }
        part = "recurrent" if layer in config.recurrent_layers else layer in config.mlp_layers
        bare = layer in config.bare_layers
        own = config.kv_layer(layer) == layer
        has[layer].add(
            (
                window, layer in config.nope_layers, experts, part, bare, own, config.queries_of(layer),
                config.heads_of(layer), config.has_local_rope(layer),
            )
        )  # fmt: skip
    chosen: list[int] = []
    left = set().union(*has.values())
    while left and len(chosen) < _LAYERS:
        chosen.append(max(has, key=lambda layer: len(has[layer] & left)))
        left -= has[chosen[-1]]
    if isinstance(config.cycles, Cycles):  # the same layers of both stacks
        size = config.cycles.layers
        chosen = [layer + stack for layer in {one % size for one in chosen} for stack in (0, size)]
    if isinstance(config.recurrent, ClippedHeads):
        return _runs(config.recurrent, {config.recurrent.order[run] for run in chosen} | {0})
    if config.experts is not None and config.experts.router_width:  # later layers read what the first one has
        chosen.append(0)
    if (
        isinstance(config.recurrent, Rwkv4 | Rwkv6) and config.recurrent.halved_every
    ):  # one not followed by it
        chosen += range(min(2, config.layers))
    if names.odd is not None:  # both layers of a pair
        chosen = [layer + other for layer in {2 * (one // 2) for one in chosen} for other in (0, 1)]
    return tuple(sorted({*chosen, *(config.kv_layer(layer) for layer in chosen)}))


def _runs(kind: ClippedHeads, files: Container[int]) -> tuple[int, ...]:
    """The first runs of these layers of the file, twice of those that run several times."""
    order = [run for run, layer in enumerate(kind.order) if layer in files and kind.order.index(layer) == run]
    first, end = (sum(kind.order[run] < limit for run in order) for limit in (kind.first, kind.last))
    return (*order[:first], *order[first:end] * min(kind.passes, 2), *order[end:])


def _at(names: TensorNames, config: ModelConfig, layer: int) -> str:
    """What the names of a layer's tensors begin with."""
    if isinstance(config.recurrent, ClippedHeads):
        layer = config.recurrent.order[layer]
    return names.of(layer).at(layer, config.cycles.first if config.cycles else 0)


@dataclass
class _Plan:
    """A `WeightSource` that notes the requested matrices or, with `weights`, supplies them."""

    tensors: Mapping[str, RawTensor]
    names: TensorNames
    layers: tuple[int, ...]
    prepare: Callable[[RawTensor], RawTensor] | None
    config: ModelConfig
    large: ModelConfig
    adapted: bool
    weights: Sequence[Weight] = ()
    keys: dict[Key, int] = field(default_factory=dict)
    linears: dict[str, Linear] = field(default_factory=dict)

    def _real(self, name: str) -> str:
        """The name of the corresponding tensor of the large model."""
        for number, layer in reversed(list(enumerate(self.layers))):
            at = _at(self.names, self.config, number)
            if name.startswith(at):
                return _at(self.names, self.large, layer) + name.removeprefix(at)
        return name

    def has(self, name: str) -> bool:
        return self._real(name) in self.tensors

    def matrix(self, name: str, rows: int, columns: int, view: View = WHOLE) -> Weight:
        """As in `WeightSource`; only `_EXPERTS` experts are distinct, the others repeat them, and so do heads
        that have a matrix each.
        """
        real = self._real(name)
        kind = _kind(view.of(self.tensors[real]), self.prepare)
        numbers = re.findall(r"\d+", name)
        expert = view.part if view.parts else int(numbers[-1]) if is_expert(name) and len(numbers) > 1 else 0
        if view.order is not None and not view.parts:  # the first row tells heads apart
            expert = int(view.order[0]) // max(1, len(view.order))
        return self._matrix(
            (kind, rows, columns, re.sub(r"\d+", "", name) if is_expert(name) else name, expert % _EXPERTS)
        )

    def constant(self, values: Floats) -> Weight:
        """Any matrix of this shape."""
        rows, columns = values.shape
        return self._matrix(("F32", rows, columns, "constant", 0))

    def _matrix(self, key: Key) -> Weight:
        place = self.keys.setdefault(key, len(self.keys))
        return self.weights[place] if self.weights else _Shape(key[1:3])

    def adapt(self) -> None:
        """If `adapted`, add an adapter to each matrix that can have one."""
        for linear in self.linears.values() if self.adapted else ():
            rows, columns = linear.weight.shape
            linear.adapters.pairs.append(
                (
                    self._matrix((ADAPTERS, _RANK, columns, "adapter", 0)),
                    self._matrix((ADAPTERS, rows, _RANK, "adapter", 1)),
                )
            )

    def lengths(self, name: str, rows: int, columns: int) -> Floats:
        """As in `WeightSource`: ones, with which logits are of a usual size."""
        return np.ones(rows, np.float32)

    def vector(self, name: str, *shape: int) -> Floats:
        """As in `WeightSource`: norms that give values of a usual size, and small biases."""
        rng, recurrent = np.random.default_rng(sum(name.encode())), self.names.recurrent
        if recurrent is not None and recurrent.gguf and name.endswith(recurrent.rate or " "):
            return -rng.uniform(0.5, 1.5, shape).astype(np.float32)
        if name.endswith(self.names.expert_table or " ") and self.config.experts is not None:
            orders = rng.random((shape[0], self.config.experts.count)).argsort(1)
            return orders[:, : shape[1]].astype(np.float32)
        if name.endswith(self.names.layer_scale or " "):
            return rng.uniform(0.5, 1.5, shape).astype(np.float32)
        if not name.endswith(".weight") or name == self.names.positions + ".weight":
            return (0.1 * rng.standard_normal(shape)).astype(np.float32)
        post = any(slot and slot in name for slot in (self.names.attention_post, self.names.mlp_post))
        wide = shape == (self.config.width,)
        size = 2.0 if post else 8 / self.config.width**0.5 if wide else 1.0
        return (size * rng.uniform(0.5, 1.5, shape) - self.config.norm_offset).astype(np.float32)

    def random(self) -> list[RawTensor]:
        """Random weights in the order of `keys`."""
        return [
            _random(kind, rows, columns, number) for number, (kind, rows, columns, *_) in enumerate(self.keys)
        ]


@dataclass
class _Shape:
    """Stands in for a matrix."""

    shape: tuple[int, ...]
    nbytes: int = 0


def _random(kind: str, rows: int, columns: int, seed: int) -> RawTensor:
    """A matrix whose rows repeat a few random ones in random order; F16 if the type has no builder or does
    not allow these columns.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, _BASE_ROWS, rows)
    build = builder(kind)
    if build is not None:
        with suppress(ValueError):
            return build(rng, _BASE_ROWS, columns).take(chosen)
    return BLOCKS["F16"](rng, _BASE_ROWS, columns).take(chosen)
