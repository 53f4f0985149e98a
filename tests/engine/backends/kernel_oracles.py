"""Random matrices in each GGUF type with their exact float32 values, and a float64 attention: oracles for
the kernels.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field
from typing import Any

import gguf
import numpy as np
import pytest

from engine.backends.cpu.codegen.simd_bytes import LIMIT
from engine.backends.cpu.kernels.linear.panel_format import PAIRS
from engine.backends.cpu.runtime.step_block import SMALL_BATCH
from engine.platform.levels import LEVELS

NUMBERS_AT = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "IQ4_NL": (0,), "MXFP4": (),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_XS": (0,),
    "TQ1_0": (52,), "TQ2_0": (64,), "IQ3_S": (0,), "IQ3_XXS": (0,), "IQ2_S": (0,), "IQ2_XS": (0,),
    "IQ2_XXS": (0,), "IQ1_M": (), "IQ1_S": (0,), "NVFP4": (),
}  # fmt: skip
"""Where the fp16 numbers of each block type are in its block; all other bytes may be anything."""
FALLBACK_TYPES = ("NVFP4",)
"""Types that are dequantised to F16 when nothing has made another type of them before."""
WEIGHT_TYPES = (*(kind for kind in NUMBERS_AT if kind not in FALLBACK_TYPES), "F32", "F16", "BF16")
"""Every type with a layout of its own."""

SLOW_TYPES = (
    "Q4_0", "Q5_1", "Q3_K", "Q5_K", "IQ4_NL", "TQ1_0", "TQ2_0", "IQ3_XXS", "IQ2_XS", "IQ2_XXS", "IQ1_M",
    "IQ1_S",
)  # fmt: skip
"""Those that share their code with others."""

WEIGHT_CASES = [
    pytest.param(kind, marks=[pytest.mark.slow] if kind in SLOW_TYPES else []) for kind in WEIGHT_TYPES
]
"""The same as cases of tests that compile all of a type's kernels."""

OTHER_CPUS = {
    "generic": "",
    "core2": "+ssse3",
    "haswell": "+avx,+avx2,+fma,+f16c,+ssse3",
    "alderlake": "+avx,+avx2,+fma,+f16c,+ssse3,+avxvnni",
    "x86-64-v4": next(level.flags for level in LEVELS if level.name == "x86-64-v4-vnni"),
}
"""Features by the name of a CPU that code can be made for on another."""


def other_cpu(name: str, folders: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that makes code for one of `OTHER_CPUS`; what one compiles, the next of
    the same name takes.
    """
    cache = folders.getbasetemp() / f"kernels-{name}"
    return {
        **os.environ,
        "NUMBA_CPU_NAME": name,
        "NUMBA_CPU_FEATURES": OTHER_CPUS[name],
        "INGLENOOK_CACHE": str(cache),
    }


def unit_of(kind: str) -> int:
    """Values of a block in the file."""
    return int(gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][0])


INTEGER = frozenset(NUMBERS_AT) - set(FALLBACK_TYPES)
"""Types whose products take activations in 16 bits."""


def _rounded(x: np.ndarray[Any, Any], largest: int) -> np.ndarray[Any, Any]:
    """Of each 32 activations of (T, K), float32, the multiples of the largest / `largest`, float64."""
    rows, width = x.shape
    full = np.zeros((rows, -(-width // 32), 32), np.float32)
    full.reshape(rows, -1)[:, :width] = x
    top = np.abs(full).max(-1, keepdims=True)
    there = top > 1e-30
    inverse = np.where(there, np.float32(largest) / np.where(there, top, np.float32(1)), np.float32(0))
    whole = np.rint(full * inverse).astype(np.float64)
    out: np.ndarray[Any, Any] = (whole * (top * np.float32(1.0 / largest))).reshape(rows, -1)[:, :width]
    return out


def sixteen_bits(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Activations (T, K), float32, as products with whole numbers see them, float64."""
    return _rounded(x, LIMIT)


def eight_bits(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same in long steps of a backend with 8 bits for prompts."""
    return _rounded(x, 127)


def seen(x: np.ndarray[Any, Any], kind: str, rows: int, prompt_bits: int = 16) -> np.ndarray[Any, Any]:
    """Activations float32 as a step of so many rows takes them into a product with a matrix of this type,
    float64.
    """
    if kind in INTEGER and prompt_bits == 8 and rows > SMALL_BATCH:
        return eight_bits(x)
    return sixteen_bits(x) if kind in INTEGER and (PAIRS or rows <= SMALL_BATCH) else x.astype(np.float64)


@dataclass
class Matrix:
    """A `RawTensor` made of random file bytes; `values` is what the `gguf` package says they mean.

    `low` .. `high` are the magnitudes of the blocks' fp16 numbers, drawn evenly in their logarithm and of
    either sign, and as powers of two those of MXFP4.
    """

    type: str
    shape: tuple[int, ...]
    seed: int
    name: str = "test.weight"
    low: float = 2e-3
    high: float = 4e-3
    data: np.ndarray[Any, Any] = field(init=False)
    values: np.ndarray[Any, Any] = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        n, k = self.shape
        kind = gguf.GGMLQuantizationType[self.type]
        size, width = gguf.GGML_QUANT_SIZES[kind]
        if self.type in NUMBERS_AT:
            packed = rng.integers(0, 256, (n, k // size, width), dtype=np.uint8)
            for at in NUMBERS_AT[self.type]:
                numbers = np.exp(
                    rng.uniform(np.log(self.low), np.log(self.high), packed.shape[:2])
                ) * rng.choice([-1, 1], packed.shape[:2])
                packed[:, :, at : at + 2] = numbers.astype(np.float16)[..., None].view(np.uint8)
            if self.type == "IQ1_M":  # the four 4 bits of d are the highest of the last eight bytes' pairs
                numbers = np.exp(rng.uniform(np.log(self.low), np.log(self.high), packed.shape[:2]))
                bits = numbers.astype(np.float16).view(np.uint16)[..., None] >> np.array(
                    [0, 4, 8, 12], np.uint16
                )
                at = slice(49, None, 2)
                packed[:, :, at] = packed[:, :, at] & 15 | (bits.astype(np.uint8) & 15) << 4
            if self.type == "MXFP4":
                first, last = (round(np.log2(v)) + 128 for v in (self.low, self.high))
                packed[:, :, 0] = rng.integers(first, last, packed.shape[:2], endpoint=True)
            packed = packed.reshape(n, -1)
        else:
            packed = gguf.quants.quantize(rng.standard_normal(self.shape).astype(np.float32), kind)
        self.data = np.ascontiguousarray(packed).reshape(-1).view(np.uint8)
        self.values = np.asarray(gguf.quants.dequantize(packed, kind), np.float32).reshape(self.shape)
        if self.type in FALLBACK_TYPES:
            self.values = self.values.astype(np.float16).astype(np.float32)

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    def dequantise(self) -> np.ndarray[Any, Any]:
        return self.values

    def part(self, index: int) -> Matrix:
        raise AssertionError("a matrix has no parts")

    def rows(self, start: int, stop: int) -> Matrix:
        return self.take(np.arange(start, stop))

    def take(self, indices: Any) -> Matrix:
        other = copy.copy(self)
        other.data = self.data.reshape(self.shape[0], -1)[indices].reshape(-1)
        other.values = self.values[indices]
        other.shape = other.values.shape
        return other


def causal_attention(
    q: np.ndarray[Any, Any], k: np.ndarray[Any, Any], v: np.ndarray[Any, Any], scale: float
) -> np.ndarray[Any, Any]:
    """(T, H, D), (T, G, D), (T, G, D) to (T, H, D), float64."""
    rows, heads = q.shape[:2]
    out = np.zeros_like(q, dtype=np.float64)
    for h in range(heads):
        g = h // (heads // k.shape[1])
        scores = q[:, h].astype(np.float64) @ k[:, g].T * scale
        scores[np.triu_indices(rows, 1)] = -np.inf
        weights = np.exp(scores - scores.max(1, keepdims=True))
        out[:, h] = weights / weights.sum(1, keepdims=True) @ v[:, g]
    return out


def rotate(x: np.ndarray[Any, Any], angles: np.ndarray[Any, Any], interleaved: bool) -> np.ndarray[Any, Any]:
    """Rotary embedding of (T, H, D) by angles (T, D / 2), float64."""
    half = angles.shape[1]
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        if interleaved
        else (slice(0, half), slice(half, 2 * half))
    )
    out = x.astype(np.float64)
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out
