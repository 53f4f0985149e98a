"""A small model of the same make as a large one, with random weights: its passes run the kernels that the large one's run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from engine.backends.base import Array, Floats, Ops, RawTensor, Weight
from engine.backends.cache_types import cache_type
from engine.models.base import rotary
from engine.models.cases import ATTENTION_STEPS, CACHES, Case
from engine.models.config import ModelConfig
from engine.models.family import Family
from engine.models.layers import Linear, Parts
from engine.models.names import TensorNames
from engine.models.random_tensors import BLOCKS, PACKED, Make
from engine.models.source import WHOLE, View, is_expert

NAME = "a small model of the same make"
SHARE, BF16_SHARE = 0.01, 0.04
"""The largest difference of logits, over the largest of the reference's: products in fp16 (in bf16) over a few layers stay below a
third of it, and a wrong kernel anywhere comes far above."""
_LAYERS, _FFN, _EXPERT, _VOCABULARY, _WINDOW, _POSITIONS = 4, 512, 256, 512, 100, 1024
_BASE_ROWS, _EXPERTS = 64, 4

Key = tuple[str, int, int, str, int]


def miniature(
    family: Family, config: ModelConfig, names: TensorNames, tensors: Mapping[str, RawTensor],
    prepare: Callable[[RawTensor], RawTensor] | None, cache_dtype: str,
) -> Case:  # fmt: skip
    """One of each kind of layer that the model has, as wide as it is, with few heads, features and tokens."""
    layers = _kinds(config, names, tensors)
    small = _small(config, layers)
    kind = cache_type(cache_dtype, automatic="fp16")
    plan = _Plan(tensors, names, layers, prepare, small)
    _built(family, plan, small, names)
    turn = rotary(small, _POSITIONS, min(_POSITIONS, config.context_length))

    def forward(ops: Ops, weights: Sequence[Weight]) -> Array:
        return _built(family, replace(plan, weights=weights), small, names)(ops, turn)

    tolerance = (BF16_SHARE if any(key[0] == "BF16" for key in plan.keys) else SHARE) + 2 * max(CACHES[kind.keys], CACHES[kind.values])
    return Case(
        NAME, tolerance, forward, plan.random, ATTENTION_STEPS, str(kind), small.attention_shape, True, small.layers
    )


def kinds_of(names: Mapping[str, RawTensor], prepare: Callable[[RawTensor], RawTensor] | None) -> list[str]:
    """The types of a model's matrices, as they are loaded."""
    found = {(prepare(tensor) if prepare else tensor).type for tensor in names.values() if len(tensor.shape) == 2}
    return sorted(found)


@cache
def makers() -> Mapping[str, tuple[str, Make]]:
    """By the type of a tensor: what people call it, and what makes random ones."""
    found = {name: (name, make) for name, make in BLOCKS.items()}
    for name, make in PACKED.items():
        found.setdefault(make(np.random.default_rng(0), 32, 256).type, (name, make))
    return found


def _built(family: Family, source: _Plan, config: ModelConfig, names: TensorNames) -> Parts:
    building = family.build(source, config, names)
    while True:
        try:
            next(building)
        except StopIteration as end:
            parts: Parts = end.value
            return parts


def _kinds(config: ModelConfig, names: TensorNames, tensors: Mapping[str, RawTensor]) -> tuple[int, ...]:
    """Layers that differ by more than their numbers."""
    found: dict[object, int] = {}
    for layer in range(config.layers):
        at = names.layer.format(layer)
        types = frozenset((name.removeprefix(at), tensor.type) for name, tensor in tensors.items() if name.startswith(at))
        window = bool(config.windows and config.windows[layer])
        experts = config.experts is not None and layer in config.experts.layers
        found.setdefault((window, layer in config.unturned, experts, types), layer)
    return tuple(found.values())[:_LAYERS]


def _small(config: ModelConfig, layers: tuple[int, ...]) -> ModelConfig:
    ratio = config.heads // config.kv_heads
    groups = next((g for g in range(1, config.kv_heads + 1) if ratio * g * config.head_dim % 256 == 0), config.kv_heads)
    experts = config.experts
    if experts is not None:
        own = frozenset(i for i, layer in enumerate(layers) if layer in experts.layers)
        experts = replace(experts, width=min(experts.width, _EXPERT), layers=own)
    return replace(
        config,
        layers=len(layers),
        heads=ratio * groups,
        kv_heads=groups,
        ffn_width=min(config.ffn_width, _FFN),
        vocab_size=min(config.vocab_size, _VOCABULARY),
        windows=tuple(min(config.windows[layer], _WINDOW) for layer in layers) if config.windows else (),
        unturned=frozenset(i for i, layer in enumerate(layers) if layer in config.unturned),
        learned_positions=min(config.learned_positions, _POSITIONS),
        experts=experts,
    )


@dataclass
class _Plan:
    """A `WeightSource`: without `weights` it notes what is asked for, with them it hands them out."""

    tensors: Mapping[str, RawTensor]
    names: TensorNames
    layers: tuple[int, ...]
    prepare: Callable[[RawTensor], RawTensor] | None
    config: ModelConfig
    weights: Sequence[Weight] = ()
    keys: dict[Key, int] = field(default_factory=dict)
    linears: dict[str, Linear] = field(default_factory=dict)

    def _real(self, name: str) -> str:
        """The name that the large model's tensor has."""
        for number, layer in reversed(list(enumerate(self.layers))):
            at = self.names.layer.format(number)
            if name.startswith(at):
                return self.names.layer.format(layer) + name.removeprefix(at)
        return name

    def has(self, name: str) -> bool:
        """See `WeightSource`."""
        return self._real(name) in self.tensors

    def matrix(self, name: str, rows: int, columns: int, view: View = WHOLE) -> Weight:
        """See `WeightSource`; of experts four are random, the others are these again."""
        real = self._real(name)
        matrix = view.of(self.tensors[real])
        kind = (self.prepare(matrix) if self.prepare else matrix).type
        numbers = re.findall(r"\d+", name)
        expert = view.part if view.parts else int(numbers[-1]) if is_expert(name) and len(numbers) > 1 else 0
        key = kind, rows, columns, re.sub(r"\d+", "", name) if is_expert(name) else name, expert % _EXPERTS
        place = self.keys.setdefault(key, len(self.keys))
        return self.weights[place] if self.weights else _Shape((rows, columns))

    def vector(self, name: str, *shape: int) -> Floats:
        """See `WeightSource`: norms that leave numbers of a usual size, and small biases."""
        rng = np.random.default_rng(sum(name.encode()))
        if not name.endswith(".weight") or name == self.names.positions + ".weight":
            return (0.1 * rng.standard_normal(shape)).astype(np.float32)
        post = any(slot and slot in name for slot in (self.names.attention_post, self.names.mlp_post))
        wide = shape == (self.config.width,)
        size = 2.0 if post else 8 / self.config.width**0.5 if wide else 1.0
        return (size * rng.uniform(0.5, 1.5, shape) - self.config.norm_offset).astype(np.float32)

    def random(self) -> list[RawTensor]:
        """The weights, as a file would hold them, in the order of `keys`."""
        return [_random(kind, rows, columns, number) for number, (kind, rows, columns, *_) in enumerate(self.keys)]


@dataclass
class _Shape:
    """Stands for a matrix."""

    shape: tuple[int, ...]
    nbytes: int = 0


def _random(kind: str, rows: int, columns: int, seed: int) -> RawTensor:
    """Of a type that cannot be made of this shape: fp16."""
    rng = np.random.default_rng(seed)
    _, make = makers().get(kind, ("F16", BLOCKS["F16"]))
    wide = kind in BLOCKS
    if not (wide or columns % 256 == 0):
        make, wide = BLOCKS["F16"], True
    try:
        base = make(rng, _BASE_ROWS, columns)
        return base.take(rng.integers(0, _BASE_ROWS, rows)) if wide else make(rng, -(-rows // 32) * 32, columns).rows(0, rows)
    except ValueError:  # whole blocks do not come to such rows
        return BLOCKS["F16"](rng, rows, columns)
