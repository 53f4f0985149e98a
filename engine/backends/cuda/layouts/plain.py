"""Matrices of plain numbers (bf16, fp16, float32, and e4m3 with scales) and how they lie on the device.

bf16, fp16 and float32 lie as they do in a file, row after row, only padded with zeros to tiles of 16 rows and
blocks of 64 columns. A warp reads whole 128-byte lines of 16 rows, and torch multiplies large batches with
the same memory, without unpacking.
"""

from __future__ import annotations

import numpy as np

from engine.backends.cuda.layouts.layout import ROWS, Bytes
from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.words import _

_LARGEST = 65504.0
_SIZES = {"bf16": 2, "fp16": 2, "fp32": 4}


@dataclass(frozen=True)
class Plain:
    """A `WeightLayout` of plain numbers; `name` is "bf16", "fp16" or "fp32"."""

    name: str
    types: tuple[str, ...]
    activations: str

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return _SIZES[self.name]

    def tile_bytes(self, columns: int) -> int:
        return ROWS * -(-columns // 64) * 64 * self.size

    def pack(self, raw: Bytes, rows: int, columns: int) -> Bytes:
        return raw.reshape(-1)


@dataclass(frozen=True)
class Fp8:
    """A `WeightLayout` of e4m3 numbers with a scale for each `unit` (128 or 32) columns of a row.

    The source is `engine.weights.packed.fp8`. A tile is 1024 bytes for each 64 columns, then, for each `unit`
    columns, the float32 scales of its 16 rows times 2^8. Of 32 columns, lane (g, t) has 16 bytes: row g,
    columns 8 t .. 8 t + 7, then row g + 8. Of each four columns the second and third are swapped, so that two
    masks make two words of fp16 pairs, each number times 2^-8 exactly.
    """

    unit: int

    activations = "fp16"

    @property
    def name(self) -> str:
        return f"fp8u{self.unit}"

    @property
    def types(self) -> tuple[str, ...]:
        return (f"FP8_{self.unit}",)

    def tile_bytes(self, columns: int) -> int:
        blocks = -(-columns // 64)
        return 1024 * blocks + 4 * ROWS * -(-64 * blocks // self.unit)

    def pack(self, raw: Bytes, rows: int, columns: int) -> Bytes:
        """Raises `BadCheckpoint` for numbers beyond fp16, which large batches are multiplied in."""
        units = raw.size // (rows * (self.unit + 4))
        parts = raw.reshape(rows, units, self.unit + 4)
        blocks = -(-columns // 64)
        scales = np.zeros((rows // ROWS, ROWS, -(-64 * blocks // self.unit)), np.float32)
        given = np.ascontiguousarray(parts[:, :, self.unit :]).view(np.float32)[..., 0]
        largest = np.abs(given[np.isfinite(given)]).max(initial=0) * 448
        if largest > _LARGEST:
            raise BadCheckpoint(
                _(
                    "An 8-bit matrix has a scale for numbers up to {largest:g}; on a GPU weights may "
                    "be up to {largest_2:g}. Download the model again, or choose a file with another "
                    "type of weights.",
                    largest=largest,
                    largest_2=_LARGEST,
                )
            )
        scales[..., :units] = given.reshape(-1, ROWS, units) * np.float32(256)
        numbers = np.zeros((rows, 64 * blocks), np.uint8)
        numbers[:, : units * self.unit] = parts[:, :, : self.unit].reshape(rows, -1)
        # (tile, half, g, chunk of 32, t, piece of 4, column pair, column) to (tile, chunk, g, t, half, piece,
        # column, pair)
        split = numbers.reshape(rows // ROWS, 2, 8, 2 * blocks, 4, 2, 2, 2).transpose(0, 3, 2, 4, 1, 5, 7, 6)
        out = np.empty((rows // ROWS, self.tile_bytes(columns)), np.uint8)
        out[:, : 1024 * blocks] = split.reshape(rows // ROWS, -1)
        out[:, 1024 * blocks :] = (
            np.ascontiguousarray(scales.transpose(0, 2, 1)).view(np.uint8).reshape(rows // ROWS, -1)
        )
        return out.reshape(-1)


BF16, FP16, FP32 = (
    Plain("bf16", ("BF16",), "bf16x2"),
    Plain("fp16", ("F16",), "fp16"),
    Plain("fp32", ("F32",), "fp32"),
)
PLAIN_WEIGHT_LAYOUTS = (BF16, FP16, FP32, Fp8(128), Fp8(32))
"""All of them. bf16 needs compute capability 8.0; older devices take such matrices as fp16."""
