"""SequenceRunner: runs the model over one sequence, and with guidance over a second, negative row.

Classifier-free guidance (arXiv 2306.17806) mixes log-probabilities: scale * positive + (1 - scale) *
negative. Both rows are ordinary sequences of the page table, so the next turn finds both again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import final

import numpy as np

from engine.backends.decode_loop import DecodeLoop, HasDecodeLoop, SamplingPlan
from engine.core import FIRST_PICTURE_ID, Prefill
from engine.errors import ContextTooLong
from engine.generator.reading import Reading
from engine.generator.request import Guidance
from engine.kv_cache.lease import Lease
from engine.kv_cache.readings import Passes, cut, smallest
from engine.models.paged import PagedCache, SequencePart
from engine.tensors import Floats


@final
class ModelPass:
    """A pass that a sequence waits for. Whoever drives the sequence runs it and sends the logits back.

    `parts` reserves the pages, so call it right before the pass runs. `reads`: it is a chunk of a prompt.
    With `timed`, `seconds` is set to the time that it took.
    """

    __slots__ = ("parts", "reads", "seconds", "timed")

    def __init__(self, parts: Callable[[], list[SequencePart]], reads: bool = False) -> None:
        self.parts = parts
        self.reads = reads
        self.timed = False
        self.seconds = 0.0


def run_pass(model_pass: ModelPass, cache: PagedCache) -> Floats:
    """Run a pass alone: the logits (rows, V) float32 of all its parts, valid until the next pass."""
    program, step = cache.pass_of(model_pass.parts())
    if not model_pass.timed:
        return program.run(step)
    started = time.perf_counter()
    logits = program.run(step)
    model_pass.seconds = time.perf_counter() - started
    return logits


Heard = Callable[[int, Sequence[int], Floats], None]


class SequenceRunner:
    """The rows of one sequence from `open` to `close`, which returns their pages; everything that was run
    stays cached.

    With `replayed`, the passes of each row, the prompts are read in these passes; nothing is taken from the
    cache and nothing stays in it. `chunk` is the most rows of the next chunk of a prompt.
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
        self._readings = [Reading(cache, ids) for ids in self._prompts]
        self._leases: list[Lease] = []
        self._replayed = replayed
        self._passes: list[Passes] = []
        self._suspended: list[tuple[list[int], Passes]] = []
        self._parts: list[SequencePart] = []  # of the pass under way
        self._usual_pass: ModelPass | None = None
        self._asked: tuple[Sequence[int], Sequence[int]] = (), ()  # the ids and drafts of the usual pass
        self.recurrent = cache.recurrent
        self.decodes_on_device = isinstance(cache.program, HasDecodeLoop)
        self.sharing = 0
        """The number of sequences that run in turn, this one included; 0 if it is the only one."""
        self.chunk = cache.rows
        self.cached = 0
        self.passes = 0
        self.first_row = 0
        """The first row of this sequence in the pass that has just run."""
        self.heard: Heard | None = None
        """Is told what ran of the first row of the sequence: the position of the first token, the tokens, and
        their hidden states (T, E), valid until the next pass.
        """

    def open(self) -> None:
        """Open leases on the cached prefixes of the prompts."""
        for row, ids in enumerate(self._prompts):
            lease = self._lease(row, ids)
            self._leases.append(lease)
            key = self._cache.key + self._readings[row].key
            self._passes.append(self._cache.readings.of(key, ids, lease.length))
        self.cached = sum(lease.length for lease in self._leases)

    def lease(self) -> Lease:
        """The lease of the first row, between `open` and `close`; `resume` replaces it."""
        return self._leases[0]

    def _lease(self, row: int, ids: Sequence[int]) -> Lease:
        own = self._readings[row].key
        lease = self._cache.open(ids, key=f" replayed {id(self)} {row}" if self._replayed else own)
        if whole := self._readings[row].whole(ids, lease.length):
            lease.truncate(whole[0])
        if self._guidance is not None:  # both rows may need every page
            self._cache.settle(lease)
        return lease

    def passes_ahead(self, row: int) -> Passes:
        """The passes that will read the part of a prompt that is not cached."""
        start, length = self._leases[row].length, len(self._prompts[row])
        reading = self._readings[row]
        if not self._replayed:
            return reading.planned(start, length)
        found: Passes = []
        ends = [*(at for at, _ in self._replayed[row][1:]), length]
        for (at, rows), end in zip(self._replayed[row], ends, strict=True):
            unknown = reading.planned(at, end + 1)[:-1]
            found += [(at, min(rows, reading.most(at)))] if rows else unknown
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
            while self._leases[row].length < len(ids):
                if stop is not None and stop.is_set():
                    return None
                if ahead:
                    (start, size), *ahead = ahead
                    logits = yield ModelPass(partial(self._chunk, row, ids, start, size), True)
                else:
                    logits = yield ModelPass(partial(self._part_of_prompt, row, ids, begun), True)
                assert logits is not None
                self._extend()
                end = ahead[0][0] if ahead else len(ids)
                if self._replayed and self._leases[row].length > end:
                    self._leases[row].truncate(end)
                if self._leases[row].length == len(ids) - 1:
                    self._leases[row].keep_state()  # for another reply to this prompt
                if self._leases[row].length == len(ids):
                    rows.append(logits[-1:].copy())
                yield Prefill(sum(lease.length for lease in self._leases), total, self.cached)
        last: Floats = self._mixed(rows)[0]
        return last

    def _part_of_prompt(self, row: int, ids: Sequence[int], begun: int) -> list[SequencePart]:
        """The next pass over a prompt that is read from `begun` on."""
        start = self._leases[row].length
        return self._chunk(row, ids, start, self._readings[row].size(ids, begun, start, self.chunk))

    def _chunk(self, row: int, ids: Sequence[int], start: int, size: int) -> list[SequencePart]:
        """A pass of `size` rows from `start`; in a replayed one, those after the prompt were taken back, and
        without states they run again, so that no row's bits change.
        """
        taken = list(ids[start : start + size])
        if not self._cache.recurrent:
            taken += list(ids[-1:]) * (min(size, self._cache.context_length - start) - len(taken))
        self._parts = [SequencePart(self._leases[row], taken, 1)]
        return self._parts

    def catch_up(self, ids: Sequence[int], drafts: int) -> Generator[ModelPass, Floats | None, None]:
        """Before `prepare` for a text that was rewound: run again what its states have lost, as far as that
        cannot be part of the next pass. Nothing to do for a model without recurrent layers.
        """
        for row, prompt in enumerate(self._prompts if self._cache.recurrent else ()):
            text = list(ids) if row == 0 else [*prompt, *ids[self._prompt_tokens :]]
            known = min(self._leases[row].length, len(text) - 1)
            if self._leases[row].length <= known:
                continue
            self._leases[row].truncate(known)
            passes, small = self._passes[row].copy(), self._cache.program.batch_rows
            most = small // len(self._prompts)  # all rows run together
            cut(passes, known)
            cut(self._passes[row], self._leases[row].length)
            while (begun := self._leases[row].length) < known and not (
                len(text) + drafts - begun <= most
                and smallest(passes, begun, small)
                and max(text[begun:]) < FIRST_PICTURE_ID
            ):  # while it waits for a pass, `resume` may replace the lease
                yield ModelPass(partial(self._part_again, row, text[:known], passes), True)
                self._extend()

    def prepare(self, ids: Sequence[int], drafts: Sequence[int] = (), *, timed: bool = False) -> ModelPass:
        """The pass over what was not run of `ids`, and over `drafts` after it; `timed` as in `ModelPass`.

        What was run beyond `ids` before (rejected drafts, text taken back) is forgotten. Its `parts` raise
        `ContextTooLong`.
        """
        self.passes += 1
        self._asked = ids, drafts
        if self._usual_pass is None:
            self._usual_pass = ModelPass(self._next)
        self._usual_pass.timed = timed
        return self._usual_pass

    def _next(self) -> list[SequencePart]:
        ids, drafts = self._asked
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
        if self._guidance is None:  # of a row that ran with other sequences all logits are given
            return logits if len(logits) == parts[0].logit_rows else logits[-parts[0].logit_rows :]
        rows = np.split(logits, [len(parts[0].ids)])
        return self._mixed([row[-part.logit_rows :] for row, part in zip(rows, parts, strict=True)])

    def _extend(self) -> list[SequencePart]:
        """The pass under way has run; returns its parts."""
        for part in self._parts:
            row = 0 if part.lease is self._leases[0] else 1
            if row == 0 and self.heard is not None:
                kept = self._cache.model.kept
                assert kept is not None
                self.heard(len(part.lease.ids), part.ids, kept[self.first_row :][: len(part.ids)])
            self._passes[row].append((len(part.lease.ids), len(part.ids)))
            part.lease.extend(part.ids)
        return self._parts

    def _part(self, row: int, ids: Sequence[int], drafts: Sequence[int]) -> SequencePart:
        """What one row's lease lacks of `ids`, and `drafts`."""
        lease = self._leases[row]
        if len(lease.ids) == len(ids) - 1:  # as nearly always
            return SequencePart(lease, [ids[-1], *drafts], len(drafts) + 1 if drafts else 1)
        if lease.length >= len(ids):
            lease.truncate(len(ids) - 1)
        cut(self._passes[row], lease.length)
        return SequencePart(lease, [*ids[lease.length :], *drafts], len(drafts) + 1)

    # -- other sequences

    @property
    def most_drafts(self) -> int | None:
        """How many tokens may be drafted so that the passes of all sequences still run together; None for any
        number.
        """
        return max(0, self._cache.program.batch_rows // self.sharing - 1) if self.sharing else None

    @property
    def left(self) -> int:
        """How many tokens of the prompts, or of what a suspended sequence lost, are still to be read."""
        texts = [ids for ids, _ in self._suspended] or self._prompts
        return sum(max(0, len(ids) - lease.length) for ids, lease in zip(texts, self._leases, strict=True))

    @property
    def own_pages(self) -> int:
        """How many pages no other sequence holds."""
        return sum(lease.own_pages for lease in self._leases)

    def suspend(self) -> None:
        """Return the pages until `resume`. Not while a decode loop runs."""
        if not self._suspended:  # or `resume` has not come to its end
            self._suspended = [
                (lease.ids.copy(), passes) for lease, passes in zip(self._leases, self._passes, strict=True)
            ]
        for lease in self._leases:
            lease.close()

    def resume(self) -> Generator[ModelPass, Floats | None, None]:
        """Bring the cache back to where `suspend` left it; what is lost is read again in passes that give the
        same keys and values, bit for bit.
        """
        for row, (ids, _) in enumerate(self._suspended):
            self._leases[row] = self._lease(row, [*ids, 0])
        for row, (ids, passes) in enumerate(self._suspended):
            self._passes[row] = passes.copy()
            cut(self._passes[row], self._leases[row].length)
            while self._leases[row].length < len(ids):
                yield ModelPass(partial(self._part_again, row, ids, passes), True)
                self._extend()
            self._leases[row].truncate(len(ids))
        self._suspended = []

    def _part_again(self, row: int, ids: Sequence[int], passes: Passes) -> list[SequencePart]:
        """The next pass over `ids`, which these passes have read before."""
        lease = self._leases[row]
        ids = self._prompts[row] if len(ids) < self._readings[row].prefix else ids
        start, end = self._readings[row].again(ids, passes, lease.length, self.chunk)
        if start < lease.length:
            lease.truncate(start)
            cut(self._passes[row], start)
        return self._chunk(row, ids, start, end - start)

    # -- overlapped decode

    @property
    def single(self) -> bool:
        """Whether there is only one row, and no other sequence runs in turn with this one."""
        return self._guidance is None and not self.sharing

    @property
    def vocabulary(self) -> int:
        """The length of a row of logits."""
        return self._cache.model.config.vocab_size

    def decode_loop(self, params: SamplingPlan) -> DecodeLoop | None:
        """A decode loop over the cache; None if its device does not support the plan, or if the text has
        pictures that layers of their own look at.
        """
        return None if self._cache.looks(self._leases[0]) else self._cache.decode_loop(params)

    def start(self, decode_loop: DecodeLoop, ids: Sequence[int], uniform: Callable[[int], float]) -> bool:
        """Start a decode loop with the last of `ids`. The others have run; what ran beyond them is forgotten.

        False, and nothing is done, if more has run and states may have lost some of the others: `catch_up`.
        Raises `ContextTooLong`.
        """
        lease = self._leases[0]
        if lease.length >= len(ids):
            if self._cache.recurrent:
                return False
            lease.truncate(len(ids) - 1)
            cut(self._passes[0], lease.length)
        self._cache.start(decode_loop, lease, ids, uniform)
        return True

    def room(self, decode_loop: DecodeLoop, length: int) -> bool:
        """Reserve pages for a text of `length` tokens and tell the decode loop; False if there are none, or
        if another sequence is to run.
        """
        if self.sharing:
            return False
        try:
            self._cache.reserve_ahead(decode_loop, self._leases[0], length)
        except ContextTooLong:
            return False
        return True

    def committed(self, token: int) -> None:
        """A step of the decode loop has run this token: its keys and values are in the cache."""
        lease = self._leases[0]
        self._passes[0].append((len(lease.ids), 1))
        lease.extend([token])
        self.passes += 1

    def close(self) -> None:
        """Return the pages, of which a sequence that has not begun has none."""
        self._usual_pass = None  # which refers to this runner
        for row, (lease, passes) in enumerate(zip(self._leases, self._passes, strict=True)):
            ids, pages = lease.ids.copy(), lease.pages[:1]
            lease.close()
            if not self._replayed:
                cut(passes, len(ids))
                self._cache.readings.remember(self._cache.key + self._readings[row].key, ids, passes)
            for page in pages if self._replayed else ():
                self._cache.table.lose(page)

    def _mixed(self, rows: list[Floats]) -> Floats:
        """The rows themselves, or the guided mix of positive and negative ones."""
        if self._guidance is None:
            return rows[0]
        return self._guidance.mixed(*rows)
