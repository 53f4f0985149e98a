"""Shared by the readers of packed folders: the tensors of a matrix, checked and read in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from engine.errors import BadCheckpoint
from engine.tensors import RawTensor
from engine.weights.format import Bytes, Floats
from engine.weights.packed.bitstream import Words
from engine.weights.packed.grouped import Indices, Recent
from engine.weights.tensor import FileTensor
from engine.words import _

_PANEL_BYTES = 16 << 20
"""Bytes of columns read at a time."""
INTEGERS = ("I32", "U32")
SCALES = ("F16", "BF16", "F32")


class Matrix:
    """The tensors of one quantised matrix, which are named `stem`.`part`."""

    def __init__(self, stem: str, tensors: Mapping[str, FileTensor], recent: Recent) -> None:
        self.stem, self._tensors, self._recent = stem, tensors, recent

    def find(self, part: str) -> FileTensor | None:
        """The tensor, or None."""
        return self._tensors.get(f"{self.stem}.{part}")

    def get(self, part: str, types: Iterable[str], dimensions: int) -> FileTensor:
        """The tensor. Raises `BadCheckpoint` if it is missing or has another type or number of dimensions."""
        tensor = self.find(part)
        if tensor is None:
            raise BadCheckpoint(
                _(
                    "The tensor {stem}.{part} is missing, which belongs to a quantised matrix. "
                    "Download the model again.",
                    stem=self.stem,
                    part=part,
                )
            )
        if tensor.type not in types or len(tensor.shape) != dimensions:
            raise self.wrong(
                part, _("{dimensions} dimensions of {types}", dimensions=dimensions, types=", ".join(types))
            )
        return tensor

    def wrong(self, part: str, expected: str) -> BadCheckpoint:
        """The error for a tensor of another type or shape."""
        tensor = self._of(part)
        return BadCheckpoint(
            _(
                "The tensor {tensor} is {type} of shape {shape}, but {expected} were expected beside "
                "the other tensors of {stem}; the folder is damaged or its settings belong to "
                "another model. Download it again.",
                tensor=tensor.name,
                type=tensor.type,
                shape=tensor.shape,
                expected=expected,
                stem=self.stem,
            )
        )

    def check(self, part: str, shape: tuple[int, ...]) -> None:
        """Raise `BadCheckpoint` if the tensor exists with another shape."""
        tensor = self.find(part)
        if tensor is not None and tensor.shape != shape:
            raise self.wrong(part, _("numbers of shape {shape}", shape=shape))

    def part(self, index: int, parts: Iterable[str]) -> Matrix:
        """Matrix `index` of a stack, of which each of these `parts` has one more dimension in front."""
        stem = f"{self.stem}.{index}"
        return Matrix(stem, {f"{stem}.{part}": self._of(part).part(index) for part in parts}, self._recent)

    def _of(self, part: str) -> FileTensor:
        return self._tensors[f"{self.stem}.{part}"]

    def nbytes(self, parts: Iterable[str]) -> int:
        """Bytes in the file of those `parts` that exist."""
        return sum(tensor.nbytes for part in parts if (tensor := self.find(part)) is not None)

    def words(self, part: str) -> Words:
        """A small tensor of 32-bit words, kept while the matrix is read."""
        tensor = self._of(part)
        words: Words = self._recent.get(self.stem, part, lambda: tensor.numbers().view(np.uint32))
        return words

    def floats(self, part: str) -> Floats:
        """A small tensor of numbers as float32, kept while the matrix is read."""
        tensor = self._of(part)
        values: Floats = self._recent.get(self.stem, part, tensor.dequantise)
        return values

    def kept(
        self, what: str, make: Callable[[], Any], fits: Callable[[Any], bool] = lambda value: True
    ) -> Any:
        """What `make` returns, kept as `what` while the matrix is read and while it `fits`."""
        return self._recent.get(self.stem, what, make, fits)

    def word_columns(self, part: str, columns: Indices) -> Words:
        """Columns of a large tensor of words (R, C), as (R, len(columns)); reads panels of neighbours."""
        tensor = self._of(part)
        low, high = int(columns.min(initial=tensor.shape[1])), int(columns.max(initial=-1)) + 1
        if low >= high:
            return np.zeros((tensor.shape[0], 0), np.uint32)
        width = max(high - low, _PANEL_BYTES // max(1, 4 * tensor.shape[0]))

        def read() -> tuple[int, Words]:
            return low, tensor.columns(low, min(low + width, tensor.shape[1])).view(np.uint32)

        start, panel = self._recent.get(
            self.stem, part, read, lambda kept: bool(kept[0] <= low and high <= kept[0] + kept[1].shape[1])
        )
        some: Words = panel[:, low - start : high - start] if _rising(columns) else panel[:, columns - start]
        return some

    def byte_rows(self, part: str, rows: Indices) -> Bytes:
        """The bytes of rows of a large matrix of plain numbers: (len(rows), bytes of a row)."""
        tensor = self._of(part)
        if not rows.size:
            return np.zeros((0, tensor.nbytes // max(1, tensor.shape[0])), np.uint8)
        some = tensor.rows(int(rows[0]), int(rows[-1]) + 1) if _rising(rows) else tensor.take(rows)
        return some.data.reshape(rows.size, -1)


def _rising(indices: Indices) -> bool:
    """Whether the indices are consecutive."""
    return bool((np.diff(indices) == 1).all())


def stems(tensors: Mapping[str, FileTensor], part: str) -> list[str]:
    """The names of all matrices that have a tensor `part`."""
    return [name.removesuffix("." + part) for name in tensors if name.endswith("." + part)]


def wrapped(
    tensors: Mapping[str, FileTensor], parts: Sequence[str], make: Callable[[Matrix], RawTensor]
) -> dict[str, RawTensor]:
    """The tensors with each matrix that has a tensor `parts[0]`, and may have the others, as one tensor
    X.weight, which `make` returns; other tensors are unchanged.
    """
    recent = Recent()
    names = stems(tensors, parts[0])
    own = {f"{stem}.{part}" for stem in names for part in parts}
    out: dict[str, RawTensor] = {name: tensor for name, tensor in tensors.items() if name not in own}
    for stem in names:
        out[stem + ".weight"] = make(Matrix(stem, tensors, recent))
    return out


def whole(value: Any) -> int | None:
    """`value` if it is an int, else None."""
    return value if type(value) is int else None
