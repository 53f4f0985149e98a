"""SequenceRunner: runs the model over one sequence, and with guidance over a second, negative row.

Classifier-free guidance (arXiv 2306.17806) mixes log-probabilities: scale * positive + (1 - scale) *
negative. Both rows are ordinary sequences of the page table, so the next turn finds both again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence

import numpy as np

from engine.backends.base import DecodeLoop, Program, SamplingPlan, Step
from engine.core import Prefill
from engine.errors import ContextTooLong
from engine.generator.request import Guidance
from engine.kv_cache.pages import Lease
from engine.kv_cache.readings import Passes, cut, planned
from engine.models.paged import PagedCache
from engine.tensors import Floats


class SequenceRunner:
    """The rows of one sequence from `open` to `close`, which returns their pages; everything that was run
    stays cached.

    With `replayed`, the passes of each row, the prompts are read in these passes; nothing is taken from the
    cache and nothing stays in it.
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
        # of the pass under way: the text, the drafts after it, and the rows that run
        self._ids: Sequence[int] = ()
        self._drafts: Sequence[int] = ()
        self._rows: Sequence[int] = ()
        self.cached = 0
        self.passes = 0

    def open(self) -> None:
        """Open leases on the cached prefixes of the prompts."""
        for row, ids in enumerate(self._prompts):
            lease = self._cache.open(ids, key=f" replayed {id(self)} {row}" if self._replayed else "")
            self._leases.append(lease)
            self._passes.append(self._cache.readings.of(self._cache.key, ids, lease.length))
            if self._guidance is not None:  # both rows may need every page
                self._cache.settle(lease)
        self.cached = sum(lease.length for lease in self._leases)

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

    def prefill(self, stop: threading.Event | None) -> Generator[Prefill, None, Floats | None]:
        """Run the part of the prompts that is not cached. Yields progress before the first chunk and after
        each.

        Returns the logits (V,) float32 after the prompt, or None when `stop` was set. The last token of a
        prompt runs alone, so that the first logits of the reply are the same, bit for bit, whether the rest
        was cached or not.
        """
        total = sum(map(len, self._prompts))
        rows: list[Floats] = []
        yield Prefill(self.cached, total, self.cached)
        for row, (lease, ids) in enumerate(zip(self._leases, self._prompts, strict=True)):
            ahead = self.passes_ahead(row)
            for number, (start, size) in enumerate(ahead):
                if stop is not None and stop.is_set():
                    return None
                end = ahead[number + 1][0] if number + 1 < len(ahead) else len(ids)
                logits = self._read(row, ids, start, size, end)
                if end == len(ids):
                    rows.append(logits[-1:].copy())
                yield Prefill(sum(lease.length for lease in self._leases), total, self.cached)
        last: Floats = self._mixed(rows)[0]
        return last

    def _read(self, row: int, ids: Sequence[int], start: int, size: int, end: int) -> Floats:
        """A pass of `size` rows from `start`, of which those before `end` count: in a replayed pass the
        others may have been taken back.
        """
        lease, taken = self._leases[row], list(ids[start : start + size])
        taken += list(ids[-1:]) * (min(size, self._cache.context_length - start) - len(taken))
        self._passes[row].append((start, size))
        logits = self._cache.run(lease, taken)
        if lease.length > end:
            lease.truncate(end)
        return logits

    @property
    def program(self) -> Program:
        """What runs the passes: `finish(program.run(prepare(ids)))`."""
        return self._cache.program

    def prepare(self, ids: Sequence[int], drafts: Sequence[int] = ()) -> Step:
        """The pass over what was not run of `ids`, and over `drafts` after it.

        What was run beyond `ids` before (rejected drafts, text taken back) is forgotten. Raises
        `ContextTooLong`.
        """
        self.passes += 1
        self._ids, self._drafts = ids, drafts
        return self._step(0, ids, drafts)

    def finish(self, logits: Floats) -> Floats:
        """The pass of `prepare` has run: logits (len(drafts) + 1, V) float32 after `ids` and each draft.

        They are valid until the next pass. With guidance this runs the negative row and mixes both.
        """
        self._leases[0].extend(self._rows)
        if self._guidance is None:
            return logits
        rows, reply = [logits.copy()], self._ids[self._prompt_tokens :]
        for row, prompt in enumerate(self._prompts[1:], start=1):
            logits = self._cache.program.run(self._step(row, [*prompt, *reply], self._drafts))
            self._leases[row].extend(self._rows)
            rows.append(logits.copy())
        return self._mixed(rows)

    # -- overlapped decode

    @property
    def single(self) -> bool:
        """Whether there is only one row."""
        return self._guidance is None

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
        """Reserve pages for a text of `length` tokens and tell the decode loop; False if there are none."""
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

    def _step(self, row: int, ids: Sequence[int], drafts: Sequence[int]) -> Step:
        """The pass of one row over what its lease lacks of `ids`, and over `drafts`."""
        lease = self._leases[row]
        if len(lease.ids) == len(ids) - 1:  # as nearly always
            self._rows = [*ids[-1:], *drafts]
        else:
            if lease.length >= len(ids):
                lease.truncate(len(ids) - 1)
            cut(self._passes[row], lease.length)
            self._rows = [*ids[lease.length :], *drafts]
        self._passes[row].append((len(lease.ids), len(self._rows)))
        return self._cache.step(lease, self._rows, len(drafts) + 1)

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
