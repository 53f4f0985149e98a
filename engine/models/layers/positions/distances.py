"""What attention's scores get by the distance of a key from the query (MPNet, arXiv 2004.09297).

Distances are put into buckets as in T5 (arXiv 1910.10683): a bucket for each small distance, and above these
ones that widen with its logarithm, the first half for keys before the query.
"""

from __future__ import annotations

import math

import numpy as np

from engine.tensors import Floats, Ints

BUCKETS, FURTHEST = 32, 128
"""MPNet's code has these as constants."""


def by_distance(table: Floats) -> Floats:
    """`distances` of `Ops.attention`, (H, 2 * FURTHEST + 1), from the table (at least BUCKETS, H)."""
    return np.ascontiguousarray(table[buckets()].T)


def buckets() -> Ints:
    """The bucket of a key from FURTHEST positions before the query to as many after it, int32."""
    side = BUCKETS // 2
    exact = side // 2
    places = np.arange(-FURTHEST, FURTHEST + 1)
    away = np.abs(places)
    # In float32 as where the model was made, so that no distance falls into a neighbouring bucket.
    share = np.log(np.maximum(away, 1).astype(np.float32) / exact) / math.log(FURTHEST / exact)
    wide = exact + (share * (side - exact)).astype(np.int32)
    return np.where(away < exact, away, np.minimum(wide, side - 1)).astype(np.int32) + side * (places > 0)
