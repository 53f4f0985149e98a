"""Names and sizes of the cache types, and the rounding error of each."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.backends.base import AttentionShape
from engine.backends.cpu.kv_cache import CpuCache
from engine.backends.kv_formats import CacheType, bytes_per_position, cache_type
from engine.backends.kv_rounding import hadamard_matrix, rounded, rounded_keys
from engine.errors import BadSetting


@pytest.mark.parametrize(
    ("dtype", "value_dtype", "expected"),
    [
        ("auto", "same", "fp16"), ("fp16", "same", "fp16"), ("q6", "same", "q8/q4"), ("q6", "q8", "q8"),
        ("q8", "q4", "q8/q4"),
        ("q8/q4", "same", "q8/q4"), ("q4/q4", "same", "q4"), ("auto", "q4", "fp16/q4"),
        ("auto/q4", "same", "fp16/q4"),
        ("fp8/same", "same", "fp8"), ("q4/fp32", "q8", "q4/q8"),
    ],
)  # fmt: skip
def test_names(dtype: str, value_dtype: str, expected: str) -> None:
    kind = cache_type(dtype, value_dtype)
    assert str(kind) == expected
    assert cache_type(str(kind)) == kind


def test_automatic_is_the_backends_choice() -> None:
    assert cache_type("auto", automatic="fp32") == CacheType("fp32", "fp32")


@pytest.mark.parametrize(
    ("dtype", "value_dtype"), [("q5", "same"), ("q8", "q6"), ("q8/auto", "same"), ("", "same"), ("q8", "")]
)
def test_unknown_names_are_refused(dtype: str, value_dtype: str) -> None:
    with pytest.raises(BadSetting, match="cache type"):
        cache_type(dtype, value_dtype)


def test_bytes_of_a_position() -> None:
    expected = {
        "fp32": 2 * 64 * 4,
        "fp16": 2 * 64 * 2,
        "fp8": 2 * 64,
        "q8": 2 * 68,
        "q6": 68 + 37,
        "q4": 38 + 37,
    }
    assert {name: bytes_per_position(cache_type(name), 1, 64) for name in expected} == expected
    assert bytes_per_position(cache_type("fp16"), 3, 20) == 3 * 2 * (20 + 32)
    assert bytes_per_position(cache_type("q8"), 3, 80) == 3 * 2 * (96 + 6)


@given(
    st.sampled_from(["fp32", "fp16", "fp8", "q8", "q4"]),
    st.sampled_from(["fp32", "fp16", "fp8", "q8", "q4"]), st.integers(1, 4),
    st.integers(1, 40).map(lambda half: 2 * half),
)  # fmt: skip
def test_the_cache_takes_the_stated_bytes(keys: str, values: str, groups: int, dim: int) -> None:
    kind = CacheType(keys, values)
    cache = CpuCache([AttentionShape(groups, groups, dim, 1.0)] * 2, 3, kind)
    assert cache.nbytes == 3 * cache.page_bytes == 3 * 256 * 2 * bytes_per_position(kind, groups, dim)
    assert cache.read_page(1).size == cache.page_bytes


def numbers(kind: str, rows: int = 200, dim: int = 96) -> torch.Tensor:
    """Normal numbers, with outliers in a few dimensions or as single numbers."""
    x = torch.randn(rows, dim, generator=torch.Generator().manual_seed(5))
    if kind == "dimensions":
        x[:, [3, 40, 41, 77]] *= 20
    if kind == "numbers":
        x[::7, 11] = 80.0
    return x


@pytest.mark.parametrize("kind", ["normal", "dimensions", "numbers"])
@pytest.mark.parametrize(
    ("name", "normal", "outliers"),
    [("fp16", 3e-4, 3e-4), ("fp8", 0.028, 0.028), ("q8", 0.006, 0.006), ("q4", 0.085, 0.085)],
)
def test_error_of_a_round_trip(name: str, normal: float, outliers: float, kind: str) -> None:
    """Root mean square error relative to the group of 32: the transform spreads outliers over their group."""
    x = numbers(kind)
    error = (rounded(x, name).float() - x).reshape(-1, 3, 32).pow(2).mean(-1).sqrt()
    size = x.reshape(-1, 3, 32).pow(2).mean(-1).sqrt()
    assert float((error / size).mean()) <= (normal if kind == "normal" else outliers)
    assert torch.equal(rounded(torch.zeros(2, 40), name).float(), torch.zeros(2, 40))


def test_fp8_rounds_to_the_nearest_number_of_its_table() -> None:
    """All 126 positive numbers of e4m3, written out from the specification; ties go to the even one."""
    table = np.array(
        [m / 8 * 2.0**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7) for e in range(16) for m in range(8)][
            :-1
        ]
    )
    x = np.concatenate(
        [
            table,
            (table[1:] + table[:-1]) / 2,
            [500.0, 1e9, np.inf],
            np.random.default_rng(1).uniform(-460, 460, 500),
        ]
    )
    found = rounded(torch.from_numpy(x.astype(np.float32)), "fp8").numpy()
    nearest = np.array([table[np.abs(table - abs(v)).argmin()] for v in np.minimum(np.abs(x), 448)])
    halves = slice(len(table), 2 * len(table) - 1)
    assert np.array_equal(np.abs(np.delete(found, np.r_[halves])), np.delete(nearest, np.r_[halves]))
    index = np.searchsorted(table, found[halves])
    assert (index % 2 == 0).all()
    assert np.isin(index - np.arange(len(table) - 1), (0, 1)).all()
    assert rounded(torch.tensor([float("nan")]), "fp8").item() == 0


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.integers(-6, 4))
def test_transform_is_orthonormal_and_codes_are_bounded(seed: int, power: int) -> None:
    h = hadamard_matrix()
    torch.testing.assert_close(h @ h, torch.eye(32), atol=1e-6, rtol=0)
    x = torch.randn(3, 50, generator=torch.Generator().manual_seed(seed)) * 10.0**power
    limit = float(x.abs().max()) * 50**0.5
    for name, step in (("q8", 1 / 128), ("q4", 1 / 5)):
        assert float((rounded(x, name) - x).abs().max()) <= limit * step + 3e-5  # of less, fp16 has no scale


@pytest.mark.parametrize("name", ["q8", "q4"])
def test_query_aware_rounding_keeps_the_scores_of_similar_queries(name: str) -> None:
    """Compared with rounding to the nearest, the error along the common direction nearly vanishes, and the
    rest grows little.
    """
    generator = torch.Generator().manual_seed(2)
    common, offset = torch.randn(2, 1, 64, generator=generator), 4 * torch.randn(2, 64, generator=generator)
    q = 2 * common + torch.randn(300, 2, 3, 64, generator=generator)
    k = offset + torch.randn(300, 2, 64, generator=generator)
    mean = k.mean(0) if name == "q4" else torch.zeros_like(k[0])
    plain, better = rounded(k, name) - k, rounded_keys(k, q, mean, name) - k
    along = [(e * common[:, 0]).sum(-1).pow(2).mean() / common.pow(2).sum(-1).mean() for e in (plain, better)]
    assert along[1] < (0.01 if name == "q4" else 0.2) * along[0]
    if name == "q4":
        assert better.pow(2).mean() < 0.12 * plain.pow(2).mean()  # the mean's share: 16 + 1 against 1
    near = rounded_keys(k, torch.zeros_like(q), mean, name) - k
    assert better.pow(2).mean() < 1.4 * near.pow(2).mean()
