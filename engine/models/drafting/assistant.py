"""An assistant (`engine.models.architectures.drafters.gemma4_assistant`) beside the model that it drafts for.

After n tokens, of which the main model has run all but the last, it guesses the next ones from x = M_in
[embedding of the last token; h], both the main model's, where h is the hidden state after the final norm of
the token before. Its layers ask, from position n - 1, for the keys and values that the main model's last
layer of each kind has of the n - 1 tokens. The normed result makes logits, and M_out of it takes the place of
h for the guess after that, whose position is the same. Source: `Gemma4AssistantForCausalLM` of transformers,
and its `SinglePositionMultiTokenCandidateGenerator`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, KVCache, MemoryEstimator, Ops, Program, RotaryTable, Step
from engine.core import Loading
from engine.errors import BadCheckpoint, BadSetting
from engine.lazy_dataclass import dataclass
from engine.models.architectures.drafters.gemma4_assistant import (
    ASSISTANT,
    AssistantConfig,
    read_assistant_config,
)
from engine.models.base import Model, Weights, rope_tables
from engine.models.building.decoder import layers_of, norm_of
from engine.models.building.source import Loader, Survey, WeightSource, linear
from engine.models.config import ModelConfig
from engine.models.layers.parts import Linear, Norm, RopeTables
from engine.models.layers.whole import Parts, Stack
from engine.models.load import check_memory
from engine.models.names import TensorNames
from engine.tensors import Floats, Ints, RawTensor
from engine.weights.checkpoint import Checkpoint
from engine.weights.gguf.ollama import known_name
from engine.words import _

__all__ = ["AssistantModel", "assistant_problem", "read_assistant", "survey_assistant"]


@dataclass(frozen=True, slots=True)
class Clusters:
    """The rows of a head, divided into C clusters of K tokens, of which those count whose centroids x likes
    best: `centroids` (C, E), `tokens` (C, K), `rows` (C, K, E).
    """

    centroids: Floats
    tokens: Ints
    rows: Floats
    used: int

    def logits(self, x: Floats) -> Floats:
        """The logits (V,) of x (E,): -inf outside the `used` best clusters."""
        scores = self.centroids @ x
        found = np.full(self.tokens.size, -np.inf, np.float32)
        for best in np.argpartition(scores, -self.used)[-self.used :]:
            found[self.tokens[best]] = self.rows[best] @ x
        return found

    @property
    def unread_bytes(self) -> int:
        """Bytes of the rows that one guess does not read."""
        return self.rows.nbytes // len(self.rows) * (len(self.rows) - self.used)


@dataclass(frozen=True, slots=True)
class _Assistant:
    input: Linear
    stack: Stack
    norm: Norm
    output: Linear
    head: Linear | Clusters


def _build(source: WeightSource, config: AssistantConfig, names: TensorNames, *, gguf: bool) -> _Assistant:
    width, main = config.width, config.main_width
    at = "nextn." if gguf else ""
    return _Assistant(
        linear(source, at + "pre_projection", width, 2 * main, False),
        layers_of(source, config, names),
        norm_of(source, config, names, names.norm),
        linear(source, at + "post_projection", main, width, False),
        _head(source, config, names),
    )


def _head(source: WeightSource, config: AssistantConfig, names: TensorNames) -> Linear | Clusters:
    count, width, centroids = config.vocab_size, config.width, config.centroids
    name = names.embed if config.tied else names.head
    if not centroids:
        return linear(source, name, count, width, False)
    return Clusters(
        source.vector("masked_embedding.centroids.weight", centroids, width),
        _tokens(source.vector("masked_embedding.token_ordering", count), centroids),
        source.vector(name + ".weight", count, width).reshape(centroids, -1, width),
        config.used_centroids,
    )


def _tokens(ordering: Floats, centroids: int) -> Ints:
    return ordering.astype(np.int32).reshape(centroids, -1)


def _of(checkpoint: Checkpoint) -> tuple[AssistantConfig, TensorNames, bool]:
    names = ASSISTANT.names(checkpoint.format, checkpoint.tensors)
    return read_assistant_config(checkpoint), names, checkpoint.format == "gguf"


def survey_assistant(
    checkpoint: Checkpoint, backend: MemoryEstimator, prepare: Callable[[RawTensor], RawTensor] | None = None
) -> tuple[AssistantConfig, Survey]:
    """Check an assistant and count its bytes by its headers. Raises as `read_assistant_config`, and
    `BadCheckpoint` for missing tensors.
    """
    config, names, gguf = _of(checkpoint)
    seen = Survey(checkpoint.tensors, backend, prepare)
    _build(seen, config, names, gguf=gguf)
    seen.check(known_name(checkpoint.path))
    return config, seen


def _last_layers(config: AssistantConfig, main: ModelConfig) -> tuple[int, ...]:
    """For each layer, the main model's last one of its kind with keys and values, whose heads must be the
    same; () if there is none for one.
    """
    found = []
    for layer in range(config.layers):
        slides = bool(config.window_of(layer))
        alike = [
            other
            for other in range(main.layers)
            if other not in main.uncached_layers and bool(main.window_of(other)) == slides
        ]
        if not alike or main.heads_of(alike[-1]) != config.heads_of(layer):
            return ()
        found.append(main.cache_layer(alike[-1]))
    return tuple(found)


def assistant_problem(config: AssistantConfig, main: ModelConfig) -> str:
    """Why an assistant cannot draft for a model; "" if it can."""
    if (config.main_width, config.vocab_size) != (main.width, main.vocab_size):
        return _(
            "It is an assistant for models with {width} features and {count} tokens, but this one has "
            "{width_2} and {count_2}. Choose the assistant that was made for this model.",
            width=config.main_width,
            count=config.vocab_size,
            width_2=main.width,
            count_2=main.vocab_size,
        )
    if main.latent is not None or not _last_layers(config, main):
        return _(
            "It is an assistant for a model with other keys and values than this one. Choose the assistant "
            "that was made for this model."
        )
    return ""


class AssistantModel(Model):
    """An assistant, which shares the embedding of `main` and reads its cache.

    A pass is of one row: it takes, besides a token, the hidden state in `given` (1, F), and leaves the next
    one in `next_state` (1, F), F being the main model's width.
    """

    def __init__(self, main: Model, config: AssistantConfig, made: _Assistant, loaded: Weights) -> None:
        outer, head = main.parts, made.head if isinstance(made.head, Linear) else Linear(main.parts.embed)
        parts = Parts(outer.embed, made.stack, made.norm, head, embed_scale=outer.embed_scale)
        super().__init__(config, main.backend, parts, loaded)
        self.clusters = made.head if isinstance(made.head, Clusters) else None
        unread = 0 if self.clusters is None else self.clusters.unread_bytes
        self.weight_bytes_per_token = loaded.bytes - unread
        self._made: _Assistant | None = made
        self.given, self.next_state = (np.zeros((1, config.main_width), np.float32) for _unused in range(2))
        self._program: Program | None = None

    def forward(self, ops: Ops) -> Array:
        """The logits (1, V), or what `clusters` makes them of (1, E)."""
        parts, made = self.parts, self._made
        assert made is not None
        token = ops.embed(parts.embed, parts.embed_scale)
        x = made.input(ops, ops.join(token, ops.given(self.given), 1))
        x = made.norm(ops, made.stack(ops, x, self.rope_tables))
        ops.keep(made.output(ops, x), self.next_state)
        x = ops.last_rows(x)
        return parts.head(ops, x) if self.clusters is None else x

    def attach(self, cache: KVCache, context: int) -> None:
        """Record the pass over the main model's cache, for conversations of up to `context` tokens."""
        for _unused in self.prepare(cache.dtype):
            pass
        self.detach()
        self._program = self.record(cache, 1, context)

    def detach(self) -> None:
        """Leave the cache alone."""
        if self._program is not None:
            self._program.close()
        self._program = None

    def guess(self, token: int, state: Floats, length: int, pages: Ints) -> tuple[Floats, Floats]:
        """Logits (V,) of what follows `token`, and the state (F,) for the guess after it.

        The main model has run `length` tokens, which are in `pages`; `state` is the hidden state of the last
        one or, for a further guess, what this returned.
        """
        assert self._program is not None
        self.given[0] = state
        # Attention from the last token that was read; the rotary tables are those of the position after it.
        step = Step(np.array([token], np.int32), np.array([length - 1], np.int32), pages)
        found = self._program.run(step)[-1]
        return found if self.clusters is None else self.clusters.logits(found), self.next_state[0].copy()

    def close(self) -> None:
        self.detach()
        super().close()
        self._made = self.clusters = None

    def _make_tables(self, positions: int, context: int) -> None:
        """Tables whose first row is of position 1."""
        length, for_context, _unused = self._tables
        if length < positions or for_context != context:
            made = rope_tables(self.config, positions + 1, context)
            tables = RopeTables(_from_second(made.main), _from_second(made.local))
            self._tables = (positions, context, tables)


def _from_second(table: RotaryTable | None) -> RotaryTable | None:
    return None if table is None else RotaryTable(table.cos[1:], table.sin[1:], table.interleaved)


def read_assistant(
    checkpoint: Checkpoint, main: Model, prepare: Callable[[RawTensor], RawTensor] | None = None
) -> Generator[Loading, None, AssistantModel]:
    """Load an assistant for `main`. Raises `BadCheckpoint`, `UnsupportedModel` and `NotEnoughMemory`, and
    `BadSetting` if it does not fit.
    """
    backend, name = main.backend, known_name(checkpoint.path)
    config, names, gguf = _of(checkpoint)
    if problem := assistant_problem(config, main.config):
        raise BadSetting(_("{name} cannot draft for this model: {problem}", name=name, problem=problem))
    seen = survey_assistant(checkpoint, backend, prepare)[1]
    check_memory(name, seen.bytes, backend.free_memory(), backend.where)
    yield Loading(_("Loading the weights"), 0, 1)
    config = replace(config, borrowed=_last_layers(config, main.config))
    loader = Loader(checkpoint.tensors, backend, prepare)
    made = _build(loader, config, names, gguf=gguf)
    if isinstance(made.head, Clusters):
        made = replace(made, head=_in_order(made.head))
    return AssistantModel(main, config, made, Weights(seen.parameters, loader.bytes, loader.expert_bytes, {}))


def _in_order(clusters: Clusters) -> Clusters:
    """The clusters with each one's rows of the head, which a file has in the order of tokens. Raises
    `BadCheckpoint` if a token is not in one of them.
    """
    if not np.array_equal(np.sort(clusters.tokens, axis=None), np.arange(clusters.tokens.size)):
        raise BadCheckpoint(
            _("The assistant's clusters do not hold each token once; the file is damaged. Download it again.")
        )
    stored = clusters.rows.reshape(clusters.tokens.size, -1)
    return replace(clusters, rows=stored[clusters.tokens])
