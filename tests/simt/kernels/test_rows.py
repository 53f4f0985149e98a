from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.kernels import rows
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
