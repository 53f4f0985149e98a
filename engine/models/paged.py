"""The paged KV cache of a model: its pages, their page table, and the recorded pass that fills them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from engine.backends.base import KVCache, Program, Step
from engine.backends.decode_loop import DecodeLoop, HasDecodeLoop, SamplingPlan
from engine.core import FIRST_PICTURE_ID, PAGE_TOKENS
from engine.errors import ContextTooLong, NotEnoughMemory, UnsupportedModel
from engine.kv_cache.disk import PageFile
from engine.kv_cache.lease import Lease
from engine.kv_cache.page_pool import pages_for
from engine.kv_cache.pages import PageTable
from engine.kv_cache.readings import Readings
from engine.models.cross_cache import CrossCache
from engine.models.layers.features import Features
from engine.models.memory.estimate import cache_dtype, chosen_context, further_pages
from engine.models.memory.fit import prefill_rows, work_space
from engine.models.picture_tokens import (
    PictureTokens,
    borders_in,
    places_of,
    shift_after,
    spans_in,
    take_rows,
)
from engine.models.pictures import LONGEST_WHOLE, PicturePass, run_in_pieces
from engine.settings import CacheSettings
from engine.tensors import Floats, Ints
from engine.words import _

if TYPE_CHECKING:
    from engine.models.base import Model

__all__ = ["PagedCache", "SequencePart", "chosen_context"]


class SequencePart(NamedTuple):
    """One sequence's part of a pass: the tokens to run after its lease, and for how many of the last of them
    logits are needed.
    """

    lease: Lease
    ids: Sequence[int]
    logit_rows: int


class PagedCache:
    """Keys and values of one model, for sequences of up to `context_length` tokens each. Used by one thread.

    There are pages for one such sequence, and for more within `settings.memory`; the least recently used
    conversations are dropped first. `saved` is the file that holds some of them from an earlier run
    (`engine.models.saved.restore_cache`). Raises `BadSetting` for a context that the model cannot address,
    and `NotEnoughMemory`.
    """

    def __init__(self, model: Model, settings: CacheSettings = CacheSettings()) -> None:
        self.model = model
        self.settings = settings
        self.context_length = chosen_context(
            settings, model.config.context_length, model.config.advised_context
        )
        self.rows = min(prefill_rows(model.config, model.backend.name), self.context_length)
        self.store, self.program = self._memory()
        self.recurrent = bool(self.store.states.count)
        """Whether the model has states, so that a lease may be shorter than asked after `Lease.truncate`."""
        self._headless: Program | None = None
        self.table = PageTable(self.store.page_count, self.store.states.count)
        self._positions = np.arange(self.context_length, dtype=np.int32)
        self._pages = np.empty(pages_for(self.context_length) + 1, np.int32)
        self._listed: list[int] = []  # the pages at the start of `_pages`, and the slice that holds them
        self._listing = self._pages[:0]
        self.saved: PageFile | None = None
        self.readings = Readings()
        self.pictures: PictureTokens | None = None
        """What knows the pictures of sequences; None for a model that reads none."""
        self._picture_pass: PicturePass | None = None
        self._embeddings: Program | None = None
        self._cross: CrossCache | None = None
        self._shifts: WeakKeyDictionary[Lease, tuple[int, int]] = WeakKeyDictionary()
        self.key = ""
        """Identifies what keys and values depend on besides ids, such as adapters; see `record_again`."""

    def _memory(self) -> tuple[KVCache, Program]:
        """The cache and the pass over it.

        A GPU cannot overcommit its memory: further conversations get what the pass leaves, and none if that
        turns out to be less than estimated.
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
        """Record the pass again after the model has changed, for example by adapters.

        Cached pages count only for the `key` they were made under. No lease may be open.
        """
        before = self.program
        self.program = self.model.record(self.store, self.rows, self.context_length)
        self.key = key
        before.close()
        self._close_others()

    def keep_hidden(self, keep: bool, features: Features | None = None) -> None:
        """Whether passes leave their rows' hidden states, after the final norm, in `Model.kept`, or these
        features (T, F) in place of them. No lease may be open.
        """
        if keep == (self.model.kept is not None) and features is self.model.features:
            return
        width = self.model.config.width if features is None else features.width
        most = 2 * self.context_length if self.reads_prefixes else LONGEST_WHOLE
        rows = max(self.rows, most) if self.bidirectional_pictures else self.rows
        self.model.kept = np.zeros((rows, width), np.float32) if keep else None
        self.model.features = features
        self.record_again(self.key)

    def open(self, ids: Sequence[int], key: str = "") -> Lease:
        """A lease on the longest cached prefix of `ids`; at least the last id is left to run.

        `key` names what keys and values depend on besides ids and the key of `record_again`.
        """
        lease = self.table.open(ids, key=self.key + key, leave=1)
        if self.saved is not None and lease.unread:
            self._read(lease, self.saved)
        return lease

    def found(self, ids: Sequence[int]) -> int:
        """How many of the first `ids` `open` would find in the cache; changes nothing."""
        return self.table.found(ids, key=self.key, leave=1)

    def settle(self, lease: Lease) -> None:
        """Make the page copies that a lease begins with; `run` does so anyway.

        Until then the lease holds the pages to copy from.
        """
        for source, target in lease.copies:
            self.store.copy_page(source, target)
        lease.copied()

    def growth(self, *lengths: int) -> int:
        """By how many tokens open sequences of these lengths can all grow; below 0 they do not fit."""
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
        """Run up to `rows` more tokens of a lease.

        Returns the logits of the last rows, (logit_rows, V) float32, valid until the next run. Raises
        `ContextTooLong`, and changes nothing, if the lease would exceed `context_length` or other open leases
        hold the pages that it needs.
        """
        if self.model.config.headless:
            raise UnsupportedModel(_("This is an embedding model, which has no scores of next tokens."))
        logits = self.program.run(self.step(lease, ids, logit_rows))
        lease.extend(ids)
        return logits

    def hidden_states(self, lease: Lease, ids: Sequence[int]) -> Floats:
        """Run up to `rows` more tokens of a lease without the model's head.

        Returns their last hidden states, (len(ids), E) float32, valid until the next run. Raises as `run`.
        """
        if self._headless is None:
            self._headless = self.model.record(self.store, self.rows, self.context_length, head=False)
        states = self._headless.run(self.step(lease, ids, len(ids)))
        lease.extend(ids)
        return states

    @property
    def bidirectional_pictures(self) -> bool:
        """Whether the tokens of a picture attend to each other, so that a span is read in one pass."""
        return self.pictures is not None and self.pictures.spec.bidirectional

    @property
    def reads_prefixes(self) -> bool:
        """Whether all tokens of a prompt with pictures attend to each other."""
        return self.pictures is not None and self.pictures.spec.prefix

    def borders(self, ids: Sequence[int]) -> Sequence[int]:
        """Where passes over pictures begin and end in a text, ascending. Raises `BadPicture`."""
        return borders_in(ids, self.pictures) if self.pictures is not None else ()

    def pass_of(self, parts: Sequence[SequencePart]) -> tuple[Program, Step]:
        """The program for one sequence's part, or for several, and its step as in `step_of`. The caller
        extends the leases after it. Raises as `run`, and `BadPicture`.
        """
        if self.pictures is not None and self.pictures.spec.looked_at is not None:
            return self._pass_that_looks(parts)
        if max(parts[0].ids) >= FIRST_PICTURE_ID:
            return self._pass_over_pictures(*parts)
        return self.program, self.step_of(parts)

    def _pass_that_looks(self, parts: Sequence[SequencePart]) -> tuple[Program, Step]:
        """The pass of a model with layers that look at pictures, without them where there are none."""
        if self._cross is None:
            assert self.pictures is not None
            self._cross = CrossCache(self.model, self.store, self.rows, self.context_length, self.pictures)
        step, groups = self.step_of(parts), [self._cross.group(part.lease, part.ids) for part in parts]
        return self._cross.ready(step, groups) if any(groups) else (self.program, step)

    def looks(self, lease: Lease) -> bool:
        """Whether the next token of a sequence sees pictures by layers of their own."""
        return self._cross is not None and bool(self._cross.group(lease, ()))

    def _pass_over_pictures(self, part: SequencePart) -> tuple[Program, Step]:
        """The pass over tokens of pictures: of one span, or of several with a little text between them."""
        assert self.pictures is not None
        step, spans = self.step(*part), spans_in(part.ids, self.pictures)
        passes = self._passes_over(max(spans[0][3].tokens, len(part.ids)), self.pictures)
        states: Floats = np.empty((len(part.ids), self.model.config.width), np.float32)
        deep: list[Floats] = [np.zeros_like(states) for _unused in range(self.pictures.spec.deep)]
        text = step.token_ids < FIRST_PICTURE_ID
        if text.any():
            states[text] = self._embedded(step, text)
        take_rows(spans, part.ids, self.pictures, [states, *deep], self.model.config.picture_scale)
        places = places_of(part.lease.ids, part.ids, self.pictures, lambda at: self.shift(part.lease, at))
        return passes.ready(step, states, deep, places)

    def _embedded(self, step: Step, which: npt.NDArray[np.bool_]) -> Floats:
        """The embeddings (rows, E) of some of a step's tokens."""
        if self._embeddings is None:
            self._embeddings = self.model.record_embeddings(self.store, self.rows)
        return run_in_pieces(self._embeddings, step, which)

    def _passes_over(self, tokens: int, pictures: PictureTokens) -> PicturePass:
        """The recorded pass over this many tokens: over a power of two, where they are read at once."""
        most = max(self.rows, 1 << (tokens - 1).bit_length()) if pictures.spec.bidirectional else self.rows
        found = self._picture_pass
        if found is None or found.max_rows < most:
            self._picture_pass = None
            if found is not None:
                found.close()
            found = self.model.record_pictures(self.store, most, self.context_length, pictures.spec)
            self._picture_pass = found
        return found

    def shift(self, lease: Lease, length: int) -> int:
        """By how much less than its position the token after the first `length` of a lease is rotated:
        pictures take fewer rotary positions than they have tokens, where these have sections.
        """
        if self.pictures is None or self.pictures.spec.positions is None:
            return 0
        known, shift = self._shifts.get(lease, (0, 0))
        if known > length:
            known = shift = 0
        if known < length:
            shift += shift_after(lease.ids[known:length], self.pictures)
            self._shifts[lease] = length, shift
        return shift

    def _close_others(self) -> None:
        """Close the passes that are recorded when they are needed."""
        for other in (self._headless, self._embeddings, self._picture_pass, self._cross):
            if other is not None:
                other.close()
        self._headless = self._embeddings = self._picture_pass = None

    def step(self, lease: Lease, ids: Sequence[int], logit_rows: int = 1) -> Step:
        """The pass of `run`, for `program.run`; the caller extends the lease after it. Raises as `run`."""
        start = len(lease.ids)
        end = start + len(ids)
        pages = self.pages_up_to(lease, end)
        states = [lease.states] if self.recurrent else ()
        shift = self.shift(lease, start)
        ropes = self._positions[start - shift : end - shift] if shift else None
        return Step(
            np.array(ids, np.int32), self._positions[start:end], pages, logit_rows, states=states,
            rope_positions=ropes,
        )  # fmt: skip

    def step_of(self, parts: Sequence[SequencePart]) -> Step:
        """The pass over one sequence's part, or over several, with logits for all of their rows.

        The caller extends the leases after it. Raises as `run`.
        """
        if len(parts) == 1:
            return self.step(*parts[0])
        ids, positions, pages, runs = list[int](), list[int](), list[int](), list[tuple[int, int]]()
        shifts: list[int] = []
        for part in parts:
            start, count = len(part.lease.ids), len(part.ids)
            self.reserve(part.lease, start + count)
            ids += part.ids
            positions += range(start, start + count)
            shifts += [self.shift(part.lease, start)] * count
            pages += part.lease.pages
            runs.append((count, len(part.lease.pages)))
        ropes = np.array(positions, np.int32) - np.array(shifts, np.int32) if any(shifts) else None
        return Step(
            np.array(ids, np.int32), np.array(positions, np.int32), np.array(pages, np.int32), len(ids), runs,
            [part.lease.states for part in parts] if self.recurrent else (), rope_positions=ropes,
        )  # fmt: skip

    def decode_loop(self, plan: SamplingPlan) -> DecodeLoop | None:
        """Decoding on the device without the host; None if the device cannot follow this plan."""
        return self.program.decode_loop(plan) if isinstance(self.program, HasDecodeLoop) else None

    def start(
        self, decode_loop: DecodeLoop, lease: Lease, ids: Sequence[int], uniform: Callable[[int], float]
    ) -> None:
        """Start a decode loop with the last of `ids`; the lease has the others. Raises as `run`."""
        pages = self.pages_up_to(lease, len(ids))
        shift = self.shift(lease, len(ids) - 1)
        decode_loop.start(ids, pages, uniform, lease.states if self.recurrent else None, shift)

    def reserve_ahead(self, decode_loop: DecodeLoop, lease: Lease, length: int) -> None:
        """Reserve what a decode loop needs for a text of `length` tokens, and tell it. Raises as `run`."""
        listed = self._listing
        further = length > PAGE_TOKENS * len(lease.pages) or lease.copies or self.recurrent
        if lease.pages == self._listed and not further:
            return  # as for nearly all tokens
        pages = self.pages_up_to(lease, length)
        if self.recurrent:
            decode_loop.set_state(length, lease.reserve_ahead())
        if pages is not listed:
            decode_loop.set_pages(pages)

    def rewind(self, lease: Lease, length: int) -> None:
        """Cut a lease to exactly `length` tokens; what a state has lost of them is run again."""
        ids = lease.ids[:length]
        lease.truncate(length)
        while lease.length < length:
            self.run(lease, ids[lease.length : lease.length + self.rows])

    def pages_up_to(self, lease: Lease, length: int) -> Ints:
        """The block table of a lease for `length` tokens, valid until the next call.

        Raises `ContextTooLong` as `run` does.
        """
        self.reserve(lease, length)
        if lease.pages != self._listed:
            self._list(lease.pages)
        return self._listing

    def reserve(self, lease: Lease, length: int) -> None:
        """Give a lease the pages for `length` tokens. Raises `ContextTooLong` as `run` does."""
        if length > self.context_length:
            raise ContextTooLong(
                _(
                    "The text would have {length:,} tokens, but the context holds {context_length:,}; "
                    "shorten it or choose a larger context length.",
                    length=length,
                    context_length=self.context_length,
                )
            )
        if length > PAGE_TOKENS * len(lease.pages) or lease.copies or self.recurrent:
            lease.reserve(length)
            self.settle(lease)

    def _list(self, pages: list[int]) -> None:
        """Make the block table of these pages the one that passes read."""
        if len(pages) > len(self._pages):
            self._pages = np.empty(2 * len(pages), np.int32)
        self._pages[: len(pages)] = pages
        self._listed, self._listing = pages.copy(), self._pages[: len(pages)]

    def close(self) -> None:
        """Release the program and the pages; the cache cannot be used again."""
        self.program.close()
        self._close_others()
        self.store.close()
        if self.saved is not None:
            self.saved.close()

    def _read(self, lease: Lease, saved: PageFile) -> None:
        """Read a lease's keys and values from the disk; the lease is cut where some are lost."""
        for depth, page, number in sorted(lease.unread):
            content = saved.read(number)
            if content is None:
                lease.truncate(depth * PAGE_TOKENS)
                self.table.lose(page)
                return
            self.store.write_page(page, content)
            self.table.read(page)
