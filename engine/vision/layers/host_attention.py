"""Attention on the host, for queries too few to be worth a recorded pass."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.tensors import Floats


def attend(
    queries: Floats, keys: Floats, values: Floats, scale: float, there: npt.NDArray[np.bool_] | None = None
) -> Floats:
    """softmax(scale Q K^T) V, (..., T, D), of queries (..., T, D), and keys and values (..., S, D), all
    float32. With `there`, which is broadcast to (..., T, S), only keys that are count.
    """
    scores = queries @ keys.swapaxes(-1, -2) * np.float32(scale)
    if there is not None:
        scores = np.where(there, scores, np.float32(-np.inf))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    attended: Floats = (weights / weights.sum(axis=-1, keepdims=True)) @ values
    return attended
