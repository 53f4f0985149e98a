"""Packed activations in NumPy (`engine.backends.cuda.kernels.packed_activations` says what they are)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.simt.interpreter import Memory


def bf16_bits(x: Any) -> Any:
    """uint16, rounded to the nearest, of two the even one."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), rounded)


def bf16_values(bits: Any) -> Any:
    """float32 of uint16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def encoded(kind: str, x: Any) -> Any:
    """The packed activations of a row (K,), as bytes."""
    x = np.pad(np.asarray(x, np.float32), (0, -len(x) % 64))
    with np.errstate(all="ignore"):
        if kind == "bf16x2":
            first = bf16_bits(x)
            return np.concatenate([first, bf16_bits(x - bf16_values(first))]).view(np.uint8)
        blocks = x.reshape(-1, 64)
        top = np.abs(blocks).max(axis=1)
        exponent = np.frexp(top)[1].astype(np.int64) - 1
        finite, empty = np.isfinite(top), top < np.float32(2.0**-100)
        kept = finite & ~empty
        exponent[~kept] = 14
        fp16 = np.where(kept[:, None], np.ldexp(blocks, (14 - exponent)[:, None]), 0).astype(np.float16)
        scales = np.where(
            kept, np.ldexp(np.float32(1), exponent - 14), np.where(empty, np.float32(0), np.float32(np.nan))
        )
    return np.concatenate([fp16.reshape(-1).view(np.uint8), scales.astype(np.float32).view(np.uint8)])


def decoded(kind: str, packed: Any, width: int) -> Any:
    """Packed activations (bytes) as float32 (width,); their padding must be zeros."""
    whole = -(-width // 64) * 64
    if kind == "bf16x2":
        fp16 = packed[: 4 * whole].view(np.uint16)
        x = bf16_values(fp16[:whole]) + bf16_values(fp16[whole:])
    else:
        scales = packed[2 * whole : 2 * whole + whole // 16].view(np.float32)
        x = packed[: 2 * whole].view(np.float16).astype(np.float32) * np.repeat(scales, 64)
    assert not x[width:].any() or not np.isfinite(x).all()
    return x[:width]


def write_packed(memory: Memory, address: int, kind: str, x: Any) -> None:
    """Writes a row's packed activations to an address; `kind` "none" is nothing."""
    if kind != "none":
        packed = encoded(kind, x)
        memory.view(address, np.uint8, len(packed))[:] = packed


def pack(
    memory: Memory, blocks: Any, constants: Any, x: int, x_stride: int, to: int, to_stride: int, width: int
) -> None:
    for row in range(blocks[0]):
        write_packed(
            memory,
            to + row * to_stride,
            constants["FORM"],
            memory.view(x + row * x_stride, np.float32, width),
        )


MODELS: dict[str, Callable[..., None]] = {"packed_activations_write.pack": pack}
