"""Where a model's parts get their weights from: first a survey that only looks, then the loader.

A family's parts list is run on both, so what is checked, counted and loaded is the same by construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from engine.backends.base import Backend, Floats, RawTensor, Weight
from engine.errors import BadCheckpoint
from engine.models.layers import Linear, RmsNorm


class WeightSource(Protocol):
    """Gives weights by their names in the file."""

    def has(self, name: str) -> bool:
        """Whether the file holds this tensor."""
        ...

    def matrix(self, name: str, rows: int, columns: int) -> Weight:
        """The matrix (rows, columns)."""
        ...

    def vector(self, name: str, size: int) -> Floats:
        """The vector (size,), float32."""
        ...


def linear(source: WeightSource, name: str, rows: int, columns: int, bias: bool | None) -> Linear:
    """`name`.weight (rows, columns) and `name`.bias (rows,): True required, False none, None when the file has it."""
    wanted = source.has(name + ".bias") if bias is None else bias
    weight = source.matrix(name + ".weight", rows, columns)
    return Linear(weight, source.vector(name + ".bias", rows) if wanted else None)


def rms_norm(source: WeightSource, name: str, size: int, eps: float) -> RmsNorm:
    """`name`.weight (size,)."""
    return RmsNorm(source.vector(name + ".weight", size), eps)


@dataclass(slots=True)
class _Seen:
    """A matrix that was looked at, not loaded."""

    shape: tuple[int, ...]
    nbytes: int


class Survey:
    """Looks at the headers only: `missing` tensors, the `bytes` that `backend` will hold, `parameters`, `matrix_types`.

    Raises `BadCheckpoint` for a tensor of the wrong shape.
    """

    def __init__(self, tensors: Mapping[str, RawTensor], backend: Backend) -> None:
        self._tensors, self._backend = tensors, backend
        self.missing: list[str] = []
        self.matrix_types: set[str] = set()
        self.bytes = 0
        self.parameters = 0

    def has(self, name: str) -> bool:
        """See `WeightSource`."""
        return name in self._tensors

    def matrix(self, name: str, rows: int, columns: int) -> Weight:
        """See `WeightSource`; an empty stand-in."""
        tensor = self._look(name, (rows, columns))
        seen = _Seen((rows, columns), 0)
        if tensor is not None:
            self.matrix_types.add(tensor.type)
            seen.nbytes = self._backend.weight_bytes(tensor)
            self.bytes += seen.nbytes
        return seen

    def vector(self, name: str, size: int) -> Floats:
        """See `WeightSource`; an empty stand-in."""
        self._look(name, (size,))
        self.bytes += 4 * size
        return np.empty(0, np.float32)

    def check(self, file_name: str) -> None:
        """Raise `BadCheckpoint` when tensors are missing."""
        if self.missing:
            more = f" and {len(self.missing) - 5} more" if len(self.missing) > 5 else ""
            raise BadCheckpoint(
                f"{file_name} lacks tensors that its headers call for: {', '.join(self.missing[:5])}{more}. "
                "The file is incomplete; download it again."
            )

    def _look(self, name: str, shape: tuple[int, ...]) -> RawTensor | None:
        tensor = self._tensors.get(name)
        if tensor is None:
            self.missing.append(name)
            return None
        if tensor.shape != shape:
            raise BadCheckpoint(f"The tensor {name} has the shape {tensor.shape}, but the headers call for {shape}; the file is damaged.")
        self.parameters += int(np.prod(shape, dtype=np.int64))
        return tensor


class Loader:
    """Brings weights into the backend; `bytes` counts what it holds so far."""

    def __init__(self, tensors: Mapping[str, RawTensor], backend: Backend) -> None:
        self._tensors, self._backend = tensors, backend
        self.bytes = 0

    def has(self, name: str) -> bool:
        """See `WeightSource`."""
        return name in self._tensors

    def matrix(self, name: str, rows: int, columns: int) -> Weight:
        """See `WeightSource`."""
        weight = self._backend.load_weight(self._tensors[name])
        self.bytes += weight.nbytes
        return weight

    def vector(self, name: str, size: int) -> Floats:
        """See `WeightSource`."""
        values = self._tensors[name].dequantise()
        self.bytes += values.nbytes
        return values
