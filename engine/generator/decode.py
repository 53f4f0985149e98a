"""The loop of generation, and the events that come of it: read the prompt, then draft, run, decide and emit
until something ends the sequence.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, wait
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from engine.constraint.filter_set import Busy
from engine.core import FIRST_PICTURE_ID, Done, Prefill, Running, Stats, Text, TokenInfo
from engine.errors import BadSetting, ContextTooLong
from engine.generator.drafting.sequence import Drafting
from engine.generator.overlap import OverlappedDecode
from engine.generator.runner import ModelPass, SequenceRunner, run_pass
from engine.generator.sequence import StepOutput, TokenSequence
from engine.generator.stats import SequenceStats
from engine.models.paged import PagedCache
from engine.tensors import Floats
from engine.words import _

S = TypeVar("S")
R = TypeVar("R")
Steps = Generator[Prefill | StepOutput | ModelPass | Future[Any], Floats | None, None]
"""Progress of the prompt, then what each token made certain; each pass of the model that is to run, for which
its logits are sent; and futures that the sequence waits for, while others may go on.
"""
PATIENCE = 0.005
"""Seconds that a sequence waits for its filters' thread before others go on without it."""
_INFO = attrgetter("info")
RUNNING_SECONDS = 0.5
"""Time between two `Running` events. Nobody reads figures that change more often, and showing them takes time
from a model on the CPU.
"""


def driven(
    steps: Generator[S | ModelPass | Future[Any], Floats | None, R], cache: PagedCache
) -> Generator[S, None, R]:
    """The steps of one sequence, whose passes run as soon as it asks for them; the result is the same.
    Closing it closes `steps`.
    """
    logits: Floats | None = None
    try:
        while True:
            try:
                step = steps.send(logits)
            except StopIteration as end:
                result: R = end.value
                return result
            if isinstance(step, ModelPass):
                logits = run_pass(step, cache)
            elif isinstance(step, Future):
                logits = None
                wait([step], PATIENCE)
            else:
                logits = None
                yield step
    finally:
        steps.close()


class EventWriter:
    """The events of one sequence from its steps: text every `interval` tokens and at its end."""

    def __init__(self, sequence: TokenSequence, stats: SequenceStats, interval: int = 1) -> None:
        self._sequence, self._stats, self._interval = sequence, stats, interval
        self._text, self._tokens, self._suppressed = "", list[TokenInfo](), ""
        self._count, self._reported = 0, time.perf_counter()

    def events(self, step: Prefill | StepOutput) -> Sequence[Prefill | Text | Running | Done]:
        """The events that a step completes."""
        if type(step) is Prefill:
            return (step,)
        assert type(step) is StepOutput
        self._text, self._suppressed = self._text + step.text, self._suppressed + step.suppressed
        self._tokens += map(_INFO, step.tokens)
        self._count += 1
        found: list[Prefill | Text | Running | Done] = []
        if (self._text or self._tokens or self._suppressed) and (
            self._count >= self._interval or step.reason
        ):
            found = [Text(self._text, tuple(self._tokens), self._suppressed)]
            self._text, self._tokens, self._suppressed, self._count = "", [], "", 0
        if step.reason:
            found.append(Done(step.reason, step.trigger, self._summary()))
        elif self._sequence.last_token - self._reported >= RUNNING_SECONDS:
            self._reported = self._sequence.last_token
            found.append(Running(self._summary()))
        return found

    def _summary(self) -> Stats:
        return self._stats.summary(self._sequence, self._sequence.params.seed)


def events(
    steps: Generator[Prefill | StepOutput, None, None], writer: EventWriter
) -> Generator[Prefill | Text | Running | Done, None, None]:
    """The events of one sequence. Closing it closes `steps`."""
    try:
        for step in steps:
            yield from writer.events(step)
    finally:
        steps.close()


def check_prompt(ids: Sequence[int], vocab_size: int, context_length: int, *, pictures: bool = False) -> None:
    """Raise `BadSetting` for no ids or ids outside the vocabulary, among which tokens of `pictures` may be,
    and for a picture at the end; `ContextTooLong` when they do not fit.
    """
    if not ids:
        raise BadSetting(
            _("The prompt is empty, but a model needs at least one token to continue; enter some text.")
        )
    beyond = FIRST_PICTURE_ID if pictures else sys.maxsize
    if ids[-1] >= beyond:
        raise BadSetting(_("The prompt ends with a picture; write some text after it."))
    outside = next((id for id in ids if not (0 <= id < vocab_size or id >= beyond)), None)
    if outside is not None:
        raise BadSetting(
            _(
                "Token id {outside} is not in the model's vocabulary; ids go from 0 to {vocab_size}.",
                outside=outside,
                vocab_size=vocab_size - 1,
            )
        )
    if len(ids) > context_length:
        raise ContextTooLong(
            _(
                "The prompt has {ids:,} tokens, but the context holds {context_length:,}; shorten it "
                "by {ids_2:,} tokens or choose a larger context length.",
                ids=len(ids),
                context_length=context_length,
                ids_2=len(ids) - context_length,
            )
        )


def decode(
    runner: SequenceRunner,
    sequence: TokenSequence,
    stats: SequenceStats,
    stop: threading.Event | None = None,
    drafting: Drafting | None = None,
) -> Steps:
    """Yield `Prefill` until the prompt is read, then one `StepOutput` a token; the last has a reason.

    Each `ModelPass` wants its logits sent. Closing the iterator at any point, or setting `stop`, returns the
    pages with everything that was run still cached. The token that ends the sequence is not run: it is read
    with the next turn's prompt. Where the device can sample, it does (`engine.generator.overlap`).
    """
    drafting, overlap = drafting or Drafting(), OverlappedDecode(runner, sequence)
    stopped = stop.is_set if stop is not None else _never
    drafts, finish = drafting.active, drafting.timed(runner.finish)
    stats.begin(drafting)
    try:
        yield from _settled(partial(sequence.begin, PATIENCE), stopped)
        runner.heard = drafting.follow(sequence.ids, runner.lease)
        runner.open()
        stats.cached = runner.cached
        logits = yield from _prefilled(runner.prefill(stop), stats)
        if logits is None or stopped():
            yield sequence.finish("cancelled")
            return
        drafting.begin(sequence.ids)
        rows, proposals, decide = logits[None], drafting.none, drafting.timed(sequence.decide)
        while decided := (yield from _decide(rows, proposals, decide, sequence, stats, stopped)):
            if drafts:
                drafting.passed(decided)
                room = sequence.context_length - len(sequence.ids)
                proposals = drafting.propose(sequence, room, runner.most_drafts)
                if stopped():
                    yield sequence.finish("cancelled")
                    return
            elif overlap.possible and (device := overlap.begin()) is not None:
                while (output := overlap.take_in(device.next(overlap.further()), stats)) is not None:
                    yield output
                    if output.reason:
                        return
                    if stopped():
                        yield sequence.finish("cancelled")
                        return
                    if overlap.ends_after(output):
                        break
                if overlap.logits is not None:
                    rows = overlap.logits[None]
                    continue
            if runner.recurrent:
                yield from runner.catch_up(sequence.ids, len(proposals))
            passes = runner.prepare(sequence.ids, proposals, timed=drafts)
            logits = yield passes
            assert logits is not None
            rows, stats.passes = finish(logits), runner.passes
            if drafts:
                drafting.spent(passes.seconds)
                stats.drafted += len(proposals)
    finally:
        drafting.close()
        overlap.close()
        runner.close()
        sequence.close()


def _prefilled(
    reading: Generator[Prefill | ModelPass, Floats | None, Floats | None], stats: SequenceStats
) -> Generator[Prefill | ModelPass, Floats | None, Floats | None]:
    """`reading`, whose progress is noted."""
    sent: Floats | None = None
    while True:
        try:
            step = reading.send(sent)
        except StopIteration as end:
            logits: Floats | None = end.value
            return logits
        sent = yield stats.prefill(step) if isinstance(step, Prefill) else step


def _settled(call: Callable[[], R], stopped: Callable[[], bool]) -> Generator[Future[Any], None, R | None]:
    """What `call` returns once the filters' thread has found what it needs; None if stopped before."""
    while True:
        try:
            return call()
        except Busy as busy:
            task = busy.task
        while not task.done():
            if stopped():
                return None
            yield task


def _decide(
    rows: Floats,
    proposals: Sequence[int],
    decide: Callable[[Floats, int | None], StepOutput],
    sequence: TokenSequence,
    stats: SequenceStats,
    stopped: Callable[[], bool],
) -> Generator[StepOutput | Future[Any], None, int]:
    """Choose a token from each of the logits `rows` (1 + drafts, V), up to the first that is not the drafted
    one; the rows after that are void. Returns the number of tokens, 0 when the sequence is over.
    """
    decided, constrained = 0, sequence.constrained
    if constrained:
        rows = rows.copy()  # while the filters need longer, others' passes overwrite them
    for logits in rows:
        proposal = proposals[decided] if proposals and decided < len(proposals) else None
        if constrained:
            output = yield from _settled(partial(decide, logits, proposal), stopped)
        else:
            output = decide(logits, proposal)
        while output is not None and output.retry is not None and not stopped():
            yield output
            proposal = None
            output = yield from _settled(partial(sequence.decide, output.retry), stopped)
        if output is not None:
            decided += 1
            yield output
            if output.reason:
                return 0
        if stopped():
            yield sequence.finish("cancelled")
            return 0
        if proposal is None or sequence.ids[-1] != proposal:
            break
    return decided


def _never() -> bool:
    return False
