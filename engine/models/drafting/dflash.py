"""A DFlash drafter (`engine.models.architectures.drafters.dflash`) beside the model that it drafts for.

A pass has two kinds of rows. Those of the *context* stand for known tokens: keys and values of all layers are
made of c = norm(M [a; b; ...]), the main model's hidden states after some layers. Those of a *block*, the
last known token and masks for the tokens to be drafted, go through the layers, and see each other and the
context. The logits of a mask are those of the token in its place. Source: arXiv 2602.06036, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, MemoryEstimator, Ops, Weight
from engine.core import Loading
from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass
from engine.models.architectures.drafters.dflash import DFlashConfig, read_dflash_config
from engine.models.architectures.drafters.names import dflash_names
from engine.models.base import Model, Weights
from engine.models.building.attention import Attention, SeparateQkv
from engine.models.building.decoder import block_of, norm_of
from engine.models.building.source import Loader, Survey, WeightSource, linear
from engine.models.config import ModelConfig
from engine.models.drafting.head import HeadModel, lacks_states, of_another
from engine.models.layers.features import Features
from engine.models.layers.parts import Block, Linear, Norm, RopeTables
from engine.models.layers.whole import Blocks, Layered, Parts
from engine.models.load import check_memory
from engine.models.names import TensorNames
from engine.tensors import RawTensor
from engine.weights.checkpoint import Checkpoint
from engine.weights.gguf.ollama import known_name
from engine.words import _

__all__ = ["DFlashModel", "dflash_problem", "read_dflash", "survey_dflash"]

CONTEXT, BLOCK = (1.0, 0.0), (0.0, 1.0)
"""What follows the features of a row of either kind in `HeadModel.given`."""


@dataclass(frozen=True, slots=True)
class TwofoldInputs:
    """Queries of the first half of a row (T, 2 E), keys and values of the second."""

    own: SeparateQkv
    width: int

    def __call__(self, ops: Ops, x: Array) -> tuple[Array, Array, Array]:
        first, second = (ops.columns(x, start, self.width) for start in (0, self.width))
        return self.own.query(ops, first), self.own.key(ops, second), self.own.value(ops, second)


@dataclass(frozen=True, slots=True)
class BlockLayer:
    """A layer whose keys and values are made of normed rows of a block, or of rows of the context."""

    block: Block

    def __call__(self, ops: Ops, x: Array, context: Array, kinds: Array, tables: RopeTables) -> Array:
        """Rows (T, E), what rows of the context are (T, E), and the kinds of rows (T, 2) -> (T, E)."""
        block = self.block
        assert block.attention is not None
        assert block.attention_norm is not None
        assert block.mlp is not None
        assert block.mlp_norm is not None
        normed = block.attention_norm(ops, x)
        both = ops.join(normed, ops.mix([context, normed], kinds, 0), 1)
        x = block.attention(ops, both, tables, residual=x)
        return block.mlp(ops, block.mlp_norm(ops, x), residual=x)


@dataclass(frozen=True, slots=True)
class _Drafter:
    features: Features
    context_norm: Norm
    layers: tuple[BlockLayer, ...]
    norm: Norm
    embed: Weight | None
    head: Linear | None
    """None, as of `embed`: the main model's."""


def _build(source: WeightSource, config: DFlashConfig, names: tuple[TensorNames, str]) -> _Drafter:
    (decoder, context_norm), width, states = names, config.width, len(config.layers_before)
    table, head = decoder.embed + ".weight", decoder.head
    return _Drafter(
        Features(config.layers_before, linear(source, "fc", width, states * width, False)),
        norm_of(source, config, decoder, context_norm),
        tuple(_layer(source, config, decoder, layer) for layer in range(config.layers)),
        norm_of(source, config, decoder, decoder.norm),
        source.matrix(table, config.vocab_size, width) if source.has(table) else None,
        linear(source, head, config.vocab_size, width, False) if source.has(head + ".weight") else None,
    )


def _layer(source: WeightSource, config: DFlashConfig, names: TensorNames, layer: int) -> BlockLayer:
    block = block_of(source, config, names, layer)
    attention = block.attention
    assert isinstance(attention, Attention)
    assert isinstance(attention.inputs, SeparateQkv)
    inputs = TwofoldInputs(attention.inputs, config.width)
    shape = replace(attention.shape, bidirectional=not config.causal[layer])
    return BlockLayer(replace(block, attention=replace(attention, inputs=inputs, shape=shape)))


def survey_dflash(
    checkpoint: Checkpoint, backend: MemoryEstimator, prepare: Callable[[RawTensor], RawTensor] | None = None
) -> tuple[DFlashConfig, Survey]:
    """Check a drafter and count its bytes by its headers. Raises as `read_dflash_config`, and `BadCheckpoint`
    for missing tensors.
    """
    config = read_dflash_config(checkpoint)
    seen = Survey(checkpoint.tensors, backend, prepare)
    _build(seen, config, dflash_names(checkpoint))
    seen.check(known_name(checkpoint.path))
    return config, seen


def dflash_problem(checkpoint: Checkpoint, main: ModelConfig, layered: bool) -> str:
    """Why a drafter cannot draft for a model, whose layers are `Layered` or not; "" if it can. Raises as
    `read_dflash_config`.
    """
    config, decoder = read_dflash_config(checkpoint), dflash_names(checkpoint)[0]
    own = any(name + ".weight" in checkpoint.tensors for name in (decoder.embed, decoder.head))
    tokens = config.vocab_size == main.vocab_size if own else config.mask < main.vocab_size
    if {config.width} != {main.width, main.embed_width or main.width} or not tokens:
        return of_another(config.width, config.vocab_size, main)
    if not layered or max(config.layers_before) > main.layers:
        return lacks_states()
    return ""


class DFlashModel(HeadModel):
    """A drafter of `main`, whose embedding and head it shares where it has none. After the features of a row,
    `given` has `CONTEXT` or `BLOCK`.
    """

    config: DFlashConfig
    in_blocks = True

    def __init__(self, main: Model, config: DFlashConfig, made: _Drafter, loaded: Weights) -> None:
        outer = main.parts
        embed, head = made.embed or outer.embed, made.head or outer.head
        parts = Parts(
            embed, Blocks(()), made.norm, head, embed_scale=config.input_scale,
            logit_scale=config.output_scale, logit_cap=config.output_cap,
        )  # fmt: skip
        shared = {
            id(theirs): theirs.nbytes
            for own, theirs in ((made.embed, outer.embed), (made.head, outer.head.weight))
            if own is None
        }
        fused = made.features.fusion.weight.nbytes  # which the main model's pass reads
        super().__init__(
            config, main, parts, replace(loaded, bytes=loaded.bytes + sum(shared.values()) - fused)
        )
        self.resident_bytes = loaded.bytes
        self.of_main = made.features
        self.given = np.zeros((len(self.given), config.width + 2), np.float32)
        self._made: _Drafter | None = made

    def forward(self, ops: Ops) -> Array:
        """The logits (logit_rows, V) of the last rows."""
        parts, made, width = self.parts, self._made, self.config.width
        assert made is not None
        given = ops.given(self.given)
        context = made.context_norm(ops, ops.columns(given, 0, width))
        kinds = ops.columns(given, width, 2)
        x = ops.embed(parts.embed, parts.embed_scale)
        for layer in made.layers:
            x = layer(ops, x, context, kinds, self.rope_tables)
        return parts.logits(ops, made.norm(ops, ops.last_rows(x)))

    def close(self) -> None:
        super().close()
        self._made = None


def read_dflash(
    checkpoint: Checkpoint, main: Model, prepare: Callable[[RawTensor], RawTensor] | None = None
) -> Generator[Loading, None, DFlashModel]:
    """Load a drafter for `main`. Raises `BadCheckpoint`, `UnsupportedModel` and `NotEnoughMemory`, and
    `BadSetting` if it does not fit.
    """
    backend, name = main.backend, known_name(checkpoint.path)
    if problem := dflash_problem(checkpoint, main.config, isinstance(main.parts.stack, Layered)):
        raise BadSetting(_("{name} cannot draft for this model: {problem}", name=name, problem=problem))
    config, seen = survey_dflash(checkpoint, backend, prepare)
    check_memory(name, seen.bytes, backend.free_memory(), backend.where)
    yield Loading(_("Loading the weights"), 0, 1)
    loader = Loader(checkpoint.tensors, backend, prepare)
    made = _build(loader, config, dflash_names(checkpoint))
    # Rotations have no end, and a guess changes no reply: drafters that learnt from short texts go on.
    config = replace(
        config, vocab_size=main.config.vocab_size,
        context_length=max(config.context_length, main.config.context_length),
    )  # fmt: skip
    model = DFlashModel(main, config, made, Weights(seen.parameters, loader.bytes, loader.expert_bytes, {}))
    yield from model.prepare()
    return model
