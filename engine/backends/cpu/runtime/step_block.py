"""The int64 words of the step block, which change from one replay of a program to the next."""

from __future__ import annotations

ROWS, LOGIT_ROWS, TOKENS, POSITIONS, PAGES, SERIAL = range(6)
WORDS = 8

SMALL_BATCH = 8
"""Most rows of a small batch, which is bound by reading weights; kernels have other code for more rows."""
