"""The compiled passes, against NumPy in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from engine.sampling import kernels
from engine.sampling.raw import RawDistribution
from engine.sampling.selection import column_maxima

SIZES = [65_536, 65_537, 100_003, 256_000]


def logits_of(size: int) -> np.ndarray:
    random = np.random.default_rng(size)
    logits = (random.standard_normal(size) * 4).astype(np.float32)
    logits[random.integers(0, size, 9)] += 15
    logits[random.integers(0, size, 50)] = -np.inf
    logits.setflags(write=False)
    return logits


@pytest.mark.parametrize("size", SIZES)
def test_softmax_sums(size: int) -> None:
    logits = logits_of(size)
    depths = logits.astype(np.float64) - float(logits.max())
    weights = np.exp(depths)
    finite = depths > -np.inf
    total, inner = kernels.softmax_sums(logits, logits.max())
    assert total == pytest.approx(weights.sum(), rel=5e-7)
    assert inner == pytest.approx((weights[finite] * depths[finite]).sum(), rel=2e-6)


def test_weights_of_every_depth_are_right() -> None:
    # One token at the top, alone in its block, all others at one depth: the sum tells the weight of that depth.
    for depth in np.linspace(-60, 0, 241).astype(np.float32):
        logits = np.full(kernels.LEAST + 1, 3 + depth, np.float32)
        logits[-1] = 3
        weight = np.exp(float(logits[0]) - 3.0)
        total = kernels.softmax_sums(logits, logits.max())[0]
        assert total - 1 == pytest.approx(kernels.LEAST * weight, rel=1e-6, abs=1e-15)


@pytest.mark.parametrize("size", SIZES)
def test_moments(size: int) -> None:
    logits = logits_of(size)
    finite = logits[logits > -np.inf].astype(np.float64)
    for pivot in (0.0, 12.5):
        count, total, squares, maxima = kernels.moments(logits, pivot)
        assert count == len(finite)
        assert total == pytest.approx((finite - pivot).sum(), abs=1e-6 * np.abs(finite - pivot).sum())
        assert squares == pytest.approx(((finite - pivot) ** 2).sum(), rel=1e-6)
        assert np.array_equal(maxima, column_maxima(logits))


@pytest.mark.parametrize("size", SIZES)
def test_allow(size: int) -> None:
    logits, random = logits_of(size), np.random.default_rng(1)
    words = random.integers(0, 1 << 32, -(-size // 32), dtype=np.uint32)
    allowed = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little")[:size].astype(bool)
    out = np.empty_like(logits)
    maxima = kernels.allow(logits, words, out)
    assert np.array_equal(out, np.where(allowed, logits, -np.inf).astype(np.float32))
    assert np.array_equal(maxima, column_maxima(out))


@pytest.mark.parametrize("size", [3, 65_535, 65_536])
def test_the_models_own_distribution_with_and_without_kernels(size: int) -> None:
    logits = np.resize(np.log(np.asarray([0.5, 0.3, 0.2], np.float64)), size).astype(np.float32)
    logits[3:] = -np.inf
    raw = RawDistribution(logits, column_maxima(logits))
    assert raw.entropy == pytest.approx(-(0.5 * np.log(0.5) + 0.3 * np.log(0.3) + 0.2 * np.log(0.2)), rel=1e-6)
    assert raw.likeliest(9) == [0, 1, 2]
    assert [raw.probability(token) for token in (0, 1, 2, size, -1)] == pytest.approx([0.5, 0.3, 0.2, 0.0, 0.0], rel=1e-6)
    assert raw.probability(size - 1) == pytest.approx(0.2 if size == 3 else 0.0, rel=1e-6)
