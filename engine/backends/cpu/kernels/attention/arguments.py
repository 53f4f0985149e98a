"""The arguments of attention's kernels."""

from __future__ import annotations

(
    A_Q, A_Q_STRIDE, A_K, A_V, A_Y, A_Y_STRIDE, A_HEADS, A_KV_HEADS, A_DIM, A_SCALE, A_PARTIAL,
    A_KEY_PAGE, A_VALUE_PAGE, A_Q_WIDTH, A_OUT_WIDTH, A_WINDOW, A_CAP, A_SINKS, A_VALUE_DIM,
    A_SLOPES, A_ROUNDED, A_AHEAD, A_DISTANCES, A_FURTHEST, A_CHOSEN, A_CHOSEN_STRIDE, A_LIST, A_LIST_HEADS,
    A_BESIDE, A_BLOCK, A_SINK_STRIDE, A_STEP, A_RELATIVE, A_RELATIVE_STRIDE, A_RELATIVE_COUNT, A_PROFILES,
    A_EXTENT,
) = range(37)  # fmt: skip
"""Queries: address, stride. The layer's keys, its values. Output: address, stride. Heads, key/value heads,
head dimension, scale (float64). Partial results. Bytes of a head's keys and values in a page. Widths of a
query and an output (`widths`). Window, soft cap (float64; 0: none), sinks (0: none). Numbers of a head's
output. ALiBi's slopes (0: none) and `rounded_slopes` (float64) of `AttentionShape`. How many later positions
a query sees. What is added by distance (0: nothing; see `distance_table`), and the furthest. A negative
window is one that starts over at its multiples. Lists of chosen positions (0: all count), their stride, the
positions in one, and the heads that share it. Keys that are looked at after those of the window (0: none),
of the chosen positions or the last ones of blocks of this many. The sinks' stride from row to row, 0 if all
have the same. How far after the step block the one is that counts (`step_block.CROSS`). Strides are in bytes.
The kernels of a `RelativeBias` have more: its weights, their stride, those of a head; its profiles (see
`profile_table`) and their extent.
"""
EDGE = 16
"""Columns at either end of `distance_table` and `profile_table` that hold what further keys have: those of
one vector.
"""
