"""The loop of generation, and the events that come of it: read the prompt, then draft, run, decide and emit
until something ends the sequence.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence

from engine.core import Done, Prefill, Running, Text, TokenInfo
from engine.drain import mapped
from engine.errors import BadSetting, ContextTooLong
from engine.generator.drafting import Drafting
from engine.generator.overlap import OverlappedDecode
from engine.generator.runner import SequenceRunner
from engine.generator.sequence import StepOutput, TokenSequence
from engine.generator.stats import SequenceStats
from engine.speculation.drafter import Proposal
from engine.tensors import Floats

Steps = Generator[Prefill | StepOutput, None, None]
"""Progress of the prompt, then what each token made certain."""
RUNNING_SECONDS = 0.5
"""Time between two `Running` events. Nobody reads figures that change more often, and showing them takes time
from a model on the CPU.
"""


def events(
    steps: Steps, sequence: TokenSequence, stats: SequenceStats, interval: int = 1
) -> Generator[Prefill | Text | Running | Done, None, None]:
    """The events of one sequence, text every `interval` tokens and at its end. Closing it closes `steps`."""
    text, tokens, suppressed = "", list[TokenInfo](), ""
    count, reported = 0, time.perf_counter()
    try:
        for step in steps:
            if isinstance(step, Prefill):
                yield step
                continue
            text, suppressed = text + step.text, suppressed + step.suppressed
            for token in step.tokens:
                tokens.append(token.info)
            count += 1
            now = time.perf_counter()
            if (text or tokens or suppressed) and (count >= interval or step.reason):
                yield Text(text, tuple(tokens), suppressed)
                text, tokens, suppressed, count = "", [], "", 0
            if step.reason:
                yield Done(step.reason, step.trigger, stats.summary(sequence, sequence.params.seed))
            elif now - reported >= RUNNING_SECONDS:
                reported = now
                yield Running(stats.summary(sequence, sequence.params.seed))
    finally:
        steps.close()


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


def decode(
    runner: SequenceRunner,
    sequence: TokenSequence,
    stats: SequenceStats,
    stop: threading.Event | None = None,
    drafting: Drafting | None = None,
) -> Steps:
    """Yield `Prefill` until the prompt is read, then one `StepOutput` a token; the last has a reason.

    Closing the iterator at any point, or setting `stop`, returns the pages with everything that was run still
    cached. The token that ends the sequence is not run: it is read with the next turn's prompt. Where the
    device can sample, it does (`engine.generator.overlap`).
    """
    drafting, overlap = drafting or Drafting(), OverlappedDecode(runner, sequence)
    stopped = stop.is_set if stop is not None else _never
    run, finish = drafting.timed(runner.program.run), drafting.timed(runner.finish)
    stats.begin(drafting)
    try:
        sequence.begin()
        runner.open()
        stats.cached = runner.cached
        logits = yield from mapped(runner.prefill(stop), stats.prefill)
        if logits is None or stopped():
            yield sequence.finish("cancelled")
            return
        drafting.begin(sequence.ids)
        rows, proposals, decide = logits[None], drafting.none, drafting.timed(sequence.decide)
        while decided := (yield from _decide(rows, proposals, decide, sequence, stats, stopped)):
            if drafting.active:
                drafting.passed(decided)
                proposals = drafting.propose(sequence, sequence.context_length - len(sequence.ids))
                if stopped():
                    yield sequence.finish("cancelled")
                    return
            elif (device := overlap.begin()) is not None:
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
            rows = finish(run(runner.prepare(sequence.ids, [proposal.id for proposal in proposals])))
            stats.passes, stats.drafted = runner.passes, stats.drafted + len(proposals)
    finally:
        drafting.close()
        overlap.close()
        runner.close()
        sequence.close()


def _decide(
    rows: Floats,
    proposals: Sequence[Proposal],
    decide: Callable[[Floats, Proposal | None], StepOutput],
    sequence: TokenSequence,
    stats: SequenceStats,
    stopped: Callable[[], bool],
) -> Generator[StepOutput, None, int]:
    """Choose a token from each of the logits `rows` (1 + drafts, V), up to the first that is not the drafted
    one; the rows after that are void. Returns the number of tokens, 0 when the sequence is over.
    """
    decided = 0
    for logits in rows:
        proposal = proposals[decided] if decided < len(proposals) else None
        output = decide(logits, proposal)
        while output.retry is not None and not stopped():
            yield output
            proposal = None
            output = sequence.decide(output.retry)
        decided += 1
        stats.token()
        yield output
        if output.reason:
            return 0
        if stopped():
            yield sequence.finish("cancelled")
            return 0
        if proposal is None or sequence.ids[-1] != proposal.id:
            break
    return decided


def _never() -> bool:
    return False
