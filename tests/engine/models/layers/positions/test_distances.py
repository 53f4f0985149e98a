"""What scores get by distance: MPNet's buckets and ALiBi's slopes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.models.layers.positions.alibi import alibi_slopes, in_bfloat16
from engine.models.layers.positions.distances import BUCKETS, FURTHEST, buckets, by_distance


def bucket(place: int) -> int:
    """Of a key this many positions after the query, in whole numbers: from 8 on two for each doubling."""
    away, after = abs(place), 16 if place > 0 else 0
    wide = next((j for j in range(7, -1, -1) if away * away >= 64 << j), None)
    return after + (away if wide is None else 8 + wide)


def test_buckets_widen_with_the_logarithm_of_the_distance() -> None:
    expected = [bucket(place) for place in range(-FURTHEST, FURTHEST + 1)]
    assert buckets().tolist() == expected
    assert sorted(set(expected)) == [n for n in range(BUCKETS) if n != 16], "a key at the query is before it"
    table = np.random.default_rng(1).standard_normal((BUCKETS, 3)).astype(np.float32)
    found = by_distance(table)
    assert found.flags.c_contiguous
    assert found.tolist() == [[float(table[n, head]) for n in expected] for head in range(3)]


@pytest.mark.parametrize(
    ("heads", "most", "exponents"),
    [
        (8, 8.0, [1, 2, 3, 4, 5, 6, 7, 8]), (4, 8.0, [2, 4, 6, 8]), (1, 8.0, [8]), (2, 4.0, [2, 4]),
        (6, 8.0, [2, 4, 6, 8, 1, 3]), (11, 8.0, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5]),
    ],
)  # fmt: skip
def test_slopes_halve_from_head_to_head(heads: int, most: float, exponents: list[float]) -> None:
    assert alibi_slopes(heads, most) == tuple(2.0**-each for each in exponents)
    if most == 8.0:
        assert alibi_slopes(heads) == alibi_slopes(heads, most)


def test_slopes_are_rounded_to_the_nearest_bfloat16() -> None:
    bits = np.random.default_rng(2).integers(0x38000000, 0x3F800000, 200, dtype=np.uint32)
    bits[:4] = (0x3F008000, 0x3F018000, 0x3F007FFF, 0x3F008001)  # halfway: to the even one
    slopes = tuple(map(float, bits.view(np.float32)))
    assert in_bfloat16(slopes) == tuple(torch.tensor(slopes).bfloat16().float().tolist())
