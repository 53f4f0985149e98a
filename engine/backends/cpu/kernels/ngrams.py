"""The rows of a table that belong to the n-grams of tokens. Formulas: see `NGrams`."""

from __future__ import annotations

from engine.backends.cpu.codegen.memory_ops import ld_f32, ld_i32, ld_i64, st_f32, st_i32
from engine.backends.cpu.lowering.call import Argument, Calls, Table
from engine.backends.cpu.runtime.step_block import TOKENS
from engine.backends.graph.ngrams import NGramRows, TokenNumbers

(T_Y, T_STRIDE, T_WIDTH) = range(3)
(N_X, N_X_STRIDE, N_Y, N_Y_STRIDE, N_SIZE, N_HEADS, N_RESET, N_OUTSIDE, N_BASE, N_NUMBERS) = range(10)
"""Then `N_NUMBERS`: the multipliers, the lengths, the counts and the offsets."""


def token_numbers(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: its token's number plus 1 in all columns, padded with zeros."""
    width, stride = ld_i64(args + 8 * T_WIDTH), ld_i64(args + 8 * T_STRIDE)
    number = ld_i32(ld_i64(step + 8 * TOKENS) + 4 * tile) + 1
    y = ld_i64(args + 8 * T_Y) + tile * stride
    for k in range(stride // 4):
        st_f32(y + 4 * k, number * 1.0 if k < width else 0.0)


def ngram_rows(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row; what follows its numbers is 0."""
    x = ld_i64(args + 8 * N_X) + tile * ld_i64(args + 8 * N_X_STRIDE)
    stride = ld_i64(args + 8 * N_Y_STRIDE)
    y = ld_i64(args + 8 * N_Y) + tile * stride
    heads, reset = ld_i64(args + 8 * N_HEADS), ld_i64(args + 8 * N_RESET)
    outside = ld_i64(args + 8 * N_OUTSIDE)
    base, multipliers = ld_i64(args + 8 * N_BASE), args + 8 * N_NUMBERS
    lengths = multipliers + 8 * ld_i64(args + 8 * N_SIZE)
    counts = lengths + 8 * heads
    offsets = counts + 8 * heads
    for i in range(heads):
        count = ld_i64(counts + 8 * i)
        mixed, power, over = (int(ld_f32(x)) - 1) * ld_i64(multipliers), 1, 0
        for n in range(1, ld_i64(lengths + 8 * i)):
            token = int(ld_f32(x + 4 * n)) - 1
            if token < 0 or token == reset:
                over = 1
            product = (outside if over else token) * ld_i64(multipliers + 8 * n)
            if base:
                power = power * base % count
                mixed += product * power
            else:
                mixed ^= product
        st_i32(y + 4 * i, mixed % count + ld_i64(offsets + 8 * i))
    for i in range(heads, stride // 4):
        st_i32(y + 4 * i, 0)


def _token_numbers(calls: Calls, node: TokenNumbers) -> None:
    calls.each_row("token_numbers", [node.y, node.y.stride, node.y.width], [], node.y)


def _ngram_rows(calls: Calls, node: NGramRows) -> None:
    x, y, ngrams = node.x, node.y, node.ngrams
    arguments: list[Argument] = [
        x, x.stride, y, y.stride, ngrams.size, ngrams.heads, ngrams.reset, ngrams.outside, ngrams.base,
        *ngrams.multipliers, *ngrams.lengths, *ngrams.counts, *ngrams.offsets,
    ]  # fmt: skip
    calls.each_row("ngram_rows", arguments, [x], y)


LOWER: Table = {TokenNumbers: _token_numbers, NGramRows: _ngram_rows}
