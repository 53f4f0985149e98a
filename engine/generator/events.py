"""A sequence as frozen events: pieces of text gathered over some tokens, and figures a few times a second."""

from __future__ import annotations

import math
import time
from collections.abc import Generator

from engine.core import Done, Prefill, Running, Text, TokenInfo
from engine.generator.decode import Steps
from engine.generator.sequence import TokenSequence
from engine.generator.stats import SequenceStats

RUNNING_SECONDS = 0.5
"""Time between two `Running` events: figures that change more often are not read, but showing them costs a
CPU model its time.
"""


def events(
    steps: Steps,
    sequence: TokenSequence,
    stats: SequenceStats,
    interval: int = 1,
    gather_seconds: float = 0.0,
) -> Generator[Prefill | Text | Running | Done, None, None]:
    """The events of one sequence. Text is handed on every `interval` tokens but not within `gather_seconds`
    of the last, and at its end. Closing it closes `steps`.
    """
    text, tokens, suppressed = "", list[TokenInfo](), ""
    count, told, handed = 0, time.perf_counter(), -math.inf
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
            due = count >= interval and now - handed >= gather_seconds
            if (text or tokens or suppressed) and (due or step.reason):
                handed = now
                yield Text(text, tuple(tokens), suppressed)
                text, tokens, suppressed, count = "", [], "", 0
            if step.reason:
                yield Done(step.reason, step.trigger, stats.summary(sequence, sequence.params.seed))
            elif now - told >= RUNNING_SECONDS:
                told = now
                yield Running(stats.summary(sequence, sequence.params.seed))
    finally:
        steps.close()
