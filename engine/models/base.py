"""A loaded model: its parts on a backend, its caches, its recorded programs."""

from __future__ import annotations

from engine.backends.base import Array, AttentionShape, Backend, KVCache, Ops, Program, RotaryTable
from engine.core import PAGE_TOKENS
from engine.errors import BadSetting, NotEnoughMemory
from engine.models.config import ModelConfig
from engine.models.estimate import SPARE_PAGES, context_pages, free_memory, gigabytes, page_bytes
from engine.models.layers import Parts
from engine.models.rope import rotary_table

__all__ = ["SPARE_PAGES", "Model", "gigabytes"]


class Model:
    """A decoder ready to record programs. Used by one thread.

    `parameters` counts weights; `resident_bytes` is what they take in memory; `weight_bytes_per_token` is what one decode
    step reads of them: all, but one row only of an embedding table that is not also the head.
    """

    def __init__(
        self, config: ModelConfig, backend: Backend, parts: Parts, weight_types: frozenset[str], parameters: int, resident_bytes: int
    ) -> None:
        self.config = config
        self.backend = backend
        self.parameters = parameters
        self.resident_bytes = resident_bytes
        table = parts.embed
        unread = 0 if parts.head.weight is table else table.nbytes - table.nbytes // table.shape[0]
        self.weight_bytes_per_token = resident_bytes - unread
        self._weight_types = weight_types
        self._parts: Parts | None = parts
        self._rotary = rotary_table(config.rope, min(config.context_length, 4096))

    @property
    def attention_shape(self) -> AttentionShape:
        """Of every layer."""
        return self.config.attention_shape

    def forward(self, ops: Ops) -> Array:
        """The whole pass: logits (logit_rows, V) of the step's tokens."""
        assert self._parts is not None, "the model is closed"
        return self._parts(ops, self._rotary)

    def page_bytes(self, dtype: str = "auto") -> int:
        """Bytes of one cache page in all layers. Raises `BadSetting` for an unknown cache type."""
        config = self.config
        return page_bytes(config.layers, config.kv_heads, config.head_dim, dtype, self.backend.name)

    def new_cache(self, tokens: int, dtype: str = "auto", further_pages: int = 0) -> KVCache:
        """A zeroed cache for `tokens` positions, two spare pages, and `further_pages` for other sequences.

        Raises `NotEnoughMemory` and `BadSetting`.
        """
        if tokens < 1:
            raise BadSetting(f"A cache for {tokens} tokens was asked for; at least 1 was expected.")
        pages = context_pages(tokens) + further_pages
        self._check_memory(pages * self.page_bytes(dtype), tokens, pages)
        # Loading prepared the cache type that was expected then; for another one this compiles what is missing.
        for _ in self.backend.prepare(self._weight_types, dtype):
            pass
        try:
            return self.backend.new_cache(self.config.layers, self.attention_shape, pages, dtype)
        except MemoryError as error:
            raise NotEnoughMemory(f"The system has no room for a context of {tokens} tokens; choose a shorter context length.") from error

    def record(self, cache: KVCache, max_rows: int) -> Program:
        """Record the pass over `cache` for steps of up to `max_rows` rows."""
        # One sequence is no longer than the model's context, however many pages there are for several.
        self._rotary = self._table(min(cache.page_count, context_pages(self.config.context_length)) * PAGE_TOKENS)
        return self.backend.record(self.forward, cache, max_rows)

    def close(self) -> None:
        """Let go of the weights; programs that were recorded keep theirs until they are closed."""
        self._parts = None

    def _table(self, positions: int) -> RotaryTable:
        """The rotary table, made longer when a cache holds more positions than it has."""
        return self._rotary if len(self._rotary.cos) >= positions else rotary_table(self.config.rope, positions)

    def _check_memory(self, needed: int, tokens: int, pages: int) -> None:
        free, alone = free_memory(), context_pages(tokens)
        if needed > free and needed * alone // pages > free:
            raise NotEnoughMemory(
                f"A context of {tokens} tokens needs {gigabytes(needed * alone // pages)} for keys and values, but {gigabytes(free)} of "
                "memory are free; choose a shorter context length, or close other programs."
            )
        if needed > free:
            raise NotEnoughMemory(
                f"Conversations may take {gigabytes(needed)} of memory, but {gigabytes(free)} are free; choose less memory for "
                "conversations, or close other programs."
            )
