"""A bias of attention's scores that each query makes itself, by the distance of keys."""

from __future__ import annotations

from typing import Any

from engine.lazy_dataclass import dataclass
from engine.tensors import Floats


@dataclass(frozen=True, slots=True, eq=False)
class RelativeBias:
    """Added to the scores of query head h, for keys d = 0 .. extent - 1 positions before the query: the sum
    over j < R of column h * R + j of `weights` (T, H * R), in the query's row, times `profiles[j, d]`. Later
    keys and further ones get nothing. `profiles` are (R, extent) float32. Sources: transformers' Inkling and
    Inkling 2, for `sinks`: (T, H) scores of each row's heads that take part in the softmax but have no value,
    in place of those of `Ops.attention`.
    """

    weights: Any
    profiles: Floats
    sinks: Any = None

    @property
    def extent(self) -> int:
        """The distance from which on nothing is added."""
        return int(self.profiles.shape[1])
