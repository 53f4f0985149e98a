"""The block formats of GGUF tensors: sizes, and decoding to float32 in plain NumPy.

A row of K values is K / block_size blocks of block_bytes bytes. Every decoder takes (B, block_bytes) uint8 and gives
(B, block_size) float32, with the arithmetic in float32 in the order of the formulas here, so results are exact.
Source of the layouts: the ggml project's `docs/gguf.md` and `ggml-common.h` (facts only).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_CHUNK_VALUES = 1 << 20
"""Values decoded at a time: temporaries stay below some 20 MB whatever the tensor."""


@dataclass(frozen=True, slots=True)
class Format:
    """One tensor type: `block_size` values are stored in `block_bytes` bytes."""

    name: str
    block_size: int
    block_bytes: int
    decode_blocks: Callable[[Bytes], Floats]

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of `shape`, whose last dimension is a multiple of `block_size`."""
        values = 1
        for size in shape:
            values *= size
        return values // self.block_size * self.block_bytes

    def dequantise(self, data: Bytes, shape: tuple[int, ...]) -> Floats:
        """All values of the flat bytes `data`, float32, in `shape`."""
        blocks = data.reshape(-1, self.block_bytes)
        out = np.empty((blocks.shape[0], self.block_size), np.float32)
        step = max(1, _CHUNK_VALUES // self.block_size)
        # A signalling NaN in a broken file must not become a warning; it stays a NaN.
        with np.errstate(invalid="ignore", over="ignore"):
            for start in range(0, blocks.shape[0], step):
                out[start : start + step] = self.decode_blocks(blocks[start : start + step])
        return out.reshape(shape)


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte `at` of each block: (B, 1)."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """(B, n) bytes to (B, 2n): all low nibbles, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _high_bits(packed: Bytes) -> Bytes:
    """(B, 4) bytes, a little-endian mask of 32 bits: (B, 32) of 0 or 16, the fifth bit of each value."""
    return np.unpackbits(packed, axis=1, bitorder="little") << np.uint8(4)


def _f32(blocks: Bytes) -> Floats:
    return np.ascontiguousarray(blocks).view(np.float32)


def _f16(blocks: Bytes) -> Floats:
    return np.ascontiguousarray(blocks).view(np.float16).astype(np.float32)


def _bf16(blocks: Bytes) -> Floats:
    # bfloat16 is the upper half of a float32.
    return (np.ascontiguousarray(blocks).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: Bytes) -> Floats:
    """d f16, 16 bytes of nibbles: d (q - 8)."""
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:18]).astype(np.int8) - np.int8(8)).astype(np.float32)


def _q4_1(blocks: Bytes) -> Floats:
    """d f16, m f16, 16 bytes of nibbles: d q + m."""
    return _half(blocks, 0) * _nibbles(blocks[:, 4:20]).astype(np.float32) + _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Floats:
    """d f16, 32 fifth bits, 16 bytes of nibbles: d (q - 16)."""
    q = _nibbles(blocks[:, 6:22]) | _high_bits(blocks[:, 2:6])
    return _half(blocks, 0) * (q.astype(np.int8) - np.int8(16)).astype(np.float32)


def _q5_1(blocks: Bytes) -> Floats:
    """d f16, m f16, 32 fifth bits, 16 bytes of nibbles: d q + m."""
    q = _nibbles(blocks[:, 8:24]) | _high_bits(blocks[:, 4:8])
    return _half(blocks, 0) * q.astype(np.float32) + _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Floats:
    """d f16, 32 int8: d q."""
    return _half(blocks, 0) * np.ascontiguousarray(blocks[:, 2:34]).view(np.int8).astype(np.float32)


def _two_bits(packed: Bytes) -> Bytes:
    """(B, 64) bytes of Q2_K / Q3_K to (B, 2, 4, 32): half of the block, bit pair, byte within 32."""
    halves = packed.reshape(-1, 2, 1, 32)
    return (halves >> np.array([0, 2, 4, 6], np.uint8).reshape(4, 1)) & np.uint8(3)


def _q2_k(blocks: Bytes) -> Floats:
    """16 bytes (scale nibble, min nibble), 64 bytes of 2-bit q, d f16, dmin f16: (d scale) q - (dmin min), 16 at a time."""
    scales = blocks[:, :16]
    scale = _half(blocks, 80) * (scales & 15).astype(np.float32)  # (B, 16)
    low = _half(blocks, 82) * (scales >> 4).astype(np.float32)
    q = _two_bits(blocks[:, 16:80]).reshape(-1, 16, 16).astype(np.float32)
    return (scale[:, :, None] * q - low[:, :, None]).reshape(-1, 256)


def _q3_k(blocks: Bytes) -> Floats:
    """32 bytes of third bits, 64 bytes of 2-bit q, 12 bytes of 6-bit scales, d f16: d (scale - 32) (q - 4)."""
    packed = blocks[:, 96:108]
    low = _nibbles(packed[:, :8])  # (B, 16)
    high = (packed[:, None, 8:12] >> np.array([0, 2, 4, 6], np.uint8).reshape(4, 1)) & 3
    scales = (low | (high.reshape(-1, 16) << 4)).astype(np.int8) - np.int8(32)
    scale = _half(blocks, 108) * scales.astype(np.float32)
    third = (blocks[:, None, :32] >> np.arange(8, dtype=np.uint8).reshape(8, 1)) & 1  # (B, 8, 32)
    q = _two_bits(blocks[:, 32:96]).reshape(-1, 8, 32) | (third << 2)
    values = (q.astype(np.int8) - np.int8(4)).reshape(-1, 16, 16).astype(np.float32)
    return (scale[:, :, None] * values).reshape(-1, 256)


def _scales_and_mins(packed: Bytes) -> tuple[Bytes, Bytes]:
    """The 12 bytes of Q4_K / Q5_K: eight 6-bit scales and eight 6-bit mins, (B, 8) each."""
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (third & 15) | ((first >> 6) << 4)], axis=1)
    mins = np.concatenate([second & 63, (third >> 4) | ((second >> 6) << 4)], axis=1)
    return scales, mins


def _scaled_with_min(blocks: Bytes, q: Bytes) -> Floats:
    """d f16, dmin f16, 12 bytes of scales and mins at the head; q (B, 8, 32): (d scale) q - (dmin min)."""
    scales, mins = _scales_and_mins(blocks[:, 4:16])
    scale = _half(blocks, 0) * scales.astype(np.float32)
    low = _half(blocks, 2) * mins.astype(np.float32)
    return (scale[:, :, None] * q.astype(np.float32) - low[:, :, None]).reshape(-1, 256)


def _nibble_rows(packed: Bytes) -> Bytes:
    """(B, 128) bytes of Q4_K / Q5_K to (B, 8, 32): each 32 bytes hold two groups, low nibbles first."""
    rows = packed.reshape(-1, 4, 1, 32)
    return np.concatenate([rows & 15, rows >> 4], axis=2).reshape(-1, 8, 32)


def _q4_k(blocks: Bytes) -> Floats:
    """Scales and mins as in `_scaled_with_min`, then 128 bytes of nibbles."""
    return _scaled_with_min(blocks, _nibble_rows(blocks[:, 16:144]))


def _q5_k(blocks: Bytes) -> Floats:
    """As Q4_K with 32 bytes of fifth bits before the nibbles: bit j of byte l belongs to group j, value l."""
    fifth = (blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8).reshape(8, 1)) & np.uint8(1)
    return _scaled_with_min(blocks, _nibble_rows(blocks[:, 48:176]) | (fifth << np.uint8(4)))


def _q6_k(blocks: Bytes) -> Floats:
    """128 bytes of low nibbles, 64 of upper bit pairs, 16 int8 scales, d f16: d scale (q - 32), 16 at a time."""
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    nibbles = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 8, 32)
    q = nibbles | (_two_bits(blocks[:, 128:192]).reshape(-1, 8, 32) << 4)
    scale = _half(blocks, 208) * np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
    values: Floats = (q.astype(np.int8) - np.int8(32)).reshape(-1, 16, 16).astype(np.float32)
    return (scale[:, :, None] * values).reshape(-1, 256)


GGUF_FORMATS = (
    Format("F32", 1, 4, _f32),
    Format("F16", 1, 2, _f16),
    Format("BF16", 1, 2, _bf16),
    Format("Q4_0", 32, 18, _q4_0),
    Format("Q4_1", 32, 20, _q4_1),
    Format("Q5_0", 32, 22, _q5_0),
    Format("Q5_1", 32, 24, _q5_1),
    Format("Q8_0", 32, 34, _q8_0),
    Format("Q2_K", 256, 84, _q2_k),
    Format("Q3_K", 256, 110, _q3_k),
    Format("Q4_K", 256, 144, _q4_k),
    Format("Q5_K", 256, 176, _q5_k),
    Format("Q6_K", 256, 210, _q6_k),
)
"""Every type this program can read, smallest blocks first."""

GGUF_TYPE_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0",
    35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip
"""The type numbers of a GGUF file, also those that are refused, so that a message can name them."""
