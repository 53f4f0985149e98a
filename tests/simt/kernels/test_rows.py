from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.kernels import rows
from engine.backends.cuda.kernels.linear.heads import move_heads_call
from engine.backends.cuda.lowering.call import Runtime
from engine.backends.graph.buffers import Buffer
from tests.simt.played import TABLES, empty, laid_out, played


def bits(*shape: int) -> Any:
    """Numbers of every kind, NaN of all signs among them: what is only moved stays as it is."""
    return (
        np.random.default_rng(sum(shape))
        .integers(0, 1 << 32, shape, np.uint64)
        .astype(np.uint32)
        .view(np.float32)
    )


@pytest.mark.parametrize(("start", "width"), [(0, 200), (3, 131), (199, 1)])
def test_columns(start: int, width: int) -> None:
    x = bits(3, 200)
    a, y = Buffer(200, copies=3), Buffer(width, copies=3)
    call = rows.columns_call(a, start, y)
    assert call.copies == 3
    for out in played(call, {a: laid_out(x), y: empty(y, 3)}, 3):
        np.testing.assert_array_equal(
            out[y][:, :width].view(np.uint32), x[:, start : start + width].view(np.uint32)
        )
        assert (out[y][:, width:] == -77).all()


def test_permute() -> None:
    x, order = bits(2, 150), np.random.default_rng(1).permutation(150).astype(np.int32)[:140]
    a, y = Buffer(150), Buffer(140)
    for out in played(
        rows.permute_call(a, TABLES[0], y), {a: laid_out(x), y: empty(y, 2), TABLES[0]: order}, 2
    ):
        np.testing.assert_array_equal(out[y][:, :140].view(np.uint32), x[:, order].view(np.uint32))


@pytest.mark.parametrize(("width", "first"), [(66, 0), (515, 3)])
def test_last_rows(width: int, first: int) -> None:
    x = bits(5, width)
    a, y = Buffer(width), Buffer(width, True)
    call = rows.last_rows_call(a, y)
    assert call.on_logit_rows
    for out in played(call, {a: laid_out(x), y: empty(y, 5 - first), Runtime.FIRST_ROW: first}, 5 - first):
        np.testing.assert_array_equal(out[y][:, :width].view(np.uint32), x[first:].view(np.uint32))


@pytest.mark.parametrize(("heads", "one", "other"), [(1, 40, 8), (4, 130, 3), (3, 1, 200)])
def test_join(heads: int, one: int, other: int) -> None:
    x, z = bits(2, heads * one), bits(2, heads * other)
    a, b, y = Buffer(heads * one), Buffer(heads * other), Buffer(heads * (one + other))
    expected = np.concatenate([x.reshape(2, heads, -1), z.reshape(2, heads, -1)], 2).reshape(2, -1)
    for out in played(rows.join_call(a, b, y, heads), {a: laid_out(x), b: laid_out(z), y: empty(y, 2)}, 2):
        np.testing.assert_array_equal(out[y][:, : y.width].view(np.uint32), expected.view(np.uint32))
        assert (out[y][:, y.width :] == -77).all()


@pytest.mark.parametrize(("heads", "width"), [(3, 40), (2, 200)])
def test_heads_are_moved_apart_and_back(heads: int, width: int) -> None:
    x = bits(2, heads * width)
    whole, apart = Buffer(heads * width), Buffer(width, copies=heads)
    for out in played(move_heads_call(whole, apart), {whole: laid_out(x), apart: empty(apart, 2 * heads)}, 2):
        found = out[apart][:, :width]
        np.testing.assert_array_equal(found.view(np.uint32), x.reshape(-1, width).view(np.uint32))
        assert (out[apart][:, width:] == -77).all()
    given = {apart: laid_out(x.reshape(-1, width)), whole: empty(whole, 2)}
    for out in played(move_heads_call(apart, whole), given, 2):
        np.testing.assert_array_equal(out[whole][:, : whole.width].view(np.uint32), x.view(np.uint32))
        assert (out[whole][:, whole.width :] == -77).all()


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("count", "first", "residual"), [(1, 0, False), (3, 4, True), (4, 2, True)])
def test_mix(count: int, first: int, residual: bool) -> None:
    """In order: bit by bit as one sum after the other."""
    values, weights = numbers(count + 1, 2, 131), numbers(2, first + count)
    parts, w, y = [Buffer(131) for _ in range(count + 1)], Buffer(first + count), Buffer(131)
    (call,) = rows.mix_calls(parts[:count], w, first, parts[count] if residual else None, y)
    arrays = {buffer: laid_out(each) for buffer, each in zip(parts, values, strict=True)}
    expected = values[count].copy() if residual else np.zeros((2, 131), np.float32)
    for i in range(count):
        expected += values[i] * weights[:, first + i, None]
    for out in played(call, {**arrays, w: laid_out(weights), y: empty(y, 2)}, 2):
        np.testing.assert_allclose(out[y][:, :131], expected, rtol=2e-6, atol=1e-6)
        assert (out[y][:, 131:] == -77).all()


def test_more_parts_go_on_with_the_sum() -> None:
    parts, w, r, y = [Buffer(60) for _ in range(6)], Buffer(9), Buffer(60), Buffer(60)
    one, other = rows.mix_calls(parts, w, 3, r, y)
    assert (one.arguments[:4], other.arguments[:4]) == (tuple(parts[:4]), (*parts[4:], 0, 0))
    assert (one.arguments[7], other.arguments[7]) == (r, y)
    assert (one.arguments[-2:], other.arguments[-2:]) == ((4, 3), (2, 7))
    assert y in other.reads


@pytest.mark.parametrize("width", [64, 131])
def test_rows_that_are_kept_and_given(width: int) -> None:
    """Rows of the host lie without gaps; those after the step's stay as they are."""
    x, a, y = bits(2, width), Buffer(width), Buffer(width)
    host = np.full((3, width), 7, np.float32)
    for out in played(rows.keep_call(a, y, TABLES[0]), {a: laid_out(x), y: empty(y, 2), TABLES[0]: host}, 2):
        for found in (out[y][:, :width], out[TABLES[0]][:2]):
            np.testing.assert_array_equal(found.view(np.uint32), x.view(np.uint32))
        assert (out[TABLES[0]][2] == 7).all()
    for out in played(rows.given_call(TABLES[0], y), {y: empty(y, 2), TABLES[0]: x}, 2):
        np.testing.assert_array_equal(out[y][:, :width].view(np.uint32), x.view(np.uint32))
        assert (out[y][:, width:] == -77).all()
