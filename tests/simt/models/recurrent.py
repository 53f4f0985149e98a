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
    key_dim: int, value_dim: int, beta_stride: int, bound: float,
) -> None:  # fmt: skip
    heads, tiles, padded, kind = blocks[1], blocks[0], (key_dim + 3) // 4 * 4, constants["DECAYS"]
    chosen = memory.view(key_heads, np.int32, heads)
    keys = (int(chosen.max()) + 1) * key_dim
    steps, wide = heads * (1, key_dim, value_dim)[kind], heads * value_dim
    rates = memory.view(rate, np.float32, key_dim * wide if kind == 2 else heads)
    rates = rates.reshape(key_dim, heads, value_dim).swapaxes(0, 1) if kind == 2 else rates[:, None, None]
    shifts = memory.view(shift, np.float32, steps)
    skips = np.zeros((heads, 1), np.float32)
    if skip:
        skips = memory.view(skip, np.float32, wide if kind == 2 else heads).reshape(heads, -1)

    def numbers(at: int, stride: int, row: int, parts: int) -> Any:
        return memory.view(at + row * stride, np.float32, parts)

    def filled(x: Any, rest: float, *sizes: int) -> Any:
        """x and, past its end, what the state's padding gets."""
        out = np.full((heads, *sizes), rest, np.float32)
        out[tuple(slice(size) for size in x.shape)] = x
        return out

    for first, count, before, after in _runs(memory, positions, states, runs, rows):
        size, columns = heads * tiles * padded * 32, 32 * tiles
        s = np.zeros((heads, padded, columns), np.float32)
        if before >= 0:
            kept = memory.view(state + before * state_bytes, np.float32, size)
            s[:] = kept.reshape(heads, tiles, padded, 32).swapaxes(1, 2).reshape(s.shape)
        for row in range(first, first + count):
            query, key = (
                filled(numbers(at, stride, row, keys).reshape(-1, key_dim)[chosen], 0, padded)
                for at, stride in ((q, q_stride), (k, k_stride))
            )
            value = filled(numbers(v, v_stride, row, wide).reshape(heads, value_dim), 0, columns)
            x = (numbers(decay, decay_stride, row, steps) + shifts).astype(np.float64).reshape(heads, -1)
            step = 1 / (1 + np.exp(-x)) if constants["UNIT"] else np.logaddexp(0, x)
            factor = np.exp(rates * (step[:, None] if kind == 2 else step[:, :, None]))
            if constants["BOUND"]:
                factor = np.exp(-bound / (1 + np.exp(rates * x[:, :, None])))
            strength = step
            if beta:
                strength = 1 / (1 + np.exp(-numbers(beta, beta_stride, row, heads)[:, None]))
            if constants["UNIT"]:
                begins = row == first and before < 0
                strength = np.ones(step.shape) if begins else np.sqrt(1 - factor[:, 0] ** 2)
            if kind == 1:
                factor = filled(factor, 0, padded, 1)
            elif kind == 2:
                factor, strength = filled(factor, 1, padded, columns), filled(strength, 0, columns)
            s = s * factor.astype(np.float32)
            change = value - np.einsum("hkv,hk->hv", s, key) if constants["DELTA"] else value
            s = s + key[:, :, None] * (change * strength.astype(np.float32))[:, None]
            out = np.einsum("hkv,hk->hv", s, query)[:, :value_dim] + skips * value[:, :value_dim]
            numbers(y, v_stride, row, wide)[:] = out.reshape(-1)
        kept = s.reshape(heads, padded, tiles, 32).swapaxes(1, 2)
        memory.view(state + after * state_bytes, np.float32, size)[:] = kept.reshape(-1)


def pool(
    memory: Memory, blocks: Any, constants: Any, values: int, values_stride: int, gates: int,
    gates_stride: int, next_values: int, next_stride: int, next_gates: int, next_gates_stride: int, y: int,
    stride: int, bias: int, width: int, block: int, chunk: int, state: int, state_bytes: int, positions: int,
    states: int, runs: int, rows: int,
) -> None:  # fmt: skip
    series = [(values, values_stride, gates, gates_stride)]
    series += [(next_values, next_stride, next_gates, next_gates_stride)] if constants["SERIES"] == 2 else []
    added = memory.view(bias, np.float32, len(series) * block * width).reshape(-1, block, width)
    wide, sets = stride // 4, constants["SETS"]

    def whole(of: Any) -> Any:
        """The largest gate, sum of weights and weighted sum of positions (gates, values), or of none."""
        if not len(of):
            return np.array([np.full(width, constants["NOTHING"]), np.zeros(width), np.zeros(width)])
        top = of[:, 0].max(0)
        shares = np.exp(of[:, 0] - top) * of[:, 1]
        return np.array([top, shares.sum(0), (shares * of[:, 2]).sum(0)])

    for first, count, place, _ in runs_of(memory, positions, 0, runs, rows):
        table = memory.view(states + 32 * first, np.int32, 8)
        before, after = int(table[place % 4]), int(table[4 + (place + count) % 4])
        kept = [whole([])] * sets  # each set as one position with a weight
        if before >= 0:
            found = memory.view(state + before * state_bytes, np.float32, 3 * sets * wide)
            kept = list(found.reshape(sets, 3, wide)[:, :, :width].astype(np.float64))
            kept = [np.array([top, weight, some / np.maximum(weight, 1e-30)]) for top, weight, some in kept]
        parts = [[each] for each in kept]
        for t in range(count):
            at = (place + t) % block
            if at == 0:
                parts = [[], [], parts[1]] if sets == 3 else [[]]
            for number, (value, value_stride, gate, gate_stride) in enumerate(series):
                g = memory.view(gate + (first + t) * gate_stride, np.float32, width).astype(np.float64)
                v = memory.view(value + (first + t) * value_stride, np.float32, width).astype(np.float64)
                parts[number].append(np.array([g + added[number, at], np.ones(width), v]))
            seen = whole(np.array([*parts[0], *(parts[2] if sets == 3 else [])]))
            memory.view(y + (first + t) * stride, np.float32, width)[:] = seen[2] / seen[1]
        out = memory.view(state + after * state_bytes, np.float32, 3 * sets * wide).reshape(sets, 3, wide)
        for number, each in enumerate(parts):
            out[number, :, :width] = whole(np.array(each))


def generalised_delta(
    memory: Memory, blocks: Any, constants: Any, r: int, r_stride: int, k: int, k_stride: int, v: int,
    v_stride: int, decay: int, decay_stride: int, rate: int, rate_stride: int, y: int, y_stride: int,
    removal: int, mixing: int, bonus: int, state: int, state_bytes: int, positions: int, states: int,
    runs: int, rows: int, shared_by: int, key_dim: int, value_dim: int,
) -> None:  # fmt: skip
    heads, tiles, padded, rule = blocks[1], blocks[0], (key_dim + 3) // 4 * 4, constants["RULE"]
    groups, columns = heads // shared_by, 32 * tiles

    def numbers(
        at: int, stride: int, row: int, count: int = heads, dim: int = key_dim, size: int = padded
    ) -> Any:
        """(H, size) of `count` heads: what the state's padding gets are zeros."""
        out = np.zeros((heads, size))
        found = memory.view(at + row * stride, np.float32, count * dim).reshape(count, dim)
        out[:, :dim] = np.repeat(found, heads // count, 0)
        return out

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + np.exp(-x))

    for first, count, before, after in _runs(memory, positions, states, runs, rows):
        size = heads * tiles * padded * 32
        s = np.zeros((heads, padded, columns))
        if before >= 0:
            kept = memory.view(state + before * state_bytes, np.float32, size)
            s[:] = kept.reshape(heads, tiles, padded, 32).swapaxes(1, 2).reshape(s.shape)
        for row in range(first, first + count):
            query, given = numbers(r, r_stride, row), numbers(decay, decay_stride, row)
            key = numbers(k, k_stride, row, groups)
            value = numbers(v, v_stride, row, groups, value_dim, columns)
            before_row = np.einsum("hkv,hk->hv", s, query)
            if rule == "delta":
                a, taken = sigmoid(numbers(rate, rate_stride, row)), key * numbers(removal, 0, 0)
                taken = taken / np.maximum(np.sqrt((taken**2).sum(1, keepdims=True)), 1e-12)
                said = np.einsum("hkv,hk->hv", s, taken)
                key = key * (1 + (a - 1) * numbers(mixing, 0, 0))
                s = s * np.exp(-np.exp(-0.5) * sigmoid(given))[:, :, None]
                s = s - (a * taken)[:, :, None] * said[:, None]
            else:
                left = np.exp(-np.exp(given))
                s, key = s * left[:, :, None], key * (1 - left) if rule == "gated" else key
            s = s + key[:, :, None] * value[:, None]
            s = s.astype(np.float32).astype(np.float64)  # the same in every cut
            out = before_row if rule == "bonus" else np.einsum("hkv,hk->hv", s, query)
            weight = np.zeros((heads, 1))
            if rule != "gated":
                weight = (query * key * numbers(bonus, 0, 0)).sum(1, keepdims=True)
            results = memory.view(y + row * y_stride, np.float32, 2 * heads * value_dim)
            results[:] = np.stack([out, weight * value])[:, :, :value_dim].reshape(-1)
        kept = s.reshape(heads, padded, tiles, 32).swapaxes(1, 2)
        memory.view(state + after * state_bytes, np.float32, size)[:] = kept.reshape(-1)


def weighted_mean(
    memory: Memory, blocks: Any, constants: Any, k: int, k_stride: int, v: int, v_stride: int, y: int,
    stride: int, decay: int, bonus: int, width: int, state: int, state_bytes: int, positions: int,
    states: int, runs: int, rows: int,
) -> None:  # fmt: skip
    fall, own, wide = (*(memory.view(at, np.float32, width) for at in (decay, bonus)), stride // 4)
    for first, count, before, after in _runs(memory, positions, states, runs, rows):
        total, weight, most = np.zeros(width), np.zeros(width), np.full(width, constants["NO_WEIGHT"])
        if before >= 0:
            kept = memory.view(state + before * state_bytes, np.float32, 3 * wide).reshape(3, wide)
            total, weight, most = kept[:, :width].astype(np.float64)
        for row in range(first, first + count):
            key, value = (
                memory.view(at + row * each, np.float32, width).astype(np.float64)
                for at, each in ((k, k_stride), (v, v_stride))
            )
            top = np.maximum(most, key + own)
            shares = np.exp(most - top), np.exp(key + own - top)
            mean = (shares[0] * total + shares[1] * value) / (shares[0] * weight + shares[1])
            memory.view(y + row * stride, np.float32, width)[:] = mean
            top = np.maximum(most + fall, key)
            shares = np.exp(most + fall - top), np.exp(key - top)
            total, weight = shares[0] * total + shares[1] * value, shares[0] * weight + shares[1]
            kept = np.array([total, weight, top]).astype(np.float32)  # the same in every cut
            total, weight, most = kept.astype(np.float64)
        out = memory.view(state + after * state_bytes, np.float32, 3 * wide).reshape(3, wide)
        out[:, :width] = total, weight, most


MODELS: dict[str, Callable[..., None]] = {
    "pool.pool": pool,
    "convolution.convolve": convolve,
    "generalised_delta.generalised_delta": generalised_delta,
    "recurrent.linear_attention": linear_attention,
    "weighted_mean.weighted_mean": weighted_mean,
}
