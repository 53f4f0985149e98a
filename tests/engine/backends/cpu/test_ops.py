"""The CPU's row-wise operations against the reference backend: odd widths, parts and rows, extreme
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from engine.backends.activations import ACTIVATIONS, GATES
from engine.backends.base import AttentionShape, RotaryTable, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.codegen.kernel_cache import KERNELS
from engine.backends.cpu.lowering.constants import Constants
from engine.backends.cpu.lowering.lower import LoweredPass
from engine.backends.graph.cache import CacheSpec
from engine.backends.kv_formats import cache_type
from engine.backends.reference.backend import ReferenceBackend
from tests.engine.backends.kernel_oracles import Matrix

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.usefixtures("memory_without_numbers")
ROWS = (1, 2, 3, 5, 7, 8, 9, 16, 17, 20, 53)
TINY = AttentionShape(1, 1, 16, 1.0)


class Rows:
    """A table of random rows as a `RawTensor`: row i is the embedding of token i."""

    def __init__(self, width: int, seed: int, spread: float = 1.0) -> None:
        self.matrix = Matrix("F32", (64, width), seed)
        self.matrix.values = self.matrix.values * np.float32(spread)
        self.matrix.data = self.matrix.values.reshape(-1).view(np.uint8)


def both(
    forward: Callable[[Any, list[Any]], Any], matrices: list[Matrix], rows: int, first: int = 3
) -> tuple[Array, Array]:
    """The results of the CPU and the reference for tokens 0, 1, 2 .. at positions from `first`, in scattered
    pages.
    """
    found = []
    for backend in (CpuBackend(2), ReferenceBackend()):
        weights = [backend.load_weight(m) for m in matrices]
        program = backend.record(
            lambda ops, w=weights: forward(ops, w), backend.new_cache([TINY], 2, "fp32"), max(ROWS)
        )  # type: ignore[misc]
        ids = np.arange(rows, dtype=np.int32)
        with closing(program):
            found.append(
                program.run(Step(ids, ids + np.int32(first), np.array([1, 0], np.int32), rows)).copy()
            )
    return found[0], found[1]


def assert_near(actual: Array, expected: Array, tolerance: float = 3e-6) -> None:
    """Largest difference relative to the largest expected value: both are sums of float32 numbers, in
    different orders.
    """
    assert actual.shape == expected.shape
    error = np.abs(actual - expected) / np.abs(expected).max()
    where = np.unravel_index(int(error.argmax()), error.shape)
    assert error[where] <= tolerance, (
        f"{error[where]:.3g} at {where}: {actual[where]} instead of {expected[where]}"
    )


@pytest.mark.parametrize(
    ("width", "heads"), [(100, 1), (64, 4), (72, 3), (100, 5), (7, 7), (320, 5), (33, 1)]
)
@pytest.mark.parametrize("own", [False, True])
def test_norms(width: int, heads: int, own: bool) -> None:
    rng = np.random.default_rng(1)
    size = width if own else width // heads
    weight, bias = rng.uniform(0.5, 2, size).astype(np.float32), rng.standard_normal(size).astype(np.float32)
    down = Matrix("F32", (5, width), 4)

    def forward(ops: Any, w: list[Any]) -> Any:
        x = ops.last_rows(ops.embed(w[0]))
        parts = [ops.rms_norm(x, weight, 1e-3, heads), ops.layer_norm(x, weight, bias, 1e-3, heads)]
        total = ops.add(parts[0], ops.add(parts[1], ops.layer_norm(x, weight, None, 1e-3, heads), 3.0), 7.0)
        # The product shows whether the padding of a row is zero still.
        return ops.linear(total, w[1])

    for rows in ROWS:
        assert_near(*both(forward, [Rows(width, 2).matrix, down], rows))


@pytest.mark.parametrize("width", [7, 33, 64, 320])
@pytest.mark.parametrize("residual", [False, True])
def test_mixtures_of_rows(width: int, residual: bool) -> None:
    """Weights of each row, from a column on."""
    tables = [Rows(width, seed).matrix for seed in (1, 2, 3)]
    down, weights = Matrix("F32", (5, width), 4), Rows(5, 5).matrix

    def forward(ops: Any, w: list[Any]) -> Any:
        *parts, scales = (ops.last_rows(ops.embed(table)) for table in w[:4])
        y = ops.mix(parts[:2], scales, 1, parts[2] if residual else None)
        return ops.linear(ops.mix([y], scales, 4), w[4])

    for rows in ROWS:
        assert_near(*both(forward, [*tables, weights, down], rows))
    x, y, z, scales = (m.values[:4].astype(np.float64) for m in (*tables, weights))
    exact = scales[:, 1:2] * x + scales[:, 2:3] * y + (z if residual else 0)
    exact = (scales[:, 4:5] * exact) @ down.values.T.astype(np.float64)
    assert_near(both(forward, [*tables, weights, down], 4)[0], exact)


@pytest.mark.parametrize(("size", "columns"), [(1, 1), (9, 1), (5, 3), (2, 40)])
def test_softmaxes_of_columns(size: int, columns: int) -> None:
    logits, down = Rows(size * columns, 1, 3.0).matrix, Matrix("F32", (5, size * columns), 4)

    def forward(ops: Any, w: list[Any]) -> Any:
        y = ops.balance(ops.last_rows(ops.embed(w[0])), size, 0, 0.0)
        return ops.join(y, ops.linear(y, w[1]), 1)

    for rows in ROWS:
        assert_near(*both(forward, [logits, down], rows))
    x = np.exp(logits.values[:4].astype(np.float64).reshape(4, size, columns))
    shares = (x / x.sum(1, keepdims=True)).reshape(4, -1)
    assert_near(both(forward, [logits, down], 4)[0][:, : size * columns], shares)


@pytest.mark.parametrize(
    ("size", "rounds", "eps", "added"),
    [(1, 1, 1e-6, None), (3, 20, 1e-6, None), (4, 4, 0.02, None), (16, 2, 0.0, None), (4, 3, 0.02, 0.0)],
)
def test_balanced_matrices(size: int, rounds: int, eps: float, added: float | None) -> None:
    """Rows come last: without an epsilon their sums are 1."""
    logits, down = Rows(size * size, 1, 3.0).matrix, Matrix("F32", (5, size * size), 4)

    def forward(ops: Any, w: list[Any]) -> Any:
        y = ops.balance(ops.last_rows(ops.embed(w[0])), size, rounds, eps, added)
        return ops.join(y, ops.linear(y, w[1]), 1)

    for rows in ROWS:
        found, expected = both(forward, [logits, down], rows)
        assert_near(found, expected)
        made = found[:, : size * size].reshape(rows, size, size)
        if eps <= 1e-6:
            np.testing.assert_allclose(made.sum(2), 1, atol=1e-5)
    x = logits.values[:1].astype(np.float64).reshape(size, size)
    y = np.exp(x) / np.exp(x).sum(0) + (eps if added is None else added)
    for turn in range(2 * rounds - 1):
        y /= y.sum(0 if turn % 2 else 1, keepdims=True) + eps
    assert_near(both(forward, [logits, down], 1)[0][:, : size * size], y.reshape(1, -1))


@pytest.mark.parametrize("width", [1, 7, 33, 64, 320])
@pytest.mark.parametrize("centred", [False, True])
def test_magnitudes_of_rows(width: int, centred: bool) -> None:
    table = Rows(width, 1).matrix
    table.values[:, 0] += np.float32(3)

    def forward(ops: Any, w: list[Any]) -> Any:
        x = ops.last_rows(ops.embed(w[0]))
        return ops.mix([x], ops.magnitude(x, centred), 0)

    x = table.values[:20].astype(np.float64)
    size = (x.std(1) if centred else np.sqrt((x * x).mean(1)))[:, None]
    for found in both(forward, [table], 20):
        np.testing.assert_allclose(found, x * size, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("heads", [1, 2])
def test_norm_of_a_row_far_from_zero(heads: int) -> None:
    """The variance is computed from differences from the mean, so nothing cancels."""
    matrix = Rows(96, 2).matrix
    matrix.values = matrix.values + np.float32(1000)
    matrix.data = matrix.values.reshape(-1).view(np.uint8)
    ones = np.ones(96 // heads, np.float32)
    actual, _ = both(
        lambda ops, w: ops.layer_norm(ops.last_rows(ops.embed(w[0])), ones, None, 1e-5, heads), [matrix], 9
    )
    x = matrix.values[:9].astype(np.float64).reshape(9, heads, -1)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    assert np.abs(actual - expected.reshape(9, -1)).max() < 1e-3


@pytest.mark.parametrize("activation", GATES)
def test_activations(activation: str) -> None:
    """Numbers of many sizes, exact zeros, and those where exp overflows."""
    gate, up = Rows(1100, 1, 3.0).matrix, Rows(1100, 2, 3.0).matrix
    gate.values[1] = np.linspace(-12, 12, 1100)
    gate.values[2] = np.linspace(-300, 300, 1100)
    gate.values[3] = np.linspace(-1e-3, 1e-3, 1100)
    gate.values[0, :4] = (0, -0.0, 1e4, -1e4)

    def gated(ops: Any, w: list[Any]) -> Any:
        return ops.gated(ops.last_rows(ops.embed(w[0])), ops.last_rows(ops.embed(w[1])), activation)

    def activated(ops: Any, w: list[Any]) -> Any:
        return ops.activate(ops.last_rows(ops.embed(w[0])), activation)

    for rows in (1, 4, 9):
        for forward in (gated, activated)[: 2 if activation in ACTIVATIONS[:-1] else 1]:
            actual, expected = both(forward, [gate, up], rows)
            assert np.abs(actual - expected).max() <= 2e-6 * np.abs(expected).max()
            for row in range(rows):
                scale = np.maximum(np.abs(expected[row]), 1e-6 * np.abs(gate.values[row]))
                near = (
                    np.abs(actual[row] - expected[row])
                    <= 3e-6 * np.maximum(scale, 1e-30) + 2.5e-7 * np.abs(expected[row]).max()
                )
                assert near.all()


@pytest.mark.parametrize(
    ("function", "constants"),
    [
        ("xielu", (0.8, 0.9, 0.4)),
        ("clamp", (1.5,)),
        ("sigmoid", (2.0, 0.25)),
        ("root", (1e-2,)),
        ("between", (-0.5, 1.25)),
    ],
)
def test_functions_with_numbers(function: str, constants: tuple[float, ...]) -> None:
    """Against float64: numbers of both signs, near zero and far from it."""
    matrix = Rows(1100, 1, 3.0).matrix
    matrix.values[1] = np.linspace(-60, 60, 1100)
    matrix.values[2] = np.linspace(-1, 1, 1100)
    matrix.values[3] = np.linspace(-1e-3, 1e-3, 1100)
    for rows in (1, 9):
        actual, _ = both(
            lambda ops, w: ops.activate_with(ops.last_rows(ops.embed(w[0])), function, constants),
            [matrix],
            rows,
        )
        x = matrix.values[:rows].astype(np.float64)
        bent = np.where(x > 0, 0.8 * x * x, 0.9 * (np.expm1(np.minimum(x, 0)) - x))
        expected = {
            "xielu": bent + 0.4 * x, "clamp": np.clip(x, -1.5, 1.5), "sigmoid": 2 / (1 + np.exp(-x)) + 0.25,
            "root": np.sign(x) * np.sqrt(np.maximum(np.abs(x), 1e-2)), "between": np.clip(x, -0.5, 1.25),
        }[function]  # fmt: skip
        size = np.abs(expected) if function in ("sigmoid", "root") else np.abs(bent) + np.abs(x)
        assert (np.abs(actual - expected) <= 5e-7 * size).all()


def test_gelu_against_the_error_function() -> None:
    """erf by math.erf in float64: the absolute error of Phi is below 1.5e-7."""
    matrix = Rows(1600, 1).matrix
    matrix.values[0] = np.linspace(-9, 9, 1600)
    actual, _ = both(lambda ops, w: ops.activate(ops.last_rows(ops.embed(w[0])), "gelu"), [matrix], 1)
    x = matrix.values[0].astype(np.float64)
    expected = x * 0.5 * np.array([math.erfc(-v / math.sqrt(2)) for v in x])
    assert (np.abs(actual[0] - expected) <= 1.5e-7 * np.maximum(np.abs(x), 1e-3)).all()


@pytest.mark.parametrize(("scale", "cap"), [(1.0, 30.0), (0.0625, 0.0), (3.0, 0.5), (-0.5, 2.0)])
def test_soft_cap(scale: float, cap: float) -> None:
    matrix = Rows(1050, 1, 20.0).matrix
    matrix.values[0] *= np.float32(1e-5)
    for rows in (1, 9):
        actual, expected = both(
            lambda ops, w: ops.soft_cap(ops.last_rows(ops.embed(w[0])), scale, cap), [matrix], rows
        )
        assert (np.abs(actual - expected) <= 1e-6 * np.abs(expected) + 1e-12).all()


@pytest.mark.parametrize(("start", "width"), [(0, 100), (3, 40), (17, 33), (99, 1), (16, 64)])
def test_columns_and_positions(start: int, width: int) -> None:
    positions = np.random.default_rng(5).standard_normal((64, width)).astype(np.float32)
    down = Matrix("F32", (11, width), 4)

    def forward(ops: Any, w: list[Any]) -> Any:
        part = ops.columns(ops.embed(w[0]), start, width)
        return ops.linear(ops.last_rows(ops.add_positions(part, positions)), w[1])

    for rows in ROWS:
        assert_near(*both(forward, [Rows(100, 1).matrix, down], rows))


@pytest.mark.parametrize(("heads", "widths"), [(1, (100, 7)), (3, (11, 5)), (2, (16, 33))])
def test_joined_parts(heads: int, widths: tuple[int, int]) -> None:
    parts = [Rows(heads * width, seed).matrix for seed, width in enumerate(widths, 1)]
    down = Matrix("F32", (5, heads * sum(widths)), 4)

    def forward(ops: Any, w: list[Any]) -> Any:
        x, y = (ops.last_rows(ops.embed(table)) for table in w[:2])
        return ops.linear(ops.join(x, y, heads), w[2])

    for rows in ROWS:
        assert_near(*both(forward, [*parts, down], rows))
    joined = np.concatenate([part.values[:4].reshape(4, heads, -1) for part in parts], 2).reshape(4, -1)
    exact = joined.astype(np.float64) @ down.values.T.astype(np.float64)
    assert_near(both(forward, [*parts, down], 4)[0], exact)


def test_a_position_past_a_table_is_refused() -> None:
    with pytest.raises(AssertionError, match="past the end"):
        both(
            lambda ops, w: ops.last_rows(ops.add_positions(ops.embed(w[0]), np.zeros((8, 32), np.float32))),
            [Rows(32, 1).matrix],
            6,
        )


def _tables(ops: Any, w: list[Any]) -> Any:
    angles = np.outer(np.arange(64), [1.0, 0.1]).astype(np.float32)
    short, long = (RotaryTable(np.cos(angles * f), np.sin(angles * f), False) for f in (1, 2))
    x = ops.embed(w[0])
    for _ in range(5):
        x = ops.rope(ops.rope(x, short, 4), long, 4)
    return ops.last_rows(x)


def test_a_table_is_kept_once() -> None:
    """However many layers use it; and two tables of one model are two."""
    backend = CpuBackend(1)
    w = [backend.load_weight(Rows(32, 1).matrix)]
    addresses: list[int] = []

    class Noted(Constants):
        def table(self, table: Any) -> int:
            addresses.append(super().table(table))
            return addresses[-1]

    LoweredPass(lambda ops: _tables(ops, w), CacheSpec(cache_type("fp16")), constants=Noted())
    assert len(addresses) == 20
    assert len(set(addresses)) == 4
    assert_near(*both(_tables, [Rows(32, 1).matrix], 9))


def test_exactly_the_kernels_that_a_pass_calls_are_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Afterwards nothing is left to compile."""
    backend = CpuBackend(1)
    table = backend.load_weight(Rows(32, 1).matrix)

    def forward(ops: Any) -> Any:
        return ops.linear(ops.last_rows(ops.add(ops.embed(table), ops.embed(table), 2.0)), table)

    asked: list[list[str]] = []
    compiling = KERNELS.compile
    monkeypatch.setattr(
        KERNELS, "compile", lambda names, beside=None: asked.append(names) or compiling(names, beside)
    )
    events = list(backend.prepare(forward, "q8/q4"))
    assert sorted(set(asked[0])) == ["add", "embed_f32", "last_rows", "linear_f32"]
    assert all(event.stage == "Preparing the CPU kernels" for event in events)
    assert list(KERNELS.compile(asked[0])) == []
    backend.record(forward, backend.new_cache([TINY], 1, "fp16"), 4).close()
    assert asked[2] == asked[0]
