"""The int64 words of the step block, which change from one replay of a program to the next.

The rows of a step belong to one or more runs, each of one sequence. From word `RUN_TABLE` on, a run has
`RUN_WORDS` words: its first row, its number of rows and the address of its block table, int32. A step of more
rows than a small batch has one run.
"""

from __future__ import annotations

SMALL_BATCH = 8
"""Most rows of a small batch, which is bound by reading weights; kernels have other code for more rows."""

ROWS, LOGIT_ROWS, TOKENS, POSITIONS, SERIAL, RUNS = range(6)
RUN_TABLE = 8
RUN_FIRST, RUN_ROWS, RUN_PAGES = range(3)
RUN_WORDS = 4
WORDS = RUN_TABLE + RUN_WORDS * SMALL_BATCH
