"""EXL2 folders (ExLlamaV2): codes of 2, 3, 4, 5, 6 and 8 bits in one matrix, inputs sorted by importance.

`X.q_weight` int32 (words, N), a bit stream along each column for each group; `X.q_groups` int16 (2 G,), the
width and first row of words of each group; `X.q_scale` int32 (G, N / 8), 4-bit codes s - 1; `X.q_scale_max`
fp16 (G,); `X.q_invperm` (K,), the place of each input. N is padded to a multiple of 32. A weight is (code -
2^(bits - 1)) * scale; the scale is s^2 * (max / 256), rounded to fp16 after both products, as in the
quantiser. Source: ExLlamaV2's matrix loader and kernels (facts only).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.bitstream import unpack_codes, unpack_nibbles, words_for
from engine.weights.packed.grouped import GroupedTensor, Indices, Layout, Run, Zeros
from engine.weights.packed.packed_tensors import INTEGERS, Matrix, wrapped
from engine.weights.tensor import FileTensor
from engine.words import _

_PARTS = ("q_weight", "q_scale", "q_scale_max", "q_groups", "q_invperm", "q_perm", "q_group_map")
_WIDTHS = (2, 3, 4, 5, 6, 8)
_PADDING = 32
_SHORT = ("I16", "U16", "I32", "U32")


@dataclass(frozen=True, slots=True)
class _Stream:
    """Stored columns start .. start + size - 1: codes of `bits` bits in the rows of words from `word` on."""

    start: int
    size: int
    bits: int
    word: int

    @property
    def words(self) -> int:
        return words_for(self.size, self.bits)


class _Source:
    """A `Source` of one matrix; `widths` are the bits of each group."""

    def __init__(self, matrix: Matrix, streams: Sequence[_Stream], widths: Sequence[int]) -> None:
        self._matrix, self._streams = matrix, streams
        self._zeros = np.array([1 << (bits - 1) for bits in widths], np.int16)

    def codes(self, outputs: Indices, start: int, stop: int) -> Bytes:
        words = self._matrix.word_columns("q_weight", outputs)
        out = np.empty((outputs.size, stop - start), np.uint8)
        for stream in self._streams:
            first, last = max(start, stream.start), min(stop, stream.start + stream.size)
            if first < last:
                rows = words[stream.word : stream.word + stream.words]
                codes = unpack_codes(rows.T, stream.bits, stream.size)
                out[:, first - start : last - start] = codes[:, first - stream.start : last - stream.start]
        return out

    def scales(self, outputs: Indices) -> Floats:
        most = (
            (self._matrix.floats("q_scale_max") * np.float32(1 / 256)).astype(np.float16).astype(np.float32)
        )
        codes = unpack_nibbles(self._matrix.words("q_scale"), outputs // 8, outputs % 8)
        factors = codes.astype(np.float32) + np.float32(1)
        with np.errstate(over="ignore"):
            return (factors * factors * most).astype(np.float16).astype(np.float32)

    def zeros(self, outputs: Indices) -> Zeros:
        return np.broadcast_to(self._zeros, (outputs.size, self._zeros.size))


def wrap_exl2(tensors: Mapping[str, FileTensor], settings: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The tensors with each quantised matrix as one tensor X.weight; other tensors are unchanged.

    Reads the widths and sizes of groups, a few hundred bytes for each matrix. Raises `BadCheckpoint`.
    """
    return wrapped(tensors, _PARTS, lambda matrix: _tensor(matrix, tensors))


def _tensor(matrix: Matrix, tensors: Mapping[str, FileTensor]) -> RawTensor:
    weight, most = matrix.get("q_weight", INTEGERS, 2), matrix.get("q_scale_max", ("F16",), 1)
    groups, index = matrix.get("q_groups", ("I16", "U16"), 1), matrix.get("q_invperm", _SHORT, 1)
    matrix.get("q_scale", INTEGERS, 2)
    words, padded = weight.shape
    if padded % _PADDING:
        raise matrix.wrong("q_weight", _("a multiple of {padding} outputs", padding=_PADDING))
    matrix.check("q_scale", (most.shape[0], padded // 8))
    matrix.check("q_groups", (2 * most.shape[0],))
    columns = index.shape[0]
    widths = groups.numbers().view(np.uint16).astype(np.int64).reshape(-1, 2)
    runs, starts = _runs(groups, widths, columns, words)
    order = _order(index, columns)
    rows = _rows(matrix.stem, padded, columns, tensors)
    layout = Layout(columns, tuple(runs), order, True, matrix.nbytes(_PARTS), rows)
    return GroupedTensor(
        matrix.stem + ".weight", layout, _Source(matrix, _streams(runs, starts), widths[:, 0].tolist())
    )


def _runs(groups: FileTensor, widths: Indices, columns: int, words: int) -> tuple[list[Run], list[int]]:
    """The groups as runs, and the first row of words of each run."""
    runs: list[Run] = []
    starts: list[int] = []
    column, word = 0, 0
    for g, (bits, first) in enumerate(widths.tolist()):
        end = int(widths[g + 1, 1]) if g + 1 < len(widths) else words
        if bits not in _WIDTHS or first != word or not first < end <= words:
            raise BadCheckpoint(
                _(
                    "The tensor {groups} gives group {g} {bits} bits from word {first} to {end}; "
                    "one of {widths} bits and rising words from {word} to {words} were expected. "
                    "Download the model again.",
                    groups=groups.name,
                    g=g,
                    bits=bits,
                    first=first,
                    end=end,
                    widths=", ".join(map(str, _WIDTHS)),
                    word=word,
                    words=words,
                )
            )
        size = min((end - first) * 32 // bits, columns - column)
        if size > 0:
            runs.append(Run(column, size, bits, g))
            starts.append(first)
        column, word = column + size, end
    if column != columns or not runs:
        raise BadCheckpoint(
            _(
                "The groups of {groups} hold {column} inputs, but {columns} were expected. "
                "Download the model again.",
                groups=groups.name,
                column=column,
                columns=columns,
            )
        )
    return runs, starts


def _streams(runs: Sequence[Run], starts: Sequence[int]) -> list[_Stream]:
    """The runs as streams; neighbours of one width that follow each other without a gap are joined."""
    out: list[_Stream] = []
    for run, word in zip(runs, starts, strict=True):
        last = out[-1] if out else None
        if (
            last is not None
            and last.bits == run.bits
            and last.size % 32 == 0
            and last.word + last.words == word
        ):
            out[-1] = _Stream(last.start, last.size + run.size, last.bits, last.word)
        else:
            out.append(_Stream(run.start, run.size, run.bits, word))
    return out


def _order(index: FileTensor, columns: int) -> Indices | None:
    """The model's input at each stored place, from the place of each input; None if the order is the same."""
    numbers = index.numbers()
    places = (numbers.view(np.uint16) if numbers.dtype.itemsize == 2 else numbers).astype(np.int64)
    if not np.array_equal(np.sort(places), np.arange(columns)):
        raise BadCheckpoint(
            _(
                "The tensor {index} is not a permutation of {columns} inputs; the file is damaged. "
                "Download it again.",
                index=index.name,
                columns=columns,
            )
        )
    order = np.argsort(places)
    return None if np.array_equal(order, np.arange(columns)) else order


def _rows(stem: str, padded: int, columns: int, tensors: Mapping[str, FileTensor]) -> int:
    """N without its padding: the length of the bias or, for the output head, of the embedding table."""
    bias = tensors.get(stem + ".bias")
    known = [bias.shape[0]] if bias is not None and len(bias.shape) == 1 else []
    if not any(part.isdigit() for part in stem.split(".")):
        known += [
            t.shape[0]
            for t in tensors.values()
            if t.shape[1:] == (columns,) and t.type in ("F16", "BF16", "F32")
        ]
    return next((count for count in known if padded - _PADDING < count <= padded), padded)
