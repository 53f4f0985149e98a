"""Top-k selection and sums over a whole vocabulary, without sorting it and without slow passes.

The maxima of the columns of a (rows, 4096) view cost one vectorised pass. The count-th largest column maximum
is a lower bound of the count-th largest number, so only the columns that reach it are searched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.int64]

COLUMNS = 4096
"""Columns of the view: a row of float32 fits in the L1 cache, and BLAS uses no threads for so few numbers."""

_ONES = np.ones(COLUMNS, np.float32)
_MIN_ROWS = 4
_GROUPS_PER_TOKEN = 16
_LOWEST = float(np.finfo(np.float32).min)


def column_maxima(scores: Scores, columns: int = COLUMNS) -> Scores | None:
    """(columns,) the column maxima of `scores` (n,) viewed as rows; the last row may be short.

    None if there are fewer than four full rows.
    """
    rows = scores.shape[0] // columns
    if rows < _MIN_ROWS:
        return None
    maxima: Scores = scores[: rows * columns].reshape(rows, columns).max(axis=0)
    tail = scores[rows * columns :]
    np.maximum(maxima[: tail.shape[0]], tail, out=maxima[: tail.shape[0]])
    return maxima


def at_least(scores: Scores, bound: float, maxima: Scores | None) -> Ids:
    """Ascending indices of `scores` (n,) that are >= `bound` and not -inf; `maxima` as in `top_indices`."""
    limit = scores.dtype.type(max(bound, _LOWEST))
    if maxima is not None:
        columns = np.flatnonzero(maxima >= limit)
        if columns.shape[0] * _GROUPS_PER_TOKEN <= maxima.shape[0]:
            places = (np.arange(0, scores.shape[0], maxima.shape[0])[:, None] + columns).ravel()
            if places.shape[0] and places[-1] >= scores.shape[0]:
                places = places[places < scores.shape[0]]
            found: Ids = places[scores[places] >= limit]
            return found
    return np.flatnonzero(scores >= limit)


def top_indices(scores: Scores, count: int, maxima: Scores | None = None) -> Ids:
    """Indices of the `count` largest of `scores` (n,), or of all, largest first, ties by lowest index.

    `scores` hold no NaN. `maxima` are its `column_maxima`, if known. Indices of -inf may be left out.
    """
    count = min(count, scores.shape[0])
    if count <= 0:
        return np.empty(0, np.int64)
    if maxima is None or count * _GROUPS_PER_TOKEN > maxima.shape[0]:
        maxima = column_maxima(scores, max(COLUMNS, _GROUPS_PER_TOKEN * count))
    near: Ids | None = None
    values = scores
    if maxima is not None:
        bound = np.partition(maxima, maxima.shape[0] - count)[maxima.shape[0] - count]
        near = at_least(scores, float(bound), maxima)
        values = scores[near]
    if values.shape[0] > count:
        bound = np.partition(values, values.shape[0] - count)[values.shape[0] - count]
        above, equal = np.flatnonzero(values > bound), np.flatnonzero(values == bound)
        chosen = np.sort(np.concatenate((above, equal[: count - above.shape[0]])))
        near, values = chosen if near is None else near[chosen], values[chosen]
    order = _descending(values)
    return order if near is None else near[order]


def _descending(values: Scores) -> Ids:
    """The indices that sort `values` (n,) in descending order; ties keep their order."""
    if values.dtype != np.float32 or values.shape[0] < COLUMNS:
        return np.argsort(-values, kind="stable")
    # Stable sorts of floats are slow. The bits of floats, reversed for negative ones, sort as integers; the
    # index in the low half makes an unstable sort stable. Adding 0 turns -0 into 0.
    bits = (values + np.float32(0)).view(np.int32)
    keys = ~(bits ^ (bits >> 31 & 0x7FFFFFFF))
    both = keys.astype(np.int64) << 32 | np.arange(values.shape[0])
    both.sort()
    return both & 0xFFFFFFFF


def dot(first: Scores, second: Scores | None = None) -> float:
    """The sum of `first` (n,) or of its products with `second` (n,): float32 in 4096-blocks, then float64."""
    if first.shape[0] < COLUMNS:
        return float(first.sum(dtype=np.float64) if second is None else first @ second)
    body = first.shape[0] - first.shape[0] % COLUMNS
    rows, rest = first[:body].reshape(-1, COLUMNS), first[body:]
    if second is None:
        ones = _ONES.astype(first.dtype, copy=False)
        return float(np.vecdot(rows, ones).sum(dtype=np.float64)) + float(rest.sum(dtype=np.float64))
    blocks = np.vecdot(rows, second[:body].reshape(-1, COLUMNS))
    return float(blocks.sum(dtype=np.float64)) + float(np.dot(rest, second[body:]))


def moments(values: Scores, pivot: float) -> tuple[int, float, float]:
    """Of `values` v (n,) above -inf: the number, the sums of v - pivot and of (v - pivot)^2."""
    kept = values > -np.inf
    count = int(np.count_nonzero(kept))
    values = values - values.dtype.type(pivot)
    if count < values.shape[0] and values.dtype == np.float32:
        # Clear the bits of the others: boolean indexing is ten times slower on a random mask.
        values = (values.view(np.int32) & np.negative(kept.view(np.int8)).astype(np.int32)).view(np.float32)
    elif count < values.shape[0]:
        values = values[kept]
    return count, dot(values), dot(values, values)
