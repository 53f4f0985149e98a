"""Embeddings of the language model that an encoder needs: those of tokens among a picture's."""

from __future__ import annotations

from collections.abc import Sequence

from engine.models.building.source import WeightSource
from engine.tensors import Floats, RawTensor


def embeddings(
    source: WeightSource, table: RawTensor | None, name: str, ids: Sequence[int], width: int
) -> Floats:
    """The rows (n, `width`) of these ids in the language model's embedding, a tensor of this name. Raises
    `BadCheckpoint` where it is not there, or too small.
    """
    if table is None or len(table.shape) != 2 or table.shape[1] != width or table.shape[0] <= max(ids):
        return source.vector(name, max(ids) + 1, width)[list(ids)]  # which is refused
    return table.take(list(ids)).dequantise()
