"""The memory layout of a draw: 32-bit words that the sampling kernels and the host share."""

from __future__ import annotations

import numpy as np

from engine.backends.decode_loop import SamplingPlan
from engine.sampling import passes

NOTHING = -3.0e38
"""The score of a token that cannot be drawn; finite, because fast arithmetic excludes infinities."""
LOWEST = -2.9e38
"""Scores above this are real."""

# The plan.
INSIDE, STEPS, GREEDY, ALTERNATIVES, TOP, WANT, RAW_WANT, PENALISES = range(8)
REPETITION, PRESENCE, FREQUENCY, REACH, FADE, REPETITION_FIRST, WHOLE_SCALE = range(8, 15)
PROGRAM, MOST_STEPS = 16, 16
PLAN_WORDS = PROGRAM + 2 * MOST_STEPS

# The results of a block of the scan. Of the logits: maximum, sums of exp(l - maximum) and of that times (l -
# maximum), whether some are NaN or infinite. Of the scores: maximum and sum of exp((s - maximum) * scale).
RAW_MAX, RAW_SUM, RAW_INNER, BAD, MAX, SUM = range(6)
PARTIAL_WORDS = 8
PART = 2048
"""Tokens of a block."""

# The most likely tokens in order: their number (-1: too many), the depth below the first within which none is
# missing, whether all tokens are included; then arrays.
COUNT, DEPTH, WHOLE = range(3)
MOST = 1024
SCORES, IDS = 4, 4 + MOST
LIST_WORDS = 4 + 2 * MOST

# The state: how many tokens have been drawn.
SERIAL, STATE_WORDS = 0, 4

# The result of a token.
STAMP, FLAG, TOKEN, FINAL, RAW, ENTROPY, OTHERS, TOPS = range(8)
MOST_ALTERNATIVES = 64
OTHERS_AT, TOPS_AT = 8, 8 + 3 * MOST_ALTERNATIVES
RESULT_WORDS = TOPS_AT + 2 * MOST_ALTERNATIVES
SLOTS = 16
"""Results and random numbers in the ring buffers; also the rows of kept logits."""

MOST_REQUESTED = 512
"""Maximum number of most likely tokens to request; usually a few more are found."""


def takes(plan: SamplingPlan) -> bool:
    """Whether the kernels can sample by this plan."""
    kept = [value for code, value in plan.steps if code == passes.KEEP_TOP]
    return (
        len(plan.steps) <= MOST_STEPS
        and plan.top <= MOST_ALTERNATIVES
        and plan.alternatives <= MOST_ALTERNATIVES
        and all(code in _KNOWN for code, _ in plan.steps)
        and (plan.greedy or any(code != passes.SCALE for code, _ in plan.steps))
        and (not _starts_with_top(plan) or kept[0] <= MOST_REQUESTED)
    )


_KNOWN = (passes.SCALE, passes.KEEP_TOP, passes.KEEP_NUCLEUS, passes.KEEP_REACHING, passes.KEEP_SQUARED)


def _starts_with_top(plan: SamplingPlan) -> bool:
    return _first_kept(plan)[0] == passes.KEEP_TOP


def _first_kept(plan: SamplingPlan) -> tuple[int, float]:
    """The first step that drops tokens."""
    return next((step for step in plan.steps if step[0] != passes.SCALE), (passes.SCALE, 1.0))


def plan_words(
    plan: SamplingPlan, separate: bool, most: int = MOST_REQUESTED
) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """The plan as uint32 (PLAN_WORDS,); with `separate`, the raw logits have their own sorted list.

    If no step limits the number of tokens, `most` are requested.
    """
    words = np.zeros(PLAN_WORDS, np.uint32)
    whole, real = words.view(np.int32), words.view(np.float32)
    whole[INSIDE], whole[STEPS], whole[GREEDY] = (
        plan.vocabulary,
        0 if plan.greedy else len(plan.steps),
        plan.greedy,
    )
    whole[ALTERNATIVES], whole[TOP], whole[PENALISES] = plan.alternatives, plan.top, plan.penalises
    code, value = _first_kept(plan)
    requested = 1 if plan.greedy else int(value) if code == passes.KEEP_TOP else most
    whole[WANT], whole[RAW_WANT] = (
        requested if separate else max(requested, plan.alternatives),
        plan.alternatives,
    )
    real[REPETITION], real[PRESENCE], real[FREQUENCY] = plan.repetition, plan.presence, plan.frequency
    fade = plan.fade if plan.reach > 0 else 0
    whole[REACH], whole[FADE], whole[REPETITION_FIRST] = plan.reach, fade, plan.repetition_first
    scale = 1.0
    for i, (code, value) in enumerate(plan.steps):
        whole[PROGRAM + 2 * i], real[PROGRAM + 2 * i + 1] = code, value
    for code, value in plan.steps:
        if code != passes.SCALE:
            break
        scale *= value
    real[WHOLE_SCALE] = scale
    return words
