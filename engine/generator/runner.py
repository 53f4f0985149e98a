"""SequenceRunner: runs the model over one sequence, and with guidance over a second, negative row.

Classifier-free guidance (arXiv 2306.17806) mixes log-probabilities: scale * positive + (1 - scale) *
negative. Both rows are ordinary sequences of the page table, so the next turn finds both again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from functools import partial

import numpy as np

from engine.backends.base import DecodeLoop, SamplingPlan
from engine.core import Prefill
from engine.errors import ContextTooLong
from engine.generator.request import Guidance
from engine.kv_cache.pages import Lease
from engine.kv_cache.readings import Passes, again, cut, planned
from engine.models.paged import PagedCache, SequencePart
from engine.tensors import Floats


class ModelPass:
    """A pass that a sequence waits for. Whoever drives the sequence runs it and sends the logits back.

    `parts` reserves the pages, so call it right before the pass runs. `reads`: it is a chunk of a prompt.
    `seconds` is set to the time that it took.
    """

    __slots__ = ("parts", "reads", "seconds")

    def __init__(self, parts: Callable[[], list[SequencePart]], reads: bool = False) -> None:
        self.parts = parts
        self.reads = reads
        self.seconds = 0.0


class SequenceRunner:
    """The rows of one sequence from `open` to `close`, which returns their pages; everything that was run
    stays cached.

    With `replayed`, the passes of each row, the prompts are read in these passes; nothing is taken from the
    cache and nothing stays in it. `alone` is false while other sequences run in turn with this one: no decode
    loop may begin then. `chunk` is the most rows of the next chunk of a prompt.
    """

    def __init__(
        self,
        cache: PagedCache,
        prompt: Sequence[int],
        guidance: Guidance | None = None,
        replayed: Sequence[Passes] = (),
    ) -> None:
        self._cache = cache
        self._guidance = guidance
        self._prompt_tokens = len(prompt)
        self._prompts = [list(prompt)] + ([list(guidance.negative_ids)] if guidance is not None else [])
        self._leases: list[Lease] = []
        self._replayed = replayed
        self._passes: list[Passes] = []
        self._suspended: list[list[int]] = []
        self._parts: list[SequencePart] = []  # of the pass under way
        self.alone = True
        self.chunk = cache.rows
        self.cached = 0
        self.passes = 0

    def open(self) -> None:
        """Open leases on the cached prefixes of the prompts."""
        for row, ids in enumerate(self._prompts):
            lease = self._lease(row, ids)
            self._leases.append(lease)
            self._passes.append(self._cache.readings.of(self._cache.key, ids, lease.length))
        self.cached = sum(lease.length for lease in self._leases)

    def _lease(self, row: int, ids: Sequence[int]) -> Lease:
        lease = self._cache.open(ids, key=f" replayed {id(self)} {row}" if self._replayed else "")
        if self._guidance is not None:  # both rows may need every page
            self._cache.settle(lease)
        return lease

    def passes_ahead(self, row: int) -> Passes:
        """The passes that will read the part of a prompt that is not cached."""
        start, length, most = self._leases[row].length, len(self._prompts[row]), self._cache.rows
        if not self._replayed:
            return planned(start, length, most)
        found: Passes = []
        ends = [*(at for at, _ in self._replayed[row][1:]), length]
        for (at, rows), end in zip(self._replayed[row], ends, strict=True):
            found += [(at, min(rows, most))] if rows else planned(at, end + 1, most)[:-1]
        return found

    def reading(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The passes over each row's whole prompt, including those that filled its cached prefix. Call it
        after `open`, before any pass.
        """
        return tuple(tuple(self._passes[row] + self.passes_ahead(row)) for row in range(len(self._leases)))

    def prefill(
        self, stop: threading.Event | None
    ) -> Generator[Prefill | ModelPass, Floats | None, Floats | None]:
        """Read the part of the prompts that is not cached: yields passes, and progress before the first chunk
        and after each.

        Returns the logits (V,) float32 after the prompt, or None when `stop` was set. The last token of a
        prompt runs alone, so that the first logits of the reply are the same, bit for bit, whether the rest
        was cached or not.
        """
        total = sum(map(len, self._prompts))
        rows: list[Floats] = []
        yield Prefill(self.cached, total, self.cached)
        for row, ids in enumerate(self._prompts):
            ahead, begun = self.passes_ahead(row) if self._replayed else [], self._leases[row].length
            while (start := self._leases[row].length) < len(ids):
                if stop is not None and stop.is_set():
                    return None
                size = self._size(begun, start, len(ids) - 1)
                end = start + size
                if self._replayed:
                    (start, size), *ahead = ahead
                    end = ahead[0][0] if ahead else len(ids)
                logits = yield ModelPass(partial(self._chunk, row, ids, start, size), True)
                assert logits is not None
                self._extend()
                if self._leases[row].length > end:
                    self._leases[row].truncate(end)
                if end == len(ids):
                    rows.append(logits[-1:].copy())
                yield Prefill(sum(lease.length for lease in self._leases), total, self.cached)
        last: Floats = self._mixed(rows)[0]
        return last

    def _size(self, begun: int, start: int, last: int) -> int:
        """Rows of the next pass over a prompt from `begun` to `last`, which is at `start`.

        Passes of `chunk` rows divide those of the cache's rows so that every row gets the same bits: no piece
        of a large batch is a small one.
        """
        if start == last:
            return 1
        most, small = self._cache.rows, self._cache.program.batch_rows
        left = min(last, begun + ((start - begun) // most + 1) * most) - start
        if left <= max(self.chunk, 2 * small + 1):
            return left
        return min(max(self.chunk, small + 1), left - small - 1)

    def _chunk(self, row: int, ids: Sequence[int], start: int, size: int) -> list[SequencePart]:
        """A pass of `size` rows from `start`; in a replayed one, those after the prompt were taken back."""
        taken = list(ids[start : start + size])
        taken += list(ids[-1:]) * (min(size, self._cache.context_length - start) - len(taken))
        self._parts = [SequencePart(self._leases[row], taken, 1)]
        return self._parts

    def prepare(self, ids: Sequence[int], drafts: Sequence[int] = ()) -> ModelPass:
        """The pass over what was not run of `ids`, and over `drafts` after it.

        What was run beyond `ids` before (rejected drafts, text taken back) is forgotten. Its `parts` raise
        `ContextTooLong`.
        """
        self.passes += 1
        return ModelPass(partial(self._next, ids, drafts))

    def _next(self, ids: Sequence[int], drafts: Sequence[int]) -> list[SequencePart]:
        if self._guidance is None:
            self._parts = [self._part(0, ids, drafts)]
        else:
            reply = ids[self._prompt_tokens :]
            self._parts = [
                self._part(row, [*prompt, *reply], drafts) for row, prompt in enumerate(self._prompts)
            ]
        return self._parts

    def finish(self, logits: Floats) -> Floats:
        """The pass of `prepare` has run: logits (drafts + 1, V) float32 after its ids and each draft.

        They are valid until the next pass. With guidance they are the mix of both rows.
        """
        parts = self._extend()
        if len(parts) == 1:  # of a row that ran with other sequences all logits are given
            return logits if len(logits) == parts[0].logit_rows else logits[-parts[0].logit_rows :]
        rows = np.split(logits, [len(parts[0].ids)])
        return self._mixed([row[-part.logit_rows :] for row, part in zip(rows, parts, strict=True)])

    def _extend(self) -> list[SequencePart]:
        """The pass under way has run; returns its parts."""
        for part in self._parts:
            row = 0 if part.lease is self._leases[0] else 1
            self._passes[row].append((len(part.lease.ids), len(part.ids)))
            part.lease.extend(part.ids)
        return self._parts

    def _part(self, row: int, ids: Sequence[int], drafts: Sequence[int]) -> SequencePart:
        """What one row's lease lacks of `ids`, and `drafts`."""
        lease = self._leases[row]
        if len(lease.ids) == len(ids) - 1:  # as nearly always
            return SequencePart(lease, [*ids[-1:], *drafts], len(drafts) + 1)
        if lease.length >= len(ids):
            lease.truncate(len(ids) - 1)
        cut(self._passes[row], lease.length)
        return SequencePart(lease, [*ids[lease.length :], *drafts], len(drafts) + 1)

    # -- giving the pages to another sequence for a while

    @property
    def pages(self) -> int:
        """The number of pages that the sequence holds."""
        return sum(len(lease.pages) for lease in self._leases)

    def suspend(self) -> None:
        """Return the pages until `resume`. Not while a decode loop runs."""
        self._suspended = [lease.ids.copy() for lease in self._leases]
        for lease in self._leases:
            lease.close()

    def resume(self) -> Generator[ModelPass, Floats | None, None]:
        """Bring the cache back to where `suspend` left it; what is lost is read again in passes that give the
        same keys and values, bit for bit.
        """
        for row, ids in enumerate(self._suspended):
            self._leases[row] = self._lease(row, [*ids, 0])
        for row, ids in enumerate(self._suspended):
            passes, self._passes[row] = self._passes[row], self._passes[row].copy()
            cut(self._passes[row], self._leases[row].length)
            while self._leases[row].length < len(ids):
                start, end = again(
                    passes, self._leases[row].length, len(ids), self.chunk, self._cache.program.batch_rows
                )
                if start < self._leases[row].length:
                    self._leases[row].truncate(start)
                    cut(self._passes[row], start)
                yield ModelPass(partial(self._chunk, row, ids, start, end - start), True)
                self._extend()
        self._suspended = []

    @property
    def lost(self) -> int:
        """The most tokens that `resume` has to read again; 0 if the sequence is not suspended."""
        return sum(map(len, self._suspended))

    # -- overlapped decode

    @property
    def single(self) -> bool:
        """Whether there is only one row, and no other sequence runs in turn with this one."""
        return self._guidance is None and self.alone

    @property
    def vocabulary(self) -> int:
        """The length of a row of logits."""
        return self._cache.model.config.vocab_size

    def decode_loop(self, params: SamplingPlan) -> DecodeLoop | None:
        """A decode loop over the cache; None if its device does not support the plan."""
        return self._cache.decode_loop(params)

    def start(self, decode_loop: DecodeLoop, ids: Sequence[int], uniform: Callable[[int], float]) -> None:
        """Start a decode loop with the last of `ids`. The others have run; what ran beyond them is forgotten.

        Raises `ContextTooLong`.
        """
        lease = self._leases[0]
        if lease.length >= len(ids):
            lease.truncate(len(ids) - 1)
            cut(self._passes[0], lease.length)
        decode_loop.start(ids, self._cache.pages_up_to(lease, len(ids)), uniform)

    def room(self, decode_loop: DecodeLoop, length: int) -> bool:
        """Reserve pages for a text of `length` tokens and tell the decode loop; False if there are none, or
        if another sequence is to run.
        """
        if not self.alone:
            return False
        lease = self._leases[0]
        before = len(lease.pages)
        try:
            pages = self._cache.pages_up_to(lease, length)
        except ContextTooLong:
            return False
        if len(pages) != before:
            decode_loop.set_pages(pages)
        return True

    def committed(self, token: int) -> None:
        """A step of the decode loop has run this token: its keys and values are in the cache."""
        self._passes[0].append((self._leases[0].length, 1))
        self._leases[0].extend([token])
        self.passes += 1

    def close(self) -> None:
        """Return the pages."""
        for lease, passes in zip(self._leases, self._passes, strict=True):
            ids, pages = lease.ids.copy(), lease.pages[:1]
            lease.close()
            if not self._replayed:
                cut(passes, len(ids))
                self._cache.readings.remember(self._cache.key, ids, passes)
            for page in pages if self._replayed else ():
                self._cache.table.lose(page)

    def _mixed(self, rows: list[Floats]) -> Floats:
        """The rows themselves, or the guided mix of positive and negative ones."""
        if self._guidance is None:
            return rows[0]
        scale = np.float32(self._guidance.scale)
        positive, negative = map(_log_softmax, rows)
        # A token that the model excludes stays excluded, whatever the negative row says.
        return np.where(np.isneginf(positive), positive, scale * positive + (1 - scale) * negative).astype(
            np.float32
        )


def _log_softmax(rows: Floats) -> Floats:
    shifted = rows - rows.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), dtype=np.float32)
