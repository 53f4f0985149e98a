"""A model's cache as the generator uses it: key/value pages, their page table, and the recorded pass that
fills them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.backends.base import DecodeLoop, Floats, HasDecodeLoop, Ints, KVCache, Program, SamplingPlan, Step
from engine.core import PAGE_TOKENS
from engine.errors import ContextTooLong, NotEnoughMemory
from engine.kv_cache.disk import PageFile
from engine.kv_cache.pages import Lease, PageTable, pages_for
from engine.kv_cache.readings import Readings
from engine.models.memory.estimate import cache_dtype, chosen_context, further_pages
from engine.models.memory.fit import prefill_rows, work_space
from engine.settings import CacheSettings

if TYPE_CHECKING:
    from engine.models.base import Model

__all__ = ["PagedCache", "chosen_context"]


class PagedCache:
    """Keys and values of one model, for sequences of up to `context_length` tokens each. Used by one thread.

    There are pages for one such sequence, and for others beside it as far as `settings.memory` goes:
    conversations that were not touched for longest are forgotten first. `saved` is the file that some of them
    still lie in (`engine.models.saved.restore_cache`). Raises `BadSetting` for a context the model cannot
    address and `NotEnoughMemory` when the pages cannot be had.
    """

    def __init__(self, model: Model, settings: CacheSettings = CacheSettings()) -> None:
        self.model = model
        self.settings = settings
        self.context_length = chosen_context(
            settings, model.config.context_length, model.config.advised_context
        )
        self.rows = min(prefill_rows(model.config, model.backend.name), self.context_length)
        self.store, self.program = self._memory()
        self.table = PageTable(self.store.page_count)
        self._positions = np.arange(self.context_length, dtype=np.int32)
        self._pages = np.empty(pages_for(self.context_length) + 1, np.int32)
        self._listed: list[int] = []  # what `_pages` begins with, and the part of it
        self._listing = self._pages[:0]
        self.saved: PageFile | None = None
        self.readings = Readings()
        self.key = ""
        """What keys and values depend on besides ids, as adapters; see `record_again`."""

    def _memory(self) -> tuple[KVCache, Program]:
        """Keys and values, and the pass over them. A device of its own has no memory that is only lent: pages
        for further conversations are of what the pass leaves, and are done without where that turns out to be
        less than was foretold.
        """
        model, settings, dtype = self.model, self.settings, cache_dtype(self.settings)
        free, own = model.backend.free_memory(), model.backend.name in ("cuda", "torch")
        if own:
            free -= work_space(model.config, model.backend, model.parts).bytes(self.context_length)
        further = further_pages(self.context_length, model.page_bytes(dtype), settings.memory, max(0, free))
        while True:
            try:
                store = model.new_cache(self.context_length, dtype, further)
                return store, model.record(store, self.rows, self.context_length)
            except NotEnoughMemory:
                if settings.memory or not further or not own:
                    raise
            further = 0
            model.backend.trim()

    def record_again(self, key: str) -> None:
        """The model computes otherwise from now on, as with adapters: record it anew.

        What is cached counts again under the same `key`.

        No lease may be open.
        """
        before = self.program
        self.program = self.model.record(self.store, self.rows, self.context_length)
        self.key = key
        before.close()

    def open(self, ids: Sequence[int], key: str = "") -> Lease:
        """A lease on the longest cached prefix of `ids`, always leaving at least the last id to run.

        `key` names what else keys and values depend on, besides the adapters of `record_again`; another
        sequence of the same model, such as the negative one of guidance, needs none.
        """
        lease = self.table.open(ids, key=self.key + key, leave=1)
        if self.saved is not None and lease.unread:
            self._read(lease, self.saved)
        return lease

    def found(self, ids: Sequence[int]) -> int:
        """How many of the first `ids` `open` would find; nothing changes."""
        return self.table.found(ids, key=self.key, leave=1)

    def settle(self, lease: Lease) -> None:
        """Make the copies that a lease begins with, which `run` does by itself.

        Until then it keeps their sources from other leases.
        """
        for source, target in lease.copies:
            self.store.copy_page(source, target)
        lease.copied()

    def growth(self, *lengths: int) -> int:
        """By how many tokens sequences of these lengths, open at once and sharing nothing, can all grow;
        below 0 they do not fit.
        """
        most = self.context_length - max(lengths)
        return (
            bisect_left(
                range(most + 1),
                True,
                key=lambda more: sum(pages_for(n + more) for n in lengths) > self.store.page_count,
            )
            - 1
        )

    def run(self, lease: Lease, ids: Sequence[int], logit_rows: int = 1) -> Floats:
        """Run at most `rows` further tokens of a lease: logits (logit_rows, V) float32 of the last rows,
        valid until the next run.

        Raises `ContextTooLong`, with nothing changed, when the lease would be longer than `context_length`,
        or when other open leases have the pages it needs.
        """
        start = len(lease.ids)
        end = start + len(ids)
        if end > self.context_length:
            raise ContextTooLong(
                f"The text would have {end} tokens, but the context holds {self.context_length}; shorten it "
                "or choose a larger context length."
            )
        pages = self.pages_up_to(lease, end)
        step = Step(np.array(ids, np.int32), self._positions[start:end], pages, logit_rows)
        logits = self.program.run(step)
        lease.extend(ids)
        return logits

    def decode_loop(self, plan: SamplingPlan) -> DecodeLoop | None:
        """Steps that the device goes by itself; None where it cannot, or not by this plan."""
        return self.program.decode_loop(plan) if isinstance(self.program, HasDecodeLoop) else None

    def pages_up_to(self, lease: Lease, length: int) -> Ints:
        """The block table of a lease with room for `length` tokens, valid until the next call.

        Raises `ContextTooLong` as `run` does.
        """
        if length > PAGE_TOKENS * len(lease.pages) or lease.copies:
            lease.reserve(length)
            self.settle(lease)
        return self._block_table(lease.pages)

    def _block_table(self, pages: list[int]) -> npt.NDArray[np.int32]:
        """The pages as an array, written anew only where they are others than at the last pass."""
        if pages != self._listed:
            if len(pages) > len(self._pages):
                self._pages = np.empty(2 * len(pages), np.int32)
            self._pages[: len(pages)] = pages
            self._listed, self._listing = pages.copy(), self._pages[: len(pages)]
        return self._listing

    def close(self) -> None:
        """Release the program's threads and buffers, and the pages; the cache cannot be used again."""
        self.program.close()
        self.store.close()
        if self.saved is not None:
            self.saved.close()

    def _read(self, lease: Lease, saved: PageFile) -> None:
        """Bring a lease's keys and values in from the disk; where some are lost, the lease is shorter."""
        for depth, page, number in sorted(lease.unread):
            content = saved.read(number)
            if content is None:
                lease.truncate(depth * PAGE_TOKENS)
                self.table.lose(page)
                return
            self.store.write_page(page, content)
            self.table.read(page)
