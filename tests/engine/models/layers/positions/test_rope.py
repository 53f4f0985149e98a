"""Tables of rope against their formulas, for every scaling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from engine.errors import BadCheckpoint
from engine.models.layers.positions.rope import (
    RopeConfig,
    llama3_divisors,
    rotary_table,
    scaling_table,
    yarn_divisors,
    yarn_magnitude,
)

PLAIN: dict[str, Any] = {"base": 100.0, "dim": 8, "interleaved": True, "divisors": (1.0,) * 4}
POSITIONS = np.arange(6.0)[:, None]


def made(**change: Any) -> RopeConfig:
    return RopeConfig(**{**PLAIN, **change})


def angles(base: float = 100.0, divisors: tuple[float, ...] = (1.0,) * 4) -> np.ndarray[Any, Any]:
    """Position times frequency, (6, 4)."""
    found: np.ndarray[Any, Any] = POSITIONS * [base ** (-2 * i / 8) / divisors[i] for i in range(4)]
    return found


def check(rope: RopeConfig, expected: np.ndarray[Any, Any], factor: Any = 1.0, **more: Any) -> None:
    table = rotary_table(rope, 6, **more)
    assert (table.cos.dtype, table.cos.shape, table.interleaved) == (np.float32, (6, 4), rope.interleaved)
    np.testing.assert_allclose(table.cos, np.cos(expected) * factor, atol=1e-6)
    np.testing.assert_allclose(table.sin, np.sin(expected) * factor, atol=1e-6)


def test_each_frequency_is_a_power_of_the_base() -> None:
    check(made(), angles())
    check(made(interleaved=False, base=7.0), angles(7.0))
    check(made(divisors=(1.0, 2.0, 4.0, math.inf)), angles(divisors=(1.0, 2.0, 4.0, math.inf)))
    check(made(magnitude=1.25), angles(), 1.25)


@pytest.mark.parametrize(("context", "long"), [(0, False), (16, False), (17, True)])
def test_longrope_depends_on_the_context(context: int, long: bool) -> None:
    own = (2.0, 3.0, 4.0, 5.0)
    rope = made(magnitude=1.1, original_length=16, long_divisors=own, long_magnitude=1.3)
    check(rope, angles(divisors=own) if long else angles(), 1.3 if long else 1.1, context=context)


@pytest.mark.parametrize(("context", "stretch"), [(16, 1.0), (32, 7.0)])
def test_dynamic_scaling_raises_the_base(context: int, stretch: float) -> None:
    """By (factor * context / original - (factor - 1))^(dim / (dim - 2))."""
    rope = made(original_length=16, dynamic=6.0)
    check(rope, angles(100.0 * stretch ** (8 / 6)), context=context)


def test_queries_are_scaled_by_their_position() -> None:
    tempered = made(query_beta=0.5, query_length=2)
    steps = 1 + 0.5 * np.log(1 + np.floor(POSITIONS / 2))
    check(tempered, angles(), steps, queries=True)
    check(tempered, angles())
    check(made(query_beta=0.5, query_length=2, query_offset=1), angles(),
          1 + 0.5 * np.log(1 + np.floor((POSITIONS + 1) / 2)), queries=True)  # fmt: skip
    powered = made(query_power=0.25, query_length=4, magnitude=2.0)
    check(powered, angles(), 2 * (1 + POSITIONS / 4) ** 0.25, queries=True)
    assert [made().scales_queries, tempered.scales_queries, powered.scales_queries] == [False, True, True]
    check(made(), angles(), queries=True)


def test_a_table_that_only_scales() -> None:
    table = scaling_table(made(query_beta=0.5, query_length=2), 6, 10)
    assert (table.cos.shape, table.sin.any(), table.cos.dtype) == ((6, 5), False, np.float32)
    expected = np.broadcast_to(1 + 0.5 * np.log(1 + np.floor(POSITIONS / 2)), (6, 5))
    np.testing.assert_allclose(table.cos, expected, rtol=1e-6)


def test_yarn_keeps_fast_dimensions_and_divides_slow_ones() -> None:
    """With 64 / (2 pi 100^(i / 4)) rotations in the original context, i = 0.81 has 4 of them, i = 2.02 has
    one, and those between lie on a line.
    """
    ends = [4 * math.log(64 / (rotations * 2 * math.pi)) / math.log(100) for rotations in (4.0, 1.0)]
    assert ends == pytest.approx([0.812, 2.016], abs=0.001)
    kept = [min(max(1 - (i - ends[0]) / (ends[1] - ends[0]), 0), 1) for i in range(4)]
    exact = yarn_divisors(100.0, 8, 5.0, 64, 4.0, 1.0, truncate=False)
    assert exact == pytest.approx([1 / ((1 - k) / 5 + k) for k in kept])
    assert (exact[0], exact[3]) == (1.0, 5.0)
    rounded = yarn_divisors(100.0, 8, 5.0, 64, 4.0, 1.0)
    kept = [1 - i / 3 for i in range(4)]  # from 0 to 3
    assert rounded == pytest.approx([1 / ((1 - k) / 5 + k) for k in kept])


def test_the_ends_of_yarns_ramp_lie_inside_the_head() -> None:
    assert yarn_divisors(100.0, 8, 5.0, 6, 4.0, 1.0) == pytest.approx((1.0, 5.0, 5.0, 5.0))
    long = yarn_divisors(100.0, 8, 5.0, 1 << 16, 1000.0, 1.0)  # from 2 to 7, the last one
    assert long == pytest.approx((1.0, 1.0, 1.0, 1 / (0.2 / 5 + 0.8)))
    with pytest.raises(BadCheckpoint, match="with yarn a larger one was expected"):
        yarn_divisors(1.0, 8, 5.0, 64, 4.0, 1.0)


@pytest.mark.parametrize(
    ("factor", "weight", "magnitude"),
    [(1.0, 1.0, 1.0), (0.5, 1.0, 1.0), (math.e, 1.0, 1.1), (math.e, 0.5, 1.05)],
)
def test_the_magnitude_of_yarn(factor: float, weight: float, magnitude: float) -> None:
    assert yarn_magnitude(factor, weight) == pytest.approx(magnitude)


def test_llama3_divides_long_waves() -> None:
    """Frequencies of 81.5, 25.8, 8.15 and 2.58 rotations in 512 tokens, between 3 and 30 of them."""
    rotations = [512 / (2 * math.pi) * 100 ** (-i / 4) for i in range(4)]
    kept = [min(max((each - 3) / 27, 0), 1) for each in rotations]
    assert kept == pytest.approx([1, 0.843, 0.191, 0], abs=0.001)
    assert llama3_divisors(100.0, 8, 8.0, 3.0, 30.0, 512) == pytest.approx(
        [1 / ((1 - k) / 8 + k) for k in kept]
    )
