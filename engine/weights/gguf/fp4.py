"""GGUF types of 4-bit floats (E2M1) with 8-bit float scales: MXFP4 and NVFP4.

Source: the OCP Microscaling Formats specification 1.0, and the ggml project's `ggml-common.h` (facts only).
"""

from __future__ import annotations

import numpy as np

from engine.weights.format import Bytes, Floats, Format, nibbles

_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)
"""Twice the value of each nibble; the scales are halved in turn."""


def _e8m0_halves() -> Floats:
    """2^(e - 128) of each byte e."""
    return np.ldexp(np.float32(1), np.arange(256) - 128).astype(np.float32)


def _ue4m3_halves() -> Floats:
    """Half of each byte's unsigned E4M3 value; its highest bit is not looked at, 0 and 127 are 0."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    values = np.where(exponent == 0, mantissa / 1024, (8 + mantissa) * np.exp2(exponent - 11.0))
    values[[0, 127]] = 0
    return values.astype(np.float32)


_MX_SCALES, _NV_SCALES = _e8m0_halves(), _ue4m3_halves()


def _mxfp4(blocks: Bytes) -> Floats:
    """e, 16 bytes of nibbles: 2^(e - 127) q."""
    return _MX_SCALES[blocks[:, :1]] * _E2M1[nibbles(blocks[:, 1:17])]


def _nvfp4(blocks: Bytes) -> Floats:
    """Four scales, then 8 bytes of nibbles for each 16 values: scale q."""
    q = nibbles(blocks[:, 4:36].reshape(-1, 8)).reshape(-1, 4, 16)
    return (_NV_SCALES[blocks[:, :4]][:, :, None] * _E2M1[q]).reshape(-1, 64)


FP4_FORMATS = (Format("MXFP4", 32, 17, _mxfp4), Format("NVFP4", 64, 36, _nvfp4))
