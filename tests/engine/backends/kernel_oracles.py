"""Random matrices in each GGUF type with their exact float32 values, and a float64 attention: oracles for the kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gguf
import numpy as np

WEIGHT_TYPES = ("Q4_0", "Q4_1", "Q8_0", "Q6_K", "F32", "F16", "BF16", "Q5_0")
"""Every type with a layout of its own, and one (Q5_0) that is dequantised at load."""


@dataclass
class Matrix:
    """A `RawTensor` made of random file bytes; `values` is what the `gguf` package says they mean."""

    type: str
    shape: tuple[int, ...]
    seed: int
    name: str = "test.weight"
    data: np.ndarray[Any, Any] = field(init=False)
    values: np.ndarray[Any, Any] = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        n, k = self.shape
        plain = rng.standard_normal(self.shape).astype(np.float32)
        kind = gguf.GGMLQuantizationType[self.type]
        if self.type == "Q6_K":  # the package can only read this type, so its bytes are drawn
            raw = rng.integers(0, 256, (n, k // 256, 210), dtype=np.uint8)
            raw[:, :, 208:] = rng.uniform(1e-4, 2e-3, (n, k // 256, 1)).astype(np.float16).view(np.uint8)
            packed = raw.reshape(n, -1)
        else:
            packed = gguf.quants.quantize(plain, kind)
        self.data = np.ascontiguousarray(packed).reshape(-1).view(np.uint8)
        self.values = np.asarray(gguf.quants.dequantize(packed, kind), np.float32).reshape(self.shape)

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    def dequantise(self) -> np.ndarray[Any, Any]:
        return self.values


def causal_attention(q: np.ndarray[Any, Any], k: np.ndarray[Any, Any], v: np.ndarray[Any, Any], scale: float) -> np.ndarray[Any, Any]:
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
    first, second = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    out = x.astype(np.float64)
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out
