"""Types of plain numbers: floats of 8 to 64 bits, integers and bools.

The 8-bit floats are those of arXiv 2209.05433: E4M3 has no infinities and one NaN for each sign, E5M2 is
IEEE-like. E8M0 is a power of two (OCP Microscaling).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.weights.format import Bytes, Floats, Format


def _numbers(dtype: str) -> Callable[[Bytes], Floats]:
    def decode(blocks: Bytes) -> Floats:
        return np.ascontiguousarray(blocks).view(dtype).astype(np.float32)

    return decode


def _bf16(blocks: Bytes) -> Floats:
    # bfloat16 is the upper half of a float32.
    return (np.ascontiguousarray(blocks).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _e4m3_values() -> Floats:
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    values = np.where(exponent == 0, mantissa / 512, (8 + mantissa) * np.exp2(exponent - 10.0))
    values[(code & 127) == 127] = np.nan
    return (values * np.where(code < 128, 1, -1)).astype(np.float32)


E4M3_VALUES = _e4m3_values()
"""The value of each byte, float32 (256,)."""

# E5M2 is the upper half of a float16.
E5M2_VALUES: Floats = (np.arange(256, dtype=np.uint16) << 8).view(np.float16).astype(np.float32)
"""The value of each byte, float32 (256,)."""


def _e8m0(blocks: Bytes) -> Floats:
    return _E8M0_VALUES[blocks]


def _e4m3(blocks: Bytes) -> Floats:
    return E4M3_VALUES.take(blocks)


def _e5m2(blocks: Bytes) -> Floats:
    return E5M2_VALUES.take(blocks)


_E8M0_VALUES = np.append(np.exp2(np.arange(255) - 127.0), np.nan).astype(np.float32)


def _plain(name: str, dtype: str) -> Format:
    return Format(name, 1, np.dtype(dtype).itemsize, _numbers(dtype), dtype)


FLOAT_FORMATS = (_plain("F32", "<f4"), _plain("F16", "<f2"), Format("BF16", 1, 2, _bf16))

NUMBER_FORMATS = (
    _plain("F64", "<f8"),
    _plain("I8", "|i1"),
    _plain("I16", "<i2"),
    _plain("I32", "<i4"),
    _plain("I64", "<i8"),
)

FOLDER_FORMATS = (
    Format("F8_E4M3", 1, 1, _e4m3),
    Format("F8_E5M2", 1, 1, _e5m2),
    Format("F8_E8M0", 1, 1, _e8m0),
    _plain("U8", "|u1"),
    _plain("U16", "<u2"),
    _plain("U32", "<u4"),
    _plain("U64", "<u8"),
    _plain("BOOL", "|u1"),
)
"""Types that only safetensors files have."""
