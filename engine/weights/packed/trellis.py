"""The trellis codes of EXL3: windows of 16 bits in a stream, and the codebooks that give them values.

A tile of 16 inputs x 16 outputs is a circular stream of 256 b bits in b words of 32 bits for each 32 values,
highest bit first. Value t belongs to the window of the 16 bits that end where the b bits numbered t end, so
that neighbours share 16 - b bits. A window x, and 32-bit numbers that wrap around, give the fp16 value

    "3inst", "mcg"    low + high half of ((x * m + a) & 0x8FFF8FFF) ^ 0x3B603B60, each as an fp16 number
    "mul1"            k (1024 + the sum of the four bytes of x * m) + c

rounded once. Value t = 8 l + j of a tile is that of input 2 (l % 4) + j % 2 + 8 (j / 2 % 2) and output
l / 4 + 8 (j / 4), as tensor cores take them. With the Walsh-Hadamard matrix H of 128 (Sylvester's order,
entries 1 and -1) on blocks of 128 inputs and outputs, and the values v, the weights are

    w[n, k] = svh[n] suh[k] / 128 * sum over i, j of H[k, i] H[n, j] v[i, j].

Source: ExLlamaV3's matrix class, its codebooks and kernels (facts only).
"""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.weights.format import Floats

Words = npt.NDArray[np.uint32]

TILE = 16
BLOCK = 128
"""Inputs and outputs of a transformed block."""
MULTIPLIERS = {"3inst": 89226354, "mcg": 0xCBAC1FED, "mul1": 0x83DCD12D}
"""Each codebook's m."""
_ADDEND = {"3inst": 64248484, "mcg": 0}
_MUL1_STEP, _MUL1_START = (np.array(bits, np.uint16).view(np.float16) for bits in (0x1EEE, 0xC931))
_THREADS = min(16, os.cpu_count() or 1)


@functools.cache
def codebook(name: str) -> Floats:
    """The value of each window, float32 (65536,), read-only."""
    product = np.arange(1 << 16, dtype=np.uint32) * np.uint32(MULTIPLIERS[name])
    if name == "mul1":
        total = 1024.0 + product.view(np.uint8).reshape(-1, 4).sum(1)
        values = (total * float(_MUL1_STEP) + float(_MUL1_START)).astype(np.float16)
    else:
        mixed = (product + np.uint32(_ADDEND[name])) & np.uint32(0x8FFF8FFF) ^ np.uint32(0x3B603B60)
        halves = mixed.view(np.float16).reshape(-1, 2)
        values = halves[:, 0] + halves[:, 1]
    out: Floats = values.astype(np.float32)
    out.flags.writeable = False
    return out


def decode_blocks(words: Words, name: str, inputs: Floats, outputs: Floats) -> Floats:
    """The weights, float32 (128, K), of 128 outputs: `words` (K / 16, 8, 8 b), contiguous, by the codebook
    `name`; `inputs` are suh (K,), `outputs` svh (128,). K is a multiple of 128. All cores work on it.
    """
    blocks = inputs.size // BLOCK
    out = np.empty((BLOCK, inputs.size), np.float32)
    kernel, table = _kernel(), codebook(name)
    share = -(-blocks // _THREADS)

    def part(first: int) -> None:
        kernel(words, table, inputs, outputs, first, min(first + share, blocks), out)

    if blocks <= share:
        part(0)
        return out
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(part, range(0, blocks, share)))
    return out


def _decode(
    words: Words, table: Floats, inputs: Floats, outputs: Floats, first: int, last: int, out: Floats
) -> None:
    """Blocks `first` to `last` - 1 of `decode_blocks`."""
    bits = words.shape[2] // 8
    order = np.empty(256, np.int64)  # where each value lies in a block of 128 rows
    for t in range(256):
        lane, j = t >> 3, t & 7
        order[t] = 128 * (2 * (lane & 3) + (j & 1) + 4 * (j & 2)) + (lane >> 2) + 8 * (j >> 2)
    flat, other = np.empty(128 * 128, np.float32), np.empty((128, 128), np.float32)
    block, padded = flat.reshape(128, 128), np.empty(1 + words.shape[2], np.uint32)
    for number in range(first, last):
        for place in range(64):
            row, column = place >> 3, place & 7
            padded[0] = words[8 * number + row, column, words.shape[2] - 1]
            padded[1:] = words[8 * number + row, column]
            base = 2048 * row + 16 * column
            for t in range(256):
                start = (t + 1) * bits + 16  # the window begins here, counted from padded[0]
                at = start >> 5
                both = (np.uint64(padded[at]) << np.uint64(32)) | np.uint64(padded[min(at + 1, 8 * bits)])
                window = (both >> np.uint64(48 - (start & 31))) & np.uint64(0xFFFF)
                flat[base + order[t]] = table[window]
        _transform(block)
        for n in range(128):
            for k in range(128):
                other[n, k] = block[k, n]
        _transform(other)
        for n in range(128):
            scale = outputs[n] * np.float32(1 / 128)
            for k in range(128):
                out[n, 128 * number + k] = other[n, k] * inputs[128 * number + k] * scale


def _transform(x: Floats) -> None:
    """x (128, 128) becomes H x."""
    half = 1
    while half < 128:
        for i in range(128):
            if i & half == 0:
                for k in range(128):
                    a, b = x[i, k], x[i + half, k]
                    x[i, k] = a + b
                    x[i + half, k] = a - b
        half *= 2


@functools.cache
def _kernel() -> Any:
    """`_decode`, compiled, or kept in the user's cache if that is writable."""
    from types import FunctionType

    from numba import types

    from engine.platform import compiled
    from engine.platform.folders import code_folder

    def read(kind: Any, dimensions: int) -> Any:
        return types.Array(kind, dimensions, "C", readonly=True)

    floats = read(types.float32, 1)
    signature = types.void(
        read(types.uint32, 3), floats, floats, floats, types.int64, types.int64, types.float32[:, ::1]
    )
    options = {"nogil": True, "error_model": "numpy"}
    folder = code_folder(f"trellis-{compiled.sources_hash([Path(__file__)])}")
    with compiled.cached_in(folder):
        found = compiled.cached_function(_decode, signature, options) if folder is not None else None
        if found is not None:
            return found
        transform = compiled.part(_transform, types.void(types.float32[:, ::1]), options)
        made = FunctionType(_decode.__code__, {**globals(), "_transform": transform}, _decode.__name__)
        return compiled.function(made, signature, options, cache=folder is not None)
