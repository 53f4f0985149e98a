from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.base import RotaryTable, Step
from engine.backends.cuda.kernels.rope import HeadNorm, Rotated, rope_call
from engine.backends.cuda.lowering.call import Runtime
from engine.backends.graph.buffers import Buffer
from engine.backends.reference.backend import ReferenceOps
from tests.simt.played import TABLES, empty, laid_out, played

ROWS, FIRST = 2, 7


def numbers(*shape: int, centre: float = 0.0) -> Any:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) + centre).astype(np.float32)


def table(half: int, interleaved: bool) -> RotaryTable:
    angles = np.arange(12)[:, None] * 0.3 ** np.arange(half) + 0.1
    return RotaryTable(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), interleaved)


def reference(rows: int = ROWS, first: int = FIRST) -> Any:
    positions = np.arange(first, first + rows, dtype=np.int32)
    return ReferenceOps(Step(np.zeros(rows, np.int32), positions, np.zeros(1, np.int32)), None)  # type: ignore[arg-type]


def rotated(
    parts: list[Rotated], rotary: RotaryTable, inputs: list[Any], weights: Any = (), rows: int = ROWS
) -> list[list[Any]]:
    """y of each part, by the interpreter and by the model; `weights` go to TABLES from 2 on."""
    call = rope_call(parts, rotary, TABLES[0], TABLES[1])
    arrays: dict[Any, Any] = {
        TABLES[0]: rotary.cos,
        TABLES[1]: rotary.sin,
        Runtime.ROPE_POSITIONS: np.arange(FIRST, FIRST + rows, dtype=np.int32),
    }
    arrays |= {TABLES[2 + i]: weight for i, weight in enumerate(weights)}
    arrays |= {part.x: laid_out(x) for part, x in zip(parts, inputs, strict=True)}
    arrays |= {part.y: empty(part.y, rows) for part in parts}
    return [[out[part.y] for part in parts] for out in played(call, arrays, rows)]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    ("half", "width"), [(4, 8), (32, 64), (20, 80), (48, 128), (1, 35), (64, 128), (128, 256)]
)
def test_queries_and_keys_turn_together(half: int, width: int, interleaved: bool) -> None:
    rotary = table(half, interleaved)
    q, k = numbers(ROWS, 5 * width), numbers(ROWS, 2 * width)
    parts = [
        Rotated(Buffer(5 * width), Buffer(5 * width), 5),
        Rotated(Buffer(2 * width), Buffer(2 * width), 2),
    ]
    for outs in rotated(parts, rotary, [q, k]):
        for x, out, part in zip((q, k), outs, parts, strict=True):
            expected = reference().rope(torch.from_numpy(x), rotary, part.heads).numpy()
            np.testing.assert_allclose(out[:, : part.y.width], expected, rtol=1e-6, atol=1e-6)
            assert (out[:, part.y.width :] == -77).all()


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    ("half", "width", "interleaved"),
    [
        (32, 64, False), (5, 44, True), (64, 128, False),
        pytest.param(128, 256, False, marks=pytest.mark.slow),
        pytest.param(64, 128, True, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_heads_are_normed_first(kind: str, shared: bool, half: int, width: int, interleaved: bool) -> None:
    rotary, ops = table(half, interleaved), reference()
    q, k = numbers(ROWS, 3 * width, centre=0.5), numbers(ROWS, 2 * width, centre=-1.0)
    weights = [numbers(width if shared else heads * width) for heads in (3, 2)]
    biases = [weight[::-1].copy() for weight in weights]
    norms = [
        HeadNorm(kind, 1e-5, TABLES[2 + i], TABLES[4 + i] if kind == "layer" else 0, shared) for i in range(2)
    ]
    parts = [
        Rotated(Buffer(heads * width), Buffer(heads * width), heads, norm)
        for heads, norm in zip((3, 2), norms, strict=True)
    ]
    for outs in rotated(parts, rotary, [q, k], weights + biases):
        for i, (x, part) in enumerate(zip((q, k), parts, strict=True)):
            x = torch.from_numpy(x)
            y = (
                ops.rms_norm(x, weights[i], 1e-5, part.heads)
                if kind == "rms"
                else ops.layer_norm(x, weights[i], biases[i], 1e-5, part.heads)
            )
            expected = ops.rope(y, rotary, part.heads).numpy()
            np.testing.assert_allclose(outs[i][:, : part.y.width], expected, rtol=4e-6, atol=4e-6)


def test_columns_of_a_wider_row() -> None:
    rotary, x = table(8, False), numbers(ROWS, 100)
    part = Rotated(Buffer(100), Buffer(48), 3, first=33)
    for (out,) in rotated([part], rotary, [x]):
        expected = reference().rope(torch.from_numpy(x[:, 33:81].copy()), rotary, 3).numpy()
        np.testing.assert_allclose(out[:, :48], expected, rtol=1e-6, atol=1e-6)


def test_rows_do_not_know_of_each_other() -> None:
    rotary, x = table(16, False), numbers(2, 64)
    part = Rotated(Buffer(64), Buffer(64), 2, HeadNorm("rms", 1e-6, TABLES[2]))
    weight = numbers(32)
    together = rotated([part], rotary, [x], [weight])[0][0]
    alone = rotated([part], rotary, [x[:1]], [weight], rows=1)[0][0]
    np.testing.assert_array_equal(alone[0], together[0])
