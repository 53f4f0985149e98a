"""`selftest` with a model: its answers on the tested device next to the CPU's (for the CPU, the reference's).

Passing means: the same likeliest token at every position, unless its margin over the device's choice in the
baseline is at most 0.1 nats; log-probabilities of the baseline's ten likeliest tokens within 0.02 on average;
perplexity within 0.5 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.cli.logits import log_softmax
from engine.lazy_dataclass import dataclass
from engine.models.proof.case import outcome
from engine.tensors import Floats
from engine.words import N_

if TYPE_CHECKING:
    from engine.chat import LocalChat

MARGIN, MEAN_DIFFERENCE, PERPLEXITY_SHARE = 0.1, 0.02, 0.005
TOP = 10
NEW_TOKENS, WINDOW = 32, 256
"""Tokens generated after each prompt, and the most tokens of the text that are scored."""
PROMPTS = (
    "The capital of France is", "Once upon a time there was a", "To make bread, first",
    "def factorial(n):\n    ",
)  # fmt: skip
TEXT = (
    "The tide goes out twice a day, and with it goes the noise of the harbour. Boats that rocked at their "
    "ropes all morning settle on the mud and lean against each other like old friends after a long dinner. "
    "Children come down with buckets, because under every stone there is a crab, and under the largest "
    "stone there is said to be one that nobody has ever caught. The fishermen mend their nets on the wall. "
    "They do not look at the water, for they know without looking when it will turn: first the gulls fall "
    "silent, then a thin bright line appears beyond the lighthouse, and within the hour the boats are "
    "afloat again. In winter the harbour freezes at its edges, and the oldest of the men tells of a year "
    "in which one could walk to the island. Nobody believes him, but nobody says so, because he tells it "
    "well and because the story is better than the weather."
)


@dataclass(frozen=True)
class Answers:
    """What one device computes with a model.

    `ids` are the tokens after each prompt, greedy or forced. `rows` are the log-probabilities (positions, V)
    float32 at these tokens. `perplexity` is that of `TEXT`.
    """

    ids: tuple[tuple[int, ...], ...]
    rows: tuple[Floats, ...]
    perplexity: float


def answers(chat: LocalChat, forced: Sequence[Sequence[int]] = ()) -> Answers:
    """Collect the answers of a loaded model.

    With `forced`, these tokens follow each prompt instead of the model's own, so that
    positions are comparable.
    """
    tokenizer = chat.tokenizer
    ids: list[tuple[int, ...]] = []
    rows: list[Floats] = []
    for number, prompt in enumerate(PROMPTS):
        start = tokenizer.encode(prompt, add_bos=tokenizer.add_bos)
        found, scores = _continue(chat, start, forced[number] if forced else None)
        ids.append(found)
        rows.append(scores)
    return Answers(tuple(ids), tuple(rows), perplexity(chat))


def _continue(
    chat: LocalChat, prompt: Sequence[int], forced: Sequence[int] | None
) -> tuple[tuple[int, ...], Floats]:
    cache = chat.generator.cache
    written: list[int] = []
    rows: list[Floats] = []
    with cache.table.open((), key="selftest") as lease:
        for start in range(0, len(prompt), cache.rows):
            logits = cache.run(lease, prompt[start : start + cache.rows])
        for place in range(min(NEW_TOKENS, cache.context_length - len(prompt))):
            rows.append(log_softmax(logits[-1:])[0].astype(np.float32))
            written.append(int(rows[-1].argmax()) if forced is None else forced[place])
            logits = cache.run(lease, written[-1:])
    return tuple(written), np.stack(rows)


def perplexity(chat: LocalChat) -> float:
    """The perplexity of the first `WINDOW` tokens of `TEXT`."""
    cache, tokenizer = chat.generator.cache, chat.tokenizer
    ids = tokenizer.encode(TEXT, add_bos=tokenizer.add_bos)[: min(WINDOW, cache.context_length)]
    loss = 0.0
    with cache.table.open((), key="selftest") as lease:
        for start in range(0, len(ids) - 1, cache.rows):
            part = ids[start : min(start + cache.rows, len(ids) - 1)]
            scores = log_softmax(cache.run(lease, part, len(part)))
            loss -= float(scores[np.arange(len(part)), ids[start + 1 : start + 1 + len(part)]].sum())
    return math.exp(loss / (len(ids) - 1))


def compared(device: Answers, baseline: Answers) -> list[dict[str, Any]]:
    """The rows of the table; `device` was forced to the baseline's tokens."""
    departures, gaps = 0.0, []
    for ours, theirs in zip(device.rows, baseline.rows, strict=True):
        best = np.argsort(-theirs, axis=1)[:, :TOP]
        gaps.append(np.abs(np.take_along_axis(ours, best, 1) - np.take_along_axis(theirs, best, 1)).mean())
        for mine, theirs_here, first in zip(ours, theirs, best[:, 0], strict=True):
            if (chosen := int(mine.argmax())) != first:
                departures = max(departures, float(theirs_here[first] - theirs_here[chosen]))
    gap = float(np.mean(gaps))
    share = abs(device.perplexity / baseline.perplexity - 1)
    return [
        outcome(N_("greedy tokens, margin of departures"), departures, MARGIN),
        outcome(N_("log-probabilities of the ten most likely"), gap, MEAN_DIFFERENCE),
        outcome(N_("perplexity"), share, PERPLEXITY_SHARE),
    ]
