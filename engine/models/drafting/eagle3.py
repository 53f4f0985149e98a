"""An EAGLE-3 drafter (`engine.models.architectures.drafters.eagle3`) beside the model that it drafts for.

The state of position i is g = M_f [a; b; c] of three hidden states from within the main model. From it and
the token of position i + 1 the drafter predicts the token of position i + 2: the queries, keys and values of
its first layer are made of [norm(embedding); norm(g)], and what the layer makes is added to g. The result h,
normed, makes logits; for the token after that, h takes the place of g. Source: arXiv 2503.01840, section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, MemoryEstimator, Ops, Weight
from engine.core import Loading
from engine.errors import BadCheckpoint, BadSetting
from engine.lazy_dataclass import dataclass
from engine.models.architectures.drafters.eagle3 import Eagle3Config, read_eagle3_config
from engine.models.architectures.drafters.names import Eagle3Names, names_of
from engine.models.base import Model, Weights
from engine.models.building.decoder import block_of, norm_of
from engine.models.building.source import Loader, Survey, WeightSource, linear, norm
from engine.models.config import ModelConfig
from engine.models.drafting.head import HeadModel, lacks_states, of_another
from engine.models.layers.features import Features
from engine.models.layers.parts import Block, Linear, Norm, Order, RopeTables
from engine.models.layers.whole import Blocks, Layered, Parts
from engine.models.load import check_memory
from engine.tensors import Floats, RawTensor
from engine.weights.checkpoint import Checkpoint
from engine.weights.gguf.ollama import known_name
from engine.words import _

__all__ = ["Eagle3Model", "eagle3_problem", "read_eagle3", "survey_eagle3"]


@dataclass(frozen=True, slots=True)
class FirstLayer:
    """The first layer: `block` norms the tokens, `hidden_norm` the states. With `normed_residual` the normed
    states are added to what attention makes.
    """

    block: Block
    hidden_norm: Norm
    normed_residual: bool

    def __call__(self, ops: Ops, tokens: Array, states: Array, tables: RopeTables) -> Array:
        """Embeddings (T, E) and states (T, E) -> (T, E)."""
        block = self.block
        assert block.attention is not None
        assert block.attention_norm is not None
        assert block.mlp is not None
        assert block.mlp_norm is not None
        normed = self.hidden_norm(ops, states)
        x = ops.join(block.attention_norm(ops, tokens), normed, 1)
        x = block.attention(ops, x, tables, residual=normed if self.normed_residual else states)
        return block.mlp(ops, block.mlp_norm(ops, x), residual=x)


@dataclass(frozen=True, slots=True)
class _Drafter:
    features: Features
    first: FirstLayer
    more: tuple[Block, ...]
    norm: Norm
    embed: Weight | None
    head: Linear | None
    """None, as of `embed`: the main model's."""
    mapping: Floats | None
    """What leads from drafted tokens (D,) to the main model's, as `Eagle3Names.mapping`; None: they are
    these.
    """


def _build(source: WeightSource, config: Eagle3Config, names: Eagle3Names, states: int) -> _Drafter:
    """A drafter that reads this many `states` of the main model."""
    width, decoder, drafted = config.width, names.decoder, config.draft_vocab_size
    own, mapped = source.has(decoder.head + ".weight"), source.has(names.mapping)
    return _Drafter(
        _features(source, config, names, states),
        FirstLayer(
            block_of(source, config, decoder, 0, 2 * width),
            norm_of(source, config, decoder, decoder.at(0) + names.hidden_norm),
            config.normed_residual,
        ),
        tuple(block_of(source, config, decoder, layer) for layer in range(1, config.layers)),
        norm_of(source, config, decoder, decoder.norm),
        source.matrix(decoder.embed + ".weight", config.vocab_size, width)
        if source.has(decoder.embed + ".weight")
        else None,
        linear(source, decoder.head, drafted, width, False) if own or drafted != config.vocab_size else None,
        source.vector(names.mapping, drafted) if mapped or drafted != config.vocab_size else None,
    )


def _features(source: WeightSource, config: Eagle3Config, names: Eagle3Names, states: int) -> Features:
    """The features; their layers are those that the file names, if any."""
    width, apart, norms = config.main_width, config.norms == "apart", list[Norm]()
    sizes = {"apart": [width] * states, "together": [width * states]}.get(config.norms, [])
    for number, size in enumerate(sizes):
        name = names.state_norm.format(number) if apart else names.joined_norm
        norms.append(norm(source, name, size, config.norm_eps, layer_norm=False, bias=False))
    fusion = linear(source, names.fusion, config.width, states * width, False)
    return Features(config.layers_before, fusion, tuple(norms), apart)


def survey_eagle3(
    checkpoint: Checkpoint, backend: MemoryEstimator, prepare: Callable[[RawTensor], RawTensor] | None = None
) -> tuple[Eagle3Config, Survey]:
    """Check a drafter and count its bytes by its headers. Raises as `read_eagle3_config`, and `BadCheckpoint`
    for missing tensors.
    """
    config, names = read_eagle3_config(checkpoint), names_of(checkpoint)
    seen = Survey(checkpoint.tensors, backend, prepare)
    _build(seen, config, names, len(config.layers_before) or 3)
    seen.check(known_name(checkpoint.path))
    return config, seen


def eagle3_problem(checkpoint: Checkpoint, main: ModelConfig, layered: bool) -> str:
    """Why a drafter cannot draft for a model, whose layers are `Layered` or not; "" if it can. Raises as
    `read_eagle3_config`.
    """
    config, names = read_eagle3_config(checkpoint), names_of(checkpoint)
    if (config.main_width, config.vocab_size) != (main.width, main.vocab_size):
        return of_another(config.main_width, config.vocab_size, main)
    alike = config.width == (main.embed_width or main.width)
    states = config.states_of(main.layers)
    if not layered or min(states) < 0 or max(states) > main.layers:
        return lacks_states()
    if not alike and not all(
        name + ".weight" in checkpoint.tensors for name in (names.decoder.embed, names.decoder.head)
    ):
        return _(
            "The EAGLE-3 drafter has {width} features of its own, and neither shares the tables of this "
            "model nor brings its own. Choose the drafter that was made for this model.",
            width=config.width,
        )
    return ""


class Eagle3Model(HeadModel):
    """A drafter of `main`, whose embedding and head it shares where it has none."""

    def __init__(self, main: Model, config: Eagle3Config, made: _Drafter, loaded: Weights) -> None:
        outer = main.parts
        embed, head = made.embed or outer.embed, made.head or outer.head
        shared = sum(
            theirs.nbytes
            for own, theirs in ((made.embed, outer.embed), (made.head, outer.head.weight))
            if own is None
        )
        fused = made.features.fusion.weight.nbytes  # which the main model's pass reads
        parts = Parts(embed, Blocks(made.more), made.norm, head)
        super().__init__(config, main, parts, replace(loaded, bytes=loaded.bytes + shared - fused))
        self.resident_bytes = loaded.bytes
        self.of_main = replace(made.features, layers=config.states_of(main.config.layers))
        self._first: FirstLayer | None = made.first
        self._normed_output = config.normed_output
        self._targets: Order | None = None
        """The main model's tokens (D,) that can be drafted; None: all."""
        self._widened = np.empty(0, np.float32)

    def map_tokens(self, mapping: Floats, absolute: bool) -> None:
        """Set which tokens can be drafted; as `Eagle3Names` has it. Raises `BadCheckpoint` for others than
        distinct ones of the main model.
        """
        targets = mapping.astype(np.int64) + (0 if absolute else np.arange(len(mapping)))
        in_range = 0 <= targets.min() <= targets.max() < self.config.vocab_size
        if not in_range or len(np.unique(targets)) < len(targets):
            raise BadCheckpoint(
                _(
                    "The EAGLE-3 drafter's table d2t does not name a token of the model for each of its own; "
                    "the file is damaged. Download it again."
                )
            )
        self._targets, self._widened = targets, np.full(self.config.vocab_size, -np.inf, np.float32)

    def forward(self, ops: Ops) -> Array:
        """The logits (1, D) of the tokens that can be drafted."""
        parts = self.parts
        assert self._first is not None
        assert parts.norm is not None
        x = self._first(ops, ops.embed(parts.embed), ops.given(self.given), self.rope_tables)
        x = parts.stack(ops, x, self.rope_tables)
        if self._normed_output:
            return parts.head(ops, parts.last(ops, x, self.kept))
        return parts.head(ops, parts.norm(ops, ops.last_rows(ops.keep(x, self.kept))))

    def widened(self, logits: Floats) -> Floats:
        if self._targets is None:
            return logits
        self._widened[self._targets] = logits
        return self._widened

    def close(self) -> None:
        super().close()
        self._first = None


def read_eagle3(
    checkpoint: Checkpoint, main: Model, prepare: Callable[[RawTensor], RawTensor] | None = None
) -> Generator[Loading, None, Eagle3Model]:
    """Load a drafter for `main`. Raises `BadCheckpoint`, `UnsupportedModel` and `NotEnoughMemory`, and
    `BadSetting` if it does not fit.
    """
    backend, name = main.backend, known_name(checkpoint.path)
    layered = isinstance(main.parts.stack, Layered)
    if problem := eagle3_problem(checkpoint, main.config, layered):
        raise BadSetting(_("{name} cannot draft for this model: {problem}", name=name, problem=problem))
    config, seen = survey_eagle3(checkpoint, backend, prepare)
    check_memory(name, seen.bytes, backend.free_memory(), backend.where)
    yield Loading(_("Loading the weights"), 0, 1)
    loader = Loader(checkpoint.tensors, backend, prepare)
    names = names_of(checkpoint)
    made = _build(loader, config, names, len(config.layers_before) or 3)
    # Rotations have no end, and a guess changes no reply: drafters that learnt from short texts go on.
    config = replace(config, context_length=max(config.context_length, main.config.context_length))
    loaded = Weights(seen.parameters, loader.bytes, loader.expert_bytes, {})
    model = Eagle3Model(main, config, made, loaded)
    if made.mapping is not None:
        model.map_tokens(made.mapping, names.absolute)
    yield from model.prepare()
    return model
