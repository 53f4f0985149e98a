"""A loaded model: its parts on a backend, which make caches and recorded programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, Backend, Forward, KVCache, Ops, Program, RotaryTable, Weight
from engine.backends.states import States
from engine.core import PAGE_TOKENS, Loading
from engine.errors import BadSetting, NotEnoughMemory
from engine.lazy_dataclass import dataclass
from engine.models.config import ModelConfig
from engine.models.config.relative import ClippedHeads, RelativeHeads
from engine.models.layers.attention.cross import CrossBlock, CrossingBlocks
from engine.models.layers.features import Features
from engine.models.layers.parts import Changes, RopeTables, Slot
from engine.models.layers.positions.rope import rotary_table, scaling_table
from engine.models.layers.whole import Parts
from engine.models.memory.estimate import (
    LEAST_STATES,
    SPARE_PAGES,
    context_pages,
    free_words,
    page_bytes,
    state_count,
)
from engine.models.pictures import PicturePass, PictureSpec
from engine.tensors import Floats
from engine.units import size_text
from engine.weights.adapter import Adapter
from engine.words import _

__all__ = ["SPARE_PAGES", "Model"]


def unread(weight: Weight) -> Floats:
    """Stands for the file of a model without slots: nothing is read again."""
    raise AssertionError(weight)


@dataclass(frozen=True, slots=True)
class Weights:
    """What loading the weights found."""

    parameters: int
    bytes: int
    """Bytes in memory."""
    expert_bytes: int
    """Those of `bytes` that belong to experts."""
    slots: Mapping[str, Slot]
    """The places of adapters, by the names of Hugging Face's modules; see `engine.models.lora.apply`."""
    stored: Callable[[Weight], Floats] = unread
    """The values (N, K) of a matrix in the model's file, which is opened again."""
    gguf_slots: Callable[[Adapter], Mapping[str, Slot]] | None = None
    """The places of an adapter that is in a GGUF file, by its names; see `engine.models.lora.gguf`."""


class Model:
    """A decoder ready to record programs. Used by one thread.

    `parameters` counts weights; `resident_bytes` is their size in memory; `weight_bytes_per_token` is what
    one decode step reads of them. `slots`, `stored` and `gguf_slots` are as in `Weights`. `proof` runs the
    self-test of the kernels that `forward` needs (`engine.models.proof.first_use`); None where there is none.
    """

    def __init__(self, config: ModelConfig, backend: Backend, parts: Parts, weights: Weights) -> None:
        self.config = config
        self.backend = backend
        self.parameters = weights.parameters
        self.resident_bytes = weights.bytes
        self.slots, self.stored, self.gguf_slots = weights.slots, weights.stored, weights.gguf_slots
        self.adapted: list[Changes] = []
        """What adapters change now."""
        self.own_vocabulary = config.vocab_size
        """The size of the vocabulary without adapters, which may replace it."""
        self.weight_bytes_per_token = read_bytes(config, weights.bytes, weights.expert_bytes, parts)
        self._parts: Parts | None = parts
        self.kept: Floats | None = None
        """Where passes that are recorded from now on leave the hidden states of all rows, (rows, E)."""
        self.features: Features | None = None
        """What they leave there instead, (rows, F)."""
        self.proof: Callable[[Forward], Iterator[Loading]] | None = None
        self._tables: tuple[int, int, RopeTables] = (0, 0, RopeTables())
        self._prepared: set[str] = set()

    def forward(self, ops: Ops) -> Array:
        """The whole pass: logits (logit_rows, V)."""
        return self.parts(ops, self.rope_tables, self.kept, self.features)

    def hidden(self, ops: Ops) -> Array:
        """The pass without the head: the last hidden states (logit_rows, E)."""
        return self.parts.hidden(ops, self.rope_tables)

    @property
    def parts(self) -> Parts:
        """The decoder."""
        assert self._parts is not None, "the model is closed"
        return self._parts

    @property
    def rope_tables(self) -> RopeTables:
        """The rotary tables, as long as the passes recorded so far need them."""
        return self._tables[2]

    def prepare(self, cache_dtype: str = "auto") -> Iterator[Loading]:
        """Get the backend ready to record the pass over caches of this type; yields progress.

        Raises `BadSetting` for an unknown cache type.
        """
        if not self._tables[0]:
            self._make_tables(PAGE_TOKENS, min(PAGE_TOKENS, self.config.context_length))
        yield from self.backend.prepare(self.forward, cache_dtype)
        self._prepared.add(cache_dtype)

    def page_bytes(self, dtype: str = "auto") -> int:
        """Bytes of one cache page in all layers. Raises `BadSetting` for an unknown cache type."""
        config = self.config
        return page_bytes(
            config.kv_shapes, dtype, self.backend.name, sum(shape.latent > 0 for shape in config.cache_shapes)
        )

    def new_cache(self, tokens: int, dtype: str = "auto", further_pages: int = 0) -> KVCache:
        """A zeroed cache for `tokens` positions, with spare pages and `further_pages` for other sequences.

        Raises `NotEnoughMemory` and `BadSetting`.
        """
        if tokens < 1:
            raise BadSetting(
                _("The cache length is {tokens} tokens, but it must be at least 1.", tokens=tokens)
            )
        pages = context_pages(tokens) + further_pages
        shapes = self.config.state_shapes
        count = state_count(pages, States(shapes).state_bytes, self.backend.free_memory())
        config, further = self.config, [layer for layer, _shape in self.config.further_parts]
        each = (len(shapes) - len(further)) // max(1, len(config.recurrent_layers))
        layers = [layer for layer in sorted(config.recurrent_layers) for _unused in range(each)]
        states = States(shapes, count, (*layers, *further))
        self._check_memory(pages, states, tokens, dtype)
        # Loading prepared the cache type that was expected; for another type this compiles what is missing.
        if dtype not in self._prepared:
            for _unused in self.prepare(dtype):
                pass
        try:
            choosing = sorted(config.indexer.layers if config.indexer else ())
            numbers = [*config.cached_layers, *config.block_layers, *choosing]
            return self.backend.new_cache(config.cache_shapes, pages, dtype, states, numbers)
        except MemoryError as error:
            raise NotEnoughMemory(
                _(
                    "There is not enough memory for a context of {tokens:,} tokens; choose a shorter "
                    "context length.",
                    tokens=tokens,
                )
            ) from error

    def record(self, cache: KVCache, max_rows: int, context: int = 0, *, head: bool = True) -> Program:
        """Record the pass over `cache` for steps of up to `max_rows` rows; without the `head` its results are
        the last hidden states (logit_rows, E).

        `context` is the length of the longest conversation in tokens (0: as long as the cache).
        """
        # A cache may have pages for several sequences, but none is longer than the context.
        positions = context or min(cache.page_count * PAGE_TOKENS, self.config.context_length)
        self._make_tables(positions, positions)
        return self.backend.record(self.forward if head else self.hidden, cache, max_rows)

    def record_embeddings(self, cache: KVCache, max_rows: int) -> Program:
        """Record a pass that gives the scaled embeddings (logit_rows, E) of tokens, for up to `max_rows`."""
        parts = self.parts
        return self.backend.record(lambda ops: ops.last_rows(parts.embedded(ops)), cache, max_rows)

    def record_pictures(self, cache: KVCache, max_rows: int, context: int, spec: PictureSpec) -> PicturePass:
        """Record the pass over pictures' tokens over the same `cache` as that over texts, for steps of up to
        `max_rows` rows; `context` is as in `record`. Raises `UnsupportedModel` where the model cannot take
        such pictures.
        """
        positions = context or min(cache.page_count * PAGE_TOKENS, self.config.context_length)
        self._make_tables(positions, positions)
        assert self.kept is None or len(self.kept) >= max_rows
        made = PicturePass(self.config, self.parts, spec, max_rows, self.rope_tables)
        parts, kept, features = self.parts, self.kept, self.features
        made.attach(
            self.backend.record(lambda ops: made.forward(ops, parts, kept, features), cache, max_rows)
        )
        return made

    @property
    def looking(self) -> CrossingBlocks:
        """The layers for texts with pictures that layers of their own look at."""
        assert isinstance(self.parts.looking, CrossingBlocks)
        return self.parts.looking

    def cross_page_bytes(self) -> int:
        """Bytes of a page of what those layers see."""
        return page_bytes(self.looking.kv_shapes, "auto", self.backend.name)

    def new_cross_cache(self, pages: int) -> KVCache:
        """A zeroed cache of what they see. Raises `NotEnoughMemory`."""
        blocks = self.looking.blocks
        layers = [layer for layer, block in enumerate(blocks) if isinstance(block, CrossBlock)]
        numbers = [*layers, layers[-1]]  # as the layers lie on devices
        return self.backend.new_cache(self.looking.shapes, pages, "auto", numbers=numbers)

    def record_looking(self, cache: KVCache, max_rows: int, context: int) -> Program:
        """As `record`, with the layers that look at pictures, which see what is in `cache.cross`."""
        self._make_tables(context, context)
        parts, tables = replace(self.parts, stack=self.looking), self.rope_tables
        kept, features = self.kept, self.features
        return self.backend.record(lambda ops: parts(ops, tables, kept, features), cache, max_rows)

    def record_writing(self, cross: KVCache, max_rows: int, given: Floats) -> Program:
        """Record the pass that writes the `given` rows of pictures (max_rows, E) to such a cache."""
        layers, ones = self.looking, np.ones((max_rows, self.looking.shapes[-1].head_dim), np.float32)

        def write(ops: Ops) -> Array:
            return ops.last_rows(layers.write(ops, ops.given(given), ops.given(ones)))

        return self.backend.record(write, cross, max_rows)

    def close(self) -> None:
        """Release the weights; recorded programs keep theirs until they are closed."""
        self.proof = None
        self._parts, self.slots, self._tables = None, {}, (0, 0, RopeTables())
        self.gguf_slots, self.adapted, self.features = None, [], None
        self.backend.trim()

    def _make_tables(self, positions: int, context: int) -> None:
        """Make the rotary tables, unless the present ones suffice."""
        length, for_context, _unused = self._tables
        if length >= positions and for_context == context:
            return
        self._tables = (positions, context, rope_tables(self.config, positions, context))

    def _check_memory(self, pages: int, states: States, tokens: int, dtype: str) -> None:
        free, each = self.backend.free_memory(), self.page_bytes(dtype)
        needed = pages * each + states.count * states.state_bytes
        alone = context_pages(tokens) * each + min(states.count, LEAST_STATES) * states.state_bytes
        there = free_words(free, self.backend.where)
        if needed > free and alone > free:
            raise NotEnoughMemory(
                _(
                    "A context of {tokens:,} tokens needs {size} for keys and values, but {there}; "
                    "choose a shorter context length, or close other programs.",
                    tokens=tokens,
                    size=size_text(alone),
                    there=there,
                )
            )
        if needed > free:
            raise NotEnoughMemory(
                _(
                    "Chats may use {size}, but {there}; choose less memory for chats, or close "
                    "other programs.",
                    size=size_text(needed),
                    there=there,
                )
            )


def rope_tables(config: ModelConfig, positions: int, context: int) -> RopeTables:
    """Tables of this many positions, for conversations of up to `context` tokens."""
    main, local = (
        None if rope is None else rotary_table(rope, positions, context)
        for rope in (config.rope, config.rope_local)
    )
    rope = config.rope
    scaled = rope is not None and rope.scales_queries
    queries, unrotated = None, None
    if rope is not None and scaled and not config.scaled_nope:
        queries = rotary_table(rope, positions, context, queries=True)
    if rope is not None and scaled and (config.latent is not None or config.scaled_nope):
        width = config.head_dim if config.latent is None else config.latent.nope_dim
        unrotated = scaling_table(rope, positions, width)
    blocks = set(config.compressed.blocks) - {0} if config.compressed else set[int]()
    own, pooled, back = config.indexer, dict[int, RotaryTable](), dict[str, RotaryTable]()
    if own is not None and own.pooling:
        blocks.add(own.shape.block)
    for block in blocks:
        if main is not None:
            starts = np.maximum(np.arange(positions) - block + 1, 0)
            kind = own.interleaved if own is not None and own.shape.block == block else main.interleaved
            pooled[block] = RotaryTable(main.cos[starts], main.sin[starts], kind)
    for name, table in (("main", main), ("local", local)):
        if table is not None and config.compressed is not None:
            back[name] = replace(table, sin=-table.sin)
    logs = None
    if config.latent is not None and config.latent.head_scales:
        logs = np.log(np.arange(1, positions + 1, dtype=np.float64)).astype(np.float32)[:, None]
    tempered = config.recurrent.factors(positions) if isinstance(config.recurrent, RelativeHeads) else None
    return RopeTables(main, local, queries, unrotated, pooled, back, logs, tempered)


def read_bytes(config: ModelConfig, resident: int, expert_bytes: int, parts: Parts) -> int:
    """Bytes of weights that one decode step reads.

    These are all `resident` bytes, except that it reads one row of each embedding table that is not also the
    head, only the experts that a token uses, and without a picture none of the layers that look at these.
    """
    own = [] if parts.head.weight is parts.embed else [parts.embed]
    unread = sum(table.nbytes - table.nbytes // table.shape[0] for table in (*own, *parts.stack.lookups))
    unread += parts.looking.nbytes if isinstance(parts.looking, CrossingBlocks) else 0
    if config.experts is not None:
        count = config.experts.count
        unread += expert_bytes * (count - config.experts.used) // (count - config.experts.always)
    runs = layers = config.layers
    if config.cycles is not None:  # layers of the same size, or pairs of two sizes
        runs = len(config.cycles.order(layers))
    elif isinstance(config.recurrent, ClippedHeads):
        layers = len(set(config.recurrent.order))
    head = parts.head.weight.nbytes
    return head + (resident - unread - head) * runs // layers
