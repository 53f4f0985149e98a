"""`BlockType`, a type of block of GGUF files, and `Parts`, blocks taken apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.backends.gguf_blocks.codebooks import Codebook
from engine.lazy_dataclass import dataclass

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Parts:
    """B blocks: codes uint8 (B, values); d (B, 1), fp16 as uint16, float32 or e8m0 as uint8, or (B, groups)
    ue4m3; dmin (or m) (B, 1), fp16 as uint16; scales and mins uint8 (B, groups), signed scales in two's
    complement.
    """

    codes: Bytes
    d: npt.NDArray[Any]
    dmin: npt.NDArray[np.uint16] | None = None
    scales: Bytes | None = None
    mins: Bytes | None = None


@dataclass(frozen=True)
class BlockType:
    """One type: `values` values in `nbytes` bytes; `number` is the type's number in a GGUF file.

    A block's values are split into groups of equal size:

        value = unit * d * scale * code - dmin * min

    where `code` is a small unsigned integer minus `zero`, or an index into `levels`; scale and min belong to
    a group, and `unit` is a power of two. Types without scales have a d and perhaps an m: value = d * code +
    m. `bits` is the width of a code, `scale_bits` that of a scale and of a min (0: the type has none). `d` is
    "fp16", "fp32", "e8m0" (2^(e - 128)) or "ue4m3" (half of an unsigned E4M3). If `signed`, scales are int8,
    if `floats` E4M3. `mins` says whether there are mins, or an m if there are no scales. `codebook` is that
    of codes that are looked up. If `moved` is not 0, the lowest bit of
    a scale says whether `moved` is added to the group's levels; it counts as `lowest` in the scale itself.
    The first `row_bytes` of a block stand in a file once for each row, before
    its blocks. `types` are the types that are packed as this one; () means itself alone.
    """

    name: str
    number: int
    values: int
    nbytes: int
    bits: int
    split: Callable[[Bytes], Parts]
    zero: int = 0
    levels: tuple[int, ...] = ()
    groups: int = 1
    d: str = "fp16"
    scale_bits: int = 0
    signed: bool = False
    floats: bool = False
    mins: bool = False
    unit: float = 1.0
    codebook: Codebook | None = None
    moved: int = 0
    lowest: int = 0
    row_bytes: int = 0
    types: tuple[str, ...] = ()

    def decode(self, blocks: Bytes) -> Floats:
        """(B, nbytes) to float32 (B, values), rounded in the order of the formula."""
        parts = self.split(blocks)
        if self.levels:
            codes: Floats = np.array(self.levels, np.float32)[parts.codes]
        else:
            codes = parts.codes.astype(np.float32)
            if self.zero:
                codes -= np.float32(self.zero)
        step = self._factor(parts.d)
        if parts.scales is not None:
            step = step * self.scales(parts.scales)
        codes = codes.reshape(len(blocks), step.shape[1], -1)
        if self.moved and parts.scales is not None:
            codes += (parts.scales & np.uint8(1)).astype(np.float32)[:, :, None] * np.float32(self.moved)
        out = step[:, :, None] * codes
        if parts.dmin is not None:
            low = parts.dmin.view(np.float16).astype(np.float32)
            if parts.mins is None:
                out += low[:, :, None]
            else:
                out -= (low * parts.mins.astype(np.float32))[:, :, None]
        return out.reshape(len(blocks), self.values)

    def scales(self, stored: Bytes) -> Floats:
        """The numbers of stored scales, float32."""
        if self.floats:
            return E4M3[stored]
        if self.moved:
            stored = (stored & np.uint8(254)) | np.uint8(self.lowest)
        return stored.view(np.int8 if self.signed else np.uint8).astype(np.float32)

    def _factor(self, d: npt.NDArray[Any]) -> Floats:
        if self.d in ("fp16", "fp32"):
            numbers = d.view(np.float16 if self.d == "fp16" else np.float32).astype(np.float32)
            return numbers * np.float32(self.unit)
        values: Floats = (_HALF_E8M0 if self.d == "e8m0" else _HALF_UE4M3)[d]
        return values


def _half_ue4m3() -> Floats:
    """Half of each byte's unsigned E4M3 value, float32 (256,). The top bit is ignored; 0 and 127 are 0."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    values = np.where(exponent == 0, mantissa / 1024, (8 + mantissa) * np.exp2(exponent - 11.0))
    values[[0, 127]] = 0
    return values.astype(np.float32)


_HALF_E8M0: Floats = np.ldexp(np.float32(1), np.arange(256) - 128).astype(np.float32)
_HALF_UE4M3 = _half_ue4m3()


def _e4m3() -> Floats:
    """Each byte's E4M3 value, float32 (256,); 480 and -480 for 127 and 255, which are no numbers."""
    code = np.arange(128)
    exponent, mantissa = code >> 3, code & 7
    values = np.where(exponent == 0, mantissa / 512, (8 + mantissa) * np.exp2(exponent - 10.0))
    return np.concatenate([values, -values]).astype(np.float32)


E4M3 = _e4m3()
