"""The orders of rows in matrices that make queries, keys and values, or queries and their gate."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.models.config import ModelConfig
from engine.models.names import TensorNames

Order = npt.NDArray[np.int64]


def half_of_queries(config: ModelConfig, half: int) -> Order:
    """The rows of queries (0) or of the output gate (1) in the matrix that makes both."""
    rows = np.arange(2 * config.heads * config.head_dim).reshape(config.heads, 2, config.head_dim)
    return np.ascontiguousarray(rows[:, half].reshape(-1))


def fused_order(config: ModelConfig, names: TensorNames) -> Order | None:
    """Indices that order the rows of `query_key_value`: all queries, then all keys, then all values; None
    where they are in this order.
    """
    if names.grouped:
        groups, ratio, dim = config.kv_heads, config.heads // config.kv_heads, config.head_dim
        rows = np.arange(groups * (ratio + 2) * dim).reshape(groups, ratio + 2, dim)
        parts = [rows[:, :ratio], rows[:, ratio], rows[:, ratio + 1]]
    elif names.shards:
        rows = np.arange(3 * config.heads * config.head_dim).reshape(names.shards, 3, -1)
        parts = [rows[:, 0], rows[:, 2], rows[:, 1]]
    else:
        return None
    return np.concatenate([part.reshape(-1) for part in parts])
