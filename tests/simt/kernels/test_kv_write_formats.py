"""What the twins of the store's kernels keep, against the reference backend's store and the definition of
the formats.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.base import AttentionShape, Step
from engine.backends.kv_formats import GROUP, QUERY_ERROR_WEIGHT
from engine.backends.kv_rounding import hadamard_transform, limited
from engine.backends.reference.backend import ReferenceOps
from engine.backends.reference.kv_cache import ReferenceCache
from tests.simt.kv_write_steps import KvWriteSteps, sequence

PAGES = [2, 0, 3, 1]
BEGINNINGS = (14, 254, 510)
"""Steps of few rows that run over the start of a page, or past the first sixteen positions."""


def cuts(length: int) -> list[int]:
    """Where steps begin: most of them of many rows, those over a page's start of few."""
    return [at for start in BEGINNINGS for at in (start, start + 5) if at < length]


def both_caches(kind: str, shape: AttentionShape, rows: tuple[Any, ...]) -> tuple[Any, Any]:
    """Keys and values (T, G, D) as the kernels and as the reference keep them, written in the same steps."""
    length = len(rows[0])
    steps, reference = KvWriteSteps(kind, shape, PAGES), ReferenceCache([shape], len(PAGES), kind)
    for start, stop in zip([0, *cuts(length)], [*cuts(length), length], strict=True):
        part = tuple(x[start:stop] for x in rows)
        steps.write(start, part)  # type: ignore[arg-type]
        step = Step(
            np.zeros(stop - start, np.int32),
            np.arange(start, stop, dtype=np.int32),
            np.array(PAGES, np.int32),
        )
        q, k, v = (torch.from_numpy(x) for x in part)
        ReferenceOps(step, reference).attention(0, q, k, v, shape)
    order = PAGES[: -(-length // 256)]
    kept = [x[0][order].flatten(0, 1)[:length].float().numpy() for x in (reference.keys, reference.values)]
    return steps.read(0, length), kept


def widened(x: Any, heads: int, dim: int) -> Any:
    """Rows (T, heads * dim) with each head's numbers padded with zeros to whole groups of the transform."""
    return np.pad(x.reshape(len(x), heads, dim), ((0, 0), (0, 0), (0, -dim % GROUP))).reshape(len(x), -1)


def cost(kept: Any, k: Any, q: Any, shape: AttentionShape) -> Any:
    """(T, G): the squared rounding error, and `QUERY_ERROR_WEIGHT` times that along the row's queries."""
    keys = torch.from_numpy(k).reshape(len(k), shape.kv_heads, -1)
    queries = torch.from_numpy(q).reshape(len(q), shape.kv_heads, -1, shape.head_dim)
    units = queries / queries.norm(dim=-1, keepdim=True)
    direction = hadamard_transform(limited(units.sum(-2))).flatten(-2)
    direction = direction / direction.norm(dim=-1, keepdim=True)
    miss = hadamard_transform(torch.from_numpy(kept) - keys).flatten(-2)
    return (miss**2).sum(-1) + QUERY_ERROR_WEIGHT * (miss * direction).sum(-1) ** 2


@pytest.mark.parametrize(("kind", "dim"), [("fp32", 9), ("fp16", 40), ("fp8", 40)])
def test_plain_formats_are_those_of_the_reference(kind: str, dim: int) -> None:
    shape = AttentionShape(4, 2, dim, 1.0)
    rows = sequence(dim, 300, shape)
    rows[1][3, :5], rows[2][4, :5] = (np.nan, 1e6, -1e6, 447.0, 2e-3), (-np.nan, 460.0, -1e-9, 0.0, 17.5)
    found, expected = both_caches(kind, shape, rows)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


CASES = [("q8", 40, 20), ("q8/q4", 64, 20), ("q4", 32, 20)]
MORE = [
    ("q8", 32, 20),
    ("q8", 80, 280),
    ("q8/q4", 128, 20),
    ("q4", 40, 262),
    ("q4", 64, 520),
    ("q4", 80, 300),
    ("q4", 128, 40),
]


@pytest.mark.parametrize(
    ("kind", "dim", "length"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)]
)
def test_quantised_formats_are_as_good_as_the_reference(kind: str, dim: int, length: int) -> None:
    shape = AttentionShape(4, 2, dim, 1.0)
    rows = sequence(dim, length, shape)
    (keys, values), (expected_keys, expected_values) = both_caches(kind, shape, rows)
    # Whole groups are rounded, padding included: their cost is what rounding keeps low, and not that of the
    # first `dim` alone. Of whole groups are the store's means, too, so a store of padded heads holds the
    # same, and the reference has to be asked for one.
    whole = AttentionShape(4, 2, dim + -dim % GROUP, 1.0)
    padded = tuple(widened(x, heads, dim) for x, heads in zip(rows, (4, 2, 2), strict=True))
    (padded_keys, padded_values), (padded_expected, padded_expected_values) = both_caches(kind, whole, padded)
    np.testing.assert_array_equal(padded_keys[..., :dim], keys)
    found, expected = (
        cost(kept, padded[1], padded[0], whole).double() for kept in (padded_keys, padded_expected)
    )
    assert float(found.sum() / expected.sum()) == pytest.approx(1, abs=0.005)
    wide = rows[2].reshape(values.shape)
    assert float(((values - wide) ** 2).sum() / ((expected_values - wide) ** 2).sum()) == pytest.approx(
        1, abs=1e-3
    )
    # A key's code on a border, decided otherwise, changes those behind it and the means; all else is the
    # same.
    same = np.isclose(keys, expected_keys, rtol=0, atol=1e-4).all(axis=2)
    assert same[:16].mean() > 0.8
    # Values' codes stand alone. Their borders are kept to 0.0007 of the way between two, on either side; a
    # group has 32 codes.
    codes, expected_codes = (
        hadamard_transform(torch.from_numpy(x)).numpy() for x in (padded_values, padded_expected_values)
    )
    assert np.isclose(codes, expected_codes, rtol=0, atol=1e-4).all(axis=3).mean() > 1 - GROUP * 2 * 0.0007
