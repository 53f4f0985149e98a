"""How both backends pack a matrix: piece by piece, from file bytes of a type that its layout takes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from engine.errors import BadCheckpoint
from engine.tensors import RawTensor
from engine.words import _

Bytes = npt.NDArray[np.uint8]
PieceT = TypeVar("PieceT")

TO_F32 = frozenset({"F64", "I16", "I32", "I64", "U16", "U32", "U64", "F8_E8M0", "GROUPED_REST"})
"""Types beyond the range or precision of fp16, which are decoded to F32 where they have no layout."""
KINDS = ("F16", "BF16", "F32")
"""The types of numbers beside codes (`affine_type`)."""
_PACKERS = min(4, os.cpu_count() or 1)
"""Threads that read and pack."""


def packed_pieces(
    tensor: RawTensor, step: int, types: Sequence[str], pack: Callable[[int, int, Bytes], PieceT]
) -> Iterator[PieceT]:
    """The results of `pack(first row, rows, file bytes)` for pieces of `step` rows, in order.

    Pieces are read and packed on threads, the only one on the calling thread. `types` are those of which
    `pack` takes the bytes.
    Raises `BadCheckpoint` for a number that is too large for F16.
    """
    n = tensor.shape[0]

    def piece(first: int, last: int) -> PieceT:
        rows = tensor.rows(first, last) if last - first < n else tensor
        return pack(first, last - first, _file_bytes(rows, types))

    if n <= step:
        yield piece(0, n)
        return
    with ThreadPoolExecutor(_PACKERS) as pool:
        running: deque[Future[PieceT]] = deque()
        for first in range(0, n, step):
            running.append(pool.submit(piece, first, min(first + step, n)))
            if len(running) > _PACKERS:
                yield running.popleft().result()
        for packing in running:
            yield packing.result()


def _file_bytes(rows: RawTensor, types: Sequence[str]) -> Bytes:
    """The rows' bytes in one of `types`, decoded to F16 or F32 if necessary."""
    if rows.type in types:
        return rows.data
    values = rows.dequantise()
    if "F16" not in types:
        return values.reshape(-1).view(np.uint8)
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    if (too_large := np.isinf(half) & np.isfinite(values)).any():
        raise BadCheckpoint(
            _(
                "The tensor {rows} ({type}) holds the number {values:g}; weights of this type are "
                "kept as fp16, up to 65504. Download the model again, or choose a file with another "
                "type of weights.",
                rows=rows.name,
                type=rows.type,
                values=values[too_large][0],
            )
        )
    return half.reshape(-1).view(np.uint8)


def affine_type(bits: int, unit: int, kind: str) -> str:
    """ "AFFINE4_64_BF16": codes of 4 bits, and a scale and a bias in bf16 for 64 columns."""
    return f"AFFINE{bits}_{unit}_{kind}"


def kept_numbers(numbers: npt.NDArray[np.float32], kind: str) -> npt.NDArray[Any]:
    """Numbers that "F16", "BF16" or "F32" holds exactly, in that type; the 16 bits of the first two as
    uint16.
    """
    if kind == "BF16":
        return (numbers.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return numbers.astype(np.float16).view(np.uint16) if kind == "F16" else numbers


def zero_padded(raw: Bytes, rows: int, columns: int, full: int, width: int) -> Bytes:
    """The bytes of (rows, columns) padded with zeros to (full, width).

    Only rows of plain numbers are padded to more columns; quantised rows have whole blocks.
    """
    if full == rows and width == columns:
        return np.ascontiguousarray(raw)
    per_row = raw.size // rows
    out = np.zeros((full, per_row * width // columns), np.uint8)
    out[:rows, :per_row] = raw.reshape(rows, per_row)
    return out.reshape(-1)
