"""The one loop of generation: read the prompt, then draft, run, decide and emit until something ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence

from engine.backends.base import Floats
from engine.core import Prefill
from engine.errors import BadSetting, ContextTooLong
from engine.generator.drafting import Drafting
from engine.generator.overlap import OverlappedDecode
from engine.generator.runner import SequenceRunner
from engine.generator.sequence import StepOutput, TokenSequence
from engine.generator.stats import SequenceStats

Stop = threading.Event | None
Steps = Generator[Prefill | StepOutput, None, None]
"""What `write` returns: progress of the prompt, then what each token made certain."""


def check_prompt(ids: Sequence[int], vocab_size: int, context_length: int) -> None:
    """Raise `BadSetting` for no ids or ids outside the vocabulary, and `ContextTooLong` when they do not
    fit.
    """
    if not ids:
        raise BadSetting(
            "The prompt is empty, but a model needs at least one token to go on from; give it some text."
        )
    outside = next((token for token in ids if not 0 <= token < vocab_size), None)
    if outside is not None:
        raise BadSetting(
            f"Token id {outside} is not in the model's vocabulary; ids go from 0 to {vocab_size - 1}."
        )
    if len(ids) > context_length:
        raise ContextTooLong(
            f"The prompt has {len(ids)} tokens, but the context holds {context_length}; shorten it by "
            f"{len(ids) - context_length} tokens or choose a larger context length."
        )


def write(
    runner: SequenceRunner,
    sequence: TokenSequence,
    stats: SequenceStats,
    stop: Stop = None,
    drafting: Drafting | None = None,
) -> Steps:
    """Yield `Prefill` until the prompt is read, then one `StepOutput` a token; the last one carries the
    reason.

    Closing the iterator at any point, or setting `stop`, gives the pages back with everything that was run
    still cached. The token that ended the sequence is not run: it costs nothing then, and is read with the
    next turn's prompt. After a draft, each row of the pass decides one token; from the first one that is not
    the drafted one, the rest is void. A device that can draws usual tokens by itself
    (`engine.generator.overlap`).
    """
    drafting, ahead, stopped = (
        drafting or Drafting(),
        OverlappedDecode(runner, sequence),
        stop.is_set if stop is not None else _never,
    )
    decide, run, drafts = drafting.timed(sequence.decide), drafting.timed(runner.run), drafting.active
    stats.drafting = drafting
    stats.prefill_started = stats.prefill_ended = stats.ended = time.perf_counter()
    try:
        sequence.begin()
        runner.open()
        stats.cached = runner.cached
        logits = yield from _read(runner, stats, stop)
        if logits is None or stopped():
            yield sequence.finish("cancelled")
            return
        drafting.begin(sequence.ids)
        rows, proposals = logits[None], drafting.none
        while True:
            decided = 0
            for row, logits in enumerate(rows):
                proposal = proposals[row] if row < len(proposals) else None
                output = decide(logits, proposal)
                while output.retry is not None and not stopped():
                    yield output
                    proposal = None
                    output = sequence.decide(output.retry)
                decided += 1
                stats.token()
                yield output
                if output.reason:
                    return
                if stopped():
                    yield sequence.finish("cancelled")
                    return
                if proposal is None or sequence.ids[-1] != proposal.id:
                    break
            if drafts:
                drafting.passed(decided)
                proposals = drafting.propose(sequence, sequence.context_length - len(sequence.ids))
                if stopped():
                    yield sequence.finish("cancelled")
                    return
            elif ahead.possible():
                further = yield from ahead.write(stats, stopped)
                if further is None:
                    return
                rows = further[None]
                continue
            rows = run(sequence.ids, [proposal.id for proposal in proposals])
            stats.passes, stats.drafted = runner.passes, stats.drafted + len(proposals)
    finally:
        drafting.close()
        ahead.close()
        runner.close()
        sequence.close()


def _read(
    runner: SequenceRunner, stats: SequenceStats, stop: threading.Event | None
) -> Generator[Prefill, None, Floats | None]:
    """Read the prompt and keep the times."""
    reading = runner.prefill(stop)
    while True:
        try:
            progress = next(reading)
        except StopIteration as end:
            logits: Floats | None = end.value
            return logits
        stats.prefilled = progress.done - progress.cached
        stats.prefill_ended = stats.ended = time.perf_counter()
        yield progress


def _never() -> bool:
    return False
