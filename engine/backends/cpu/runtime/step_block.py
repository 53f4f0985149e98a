"""The words of the step block: what changes from one replay of a program to the next. All int64."""

from __future__ import annotations

ROWS, LOGIT_ROWS, TOKENS, POSITIONS, PAGES, SERIAL = range(6)
WORDS = 8

SMALL_BATCH = 8
"""Steps of up to this many rows are bound by reading weights; larger ones take other code in kernels."""
