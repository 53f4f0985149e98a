"""The int64 words of the step block, which change from one replay of a program to the next.

The rows of a step belong to one or more runs, each of one sequence. From word `RUN_TABLE` on, a run has
`RUN_WORDS` words: its first row, its number of rows, the address of its block table, int32, and the numbers
of the states before its rows (-1: there is none) and after them. A step of more rows than a small batch has
one run. `SAMPLED` is the number of tokens from which the pass samples the next one, by the logits of the
first row (`kernels.sample`); 0 if it does not. `ROPE_POSITIONS` is the address of the rows' rope positions,
which is that of `POSITIONS` where they are the same.
"""

from __future__ import annotations

SMALL_BATCH = 16
"""Most rows of a small batch, which is bound by reading weights; kernels have other code for more rows."""

ROWS, LOGIT_ROWS, TOKENS, POSITIONS, SERIAL, RUNS, KEPT, SAMPLED, ROPE_POSITIONS = range(9)
RUN_TABLE = 9
RUN_FIRST, RUN_ROWS, RUN_PAGES, RUN_FROM, RUN_TO = range(5)
RUN_WORDS = 5
WORDS = RUN_TABLE + RUN_WORDS * SMALL_BATCH
CROSS = 8 * WORDS
"""Bytes from the step block to a second one, for cross-attention: the positions are those of the last keys
that a row sees there, the block tables those of `Step.cross`.
"""
