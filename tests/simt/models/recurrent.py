from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.simt.interpreter import Memory
from tests.simt.models.runs import runs_of


def _runs(
    memory: Memory, positions: int, states: int, runs: int, rows: int
) -> Iterator[tuple[int, int, int, int]]:
    """First row, rows, and the states before and after each run."""
    for first, count, place, _ in runs_of(memory, positions, 0, runs, rows):
        table = memory.view(states + 32 * first, np.int32, 8)
        yield first, count, int(table[place % 4]), int(table[4 + (place + count) % 4])


def convolve(
    memory: Memory, blocks: Any, constants: Any, x: int, y: int, stride: int, weight: int, bias: int,
    width: int, taps: int, state: int, state_bytes: int, positions: int, states: int, runs: int, rows: int,
) -> None:  # fmt: skip
    factors = memory.view(weight, np.float32, taps * width).reshape(taps, width)
    wide = stride // 4
    for first, count, before, after in _runs(memory, positions, states, runs, rows):
        old = np.zeros((taps - 1, width), np.float32)
        if before >= 0:
            place = state + before * state_bytes
            old[:] = memory.view(place, np.float32, (taps - 1) * wide).reshape(-1, wide)[:, :width]
        new = memory.view(x + first * stride, np.float32, count * wide).reshape(count, wide)[:, :width]
        text = np.concatenate([old, new])
        out = np.zeros((count, width), np.float32)
        if bias:
            out += memory.view(bias, np.float32, width)
        for tap in range(taps):
            out += factors[tap] * text[tap : tap + count]
        memory.view(y + first * stride, np.float32, count * wide).reshape(count, wide)[:, :width] = out
        place = state + after * state_bytes
        kept = memory.view(place, np.float32, (taps - 1) * wide).reshape(-1, wide)
        kept[:, :width] = text[count:]


def linear_attention(
    memory: Memory, blocks: Any, constants: Any, q: int, q_stride: int, k: int, k_stride: int, v: int,
    v_stride: int, y: int, decay: int, decay_stride: int, beta: int, rate: int, shift: int, skip: int,
    state: int, state_bytes: int, positions: int, states: int, runs: int, rows: int, key_heads: int,
    key_dim: int, value_dim: int,
) -> None:  # fmt: skip
    heads, tiles, padded = blocks[1], blocks[0], (key_dim + 3) // 4 * 4
    chosen = memory.view(key_heads, np.int32, heads)
    rates, shifts = (memory.view(at, np.float32, heads) for at in (rate, shift))
    skips = memory.view(skip, np.float32, heads) if skip else np.zeros(heads, np.float32)

    def numbers(at: int, stride: int, row: int, parts: int) -> Any:
        return memory.view(at + row * stride, np.float32, parts)

    for first, count, before, after in _runs(memory, positions, states, runs, rows):
        size = heads * tiles * padded * 32
        s = np.zeros((heads, tiles, padded, 32), np.float32)
        if before >= 0:
            s[:] = memory.view(state + before * state_bytes, np.float32, size).reshape(s.shape)
        for row in range(first, first + count):
            query, key = (
                numbers(at, stride, row, (chosen.max() + 1) * key_dim).reshape(-1, key_dim)[chosen]
                for at, stride in ((q, q_stride), (k, k_stride))
            )
            given = np.zeros((heads, tiles * 32), np.float32)
            value = numbers(v, v_stride, row, heads * value_dim).reshape(heads, value_dim)
            given[:, :value_dim] = value
            given = given.reshape(heads, tiles, 32)
            x = (numbers(decay, decay_stride, row, heads) + shifts).astype(np.float64)
            step = np.logaddexp(0, x)
            strength = step
            if beta:
                strength = 1 / (1 + np.exp(-numbers(beta, decay_stride, row, heads).astype(np.float64)))
            s *= np.exp(rates * step).astype(np.float32)[:, None, None, None]
            change = given
            if constants["DELTA"]:
                change = given - np.einsum("hbkv,hk->hbv", s[:, :, :key_dim], key)
            change = change * strength.astype(np.float32)[:, None, None]
            s[:, :, :key_dim] += key[:, None, :, None] * change[:, :, None, :]
            out = np.einsum("hbkv,hk->hbv", s[:, :, :key_dim], query).reshape(heads, -1)[:, :value_dim]
            out += skips[:, None] * value
            numbers(y, v_stride, row, heads * value_dim)[:] = out.reshape(-1)
        memory.view(state + after * state_bytes, np.float32, size)[:] = s.reshape(-1)


MODELS: dict[str, Callable[..., None]] = {
    "convolution.convolve": convolve,
    "recurrent.linear_attention": linear_attention,
}
