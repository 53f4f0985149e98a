"""Keys of blocks of positions and nearly doubly stochastic matrices: the bodies against their models, and
these against the formulas.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch

from engine.backends.cuda.kernels import balance
from engine.backends.cuda.lowering.call import Call, Runtime
from engine.backends.cuda.lowering.context import Context
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.recurrent import Pool
from engine.backends.graph.rows import Balance
from engine.backends.states import PoolShape
from tests.simt.kernels.test_pointwise import OPS
from tests.simt.kernels.test_recurrent import advanced, numbers
from tests.simt.played import empty, laid_out, played

SHAPES = {
    "alone": PoolShape(70, 4), "overlapping": PoolShape(40, 3, overlapping=True), "one": PoolShape(5, 1),
    "long": PoolShape(9, 50), "long, overlapping": PoolShape(9, 40, overlapping=True),
}  # fmt: skip


def pooling(shape: PoolShape, rows: int) -> tuple[Pool, dict[Buffer, Any]]:
    """A node, and the rows of its inputs: gates that differ by much."""
    made = [Buffer(shape.dim) for _ in range(2 * shape.series)]
    inputs = {x: numbers(i, rows, shape.dim) * (1, 3)[i >= shape.series] for i, x in enumerate(made)}
    values, gates = tuple(made[: shape.series]), tuple(made[shape.series :])
    bias = numbers(9, shape.series, shape.block, shape.dim)
    return Pool(values=values, gates=gates, bias=bias, part=0, shape=shape, y=values[0].like()), inputs


def states_of(shape: PoolShape, count: int = 3) -> Any:
    """States of some positions: sums of weights are above 0."""
    states = numbers(4, count, shape.floats).reshape(count, shape.sums, 3, -1)
    states[:, :, 1] = np.abs(states[:, :, 1]) + 0.5
    return states.reshape(count, -1)


def close(found: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Exponentials are approximate."""
    (y, states), (expected, after) = found
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(states, after, rtol=1e-4, atol=2e-5)
    return y, states


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    "run", [(0, 5, (-1, 1)), (7, 2, (0, 1)), (6, 1, (2, 2)), (3, 9, (1, 0)), (51, 3, (1, 1)), (0, 1, (-1, 2))]
)
def test_keys_of_blocks(name: str, run: tuple[int, int, tuple[int, int]]) -> None:
    shape = SHAPES[name]
    node, inputs = pooling(shape, run[1])
    close(advanced(node, inputs, shape.floats, [run], states=states_of(shape)))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["alone", "overlapping", "long, overlapping"])
@pytest.mark.parametrize("start", [0, 9])
def test_thread_blocks_of_a_long_pass_know_what_came_before(name: str, start: int) -> None:
    """The same bits as in two passes, wherever rows are cut; the state may be written over itself."""
    shape, rows, cut = SHAPES[name], 170, 101
    node, inputs = pooling(shape, rows)
    before = states_of(shape)
    y, states = close(advanced(node, inputs, shape.floats, [(start, rows, (1, 1))], states=before))
    parts = []
    for first, end in ((0, cut), (cut, rows)):
        part = {buffer: x[first:end] for buffer, x in inputs.items()}
        run = [(start + first, end - first, (1, 1))]
        made, before = close(advanced(node, part, shape.floats, run, states=before))
        parts.append(made)
    assert np.concatenate(parts).tobytes() == y.tobytes()
    assert before.tobytes() == states.tobytes()


@pytest.mark.parametrize("name", ["alone", "overlapping"])
def test_several_sequences(name: str) -> None:
    """Bit for bit as each of them alone."""
    shape, runs = SHAPES[name], [(0, 1, (-1, 1)), (6, 3, (0, 0)), (2, 2, (2, 2))]
    node, inputs = pooling(shape, 6)
    before = states_of(shape)
    y, states = close(advanced(node, inputs, shape.floats, runs, several=True, states=before))
    first = 0
    for position, count, numbered in runs:
        part = {buffer: x[first : first + count] for buffer, x in inputs.items()}
        run = [(position, count, numbered)]
        alone, after = close(advanced(node, part, shape.floats, run, states=before))
        assert alone.tobytes() == y[first : first + count].tobytes()
        assert after[numbered[1]].tobytes() == states[numbered[1]].tobytes()
        first += count


@pytest.mark.parametrize(("size", "columns", "eps"), [(9, 3, 0.0), (2, 1, 0.0), (1, 4, 0.25), (70, 2, 0.01)])
@pytest.mark.parametrize("rows", [1, 11])
def test_softmax_down_columns(size: int, columns: int, eps: float, rows: int) -> None:
    """Without rounds, of matrices of any shape."""
    logits, x = numbers(3, rows, size * columns) * 4, Buffer(size * columns)
    node = Balance(x=x, size=size, rounds=0, eps=9.0, added=eps, y=x.like())
    (call,) = balance.LOWER[Balance](cast(Context, None), node)
    assert isinstance(call, Call)
    expected = OPS.balance(torch.from_numpy(logits.astype(np.float64)), size, 0, eps).numpy()
    found = played(call, {x: laid_out(logits), node.y: empty(node.y, rows)}, rows)
    for each in found:
        out = each[node.y]
        np.testing.assert_allclose(out[:, : x.width], expected, rtol=1e-5, atol=1e-7)
        assert (out[:, x.width :] == -77).all()
    alone, _ = played(call, {x: laid_out(logits[-1:]), node.y: empty(node.y, 1)}, 1)
    assert alone[node.y][0].tobytes() == found[0][node.y][-1].tobytes()


@pytest.mark.parametrize(
    ("size", "rounds", "eps", "added"),
    [(4, 20, 1e-6, 1e-6), (1, 1, 0.0, 0.0), (3, 4, 0.02, 0.02), (16, 2, 0.0, 0.0), (4, 3, 0.02, 0.0)],
)
@pytest.mark.parametrize("rows", [1, 11])
def test_balanced_matrices(size: int, rounds: int, eps: float, added: float, rows: int) -> None:
    """Of logits that differ by much; a row's bits are those of the row alone."""
    logits, x = numbers(3, rows, size * size) * 4, Buffer(size * size)
    node = Balance(x=x, size=size, rounds=rounds, eps=eps, added=added, y=x.like())
    (call,) = balance.LOWER[Balance](cast(Context, None), node)
    assert isinstance(call, Call)

    def made(logits: Any) -> list[Any]:
        count = len(logits)
        given = {x: laid_out(logits), node.y: empty(node.y, count), Runtime.ROWS: count}
        return [each[node.y] for each in played(call, given, count)]

    expected = OPS.balance(torch.from_numpy(logits.astype(np.float64)), size, rounds, eps, added).numpy()
    for out in (found := made(logits)):
        np.testing.assert_allclose(out[:, : size * size], expected, rtol=1e-5, atol=1e-7)
        assert (out[:, size * size :] == -77).all()
    for row in range(rows):
        assert made(logits[row : row + 1])[0].tobytes() == found[0][row].tobytes()
