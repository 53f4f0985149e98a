from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.activations import ACTIVATIONS, GATES
from engine.backends.base import Step
from engine.backends.cuda.codegen.ptx import exp2
from engine.backends.cuda.kernels import pointwise, shaped
from engine.backends.cuda.kernels.packed_activations import packed_buffer
from engine.backends.cuda.lowering.call import Runtime
from engine.backends.graph.buffers import Buffer
from engine.backends.reference.backend import ReferenceOps
from tests.simt.models.packed_activations import decoded
from tests.simt.played import TABLES, empty, laid_out, played

OPS: Any = ReferenceOps(Step(np.zeros(1, np.int32), np.array([3], np.int32), np.zeros(1, np.int32)), None)  # type: ignore[arg-type]


def numbers(*shape: int, spread: float = 1.0) -> Any:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * spread).astype(np.float32)


def expected_of(activation: str, gate: Any, up: Any) -> Any:
    gate = torch.from_numpy(gate)
    return (
        OPS.activate(gate, activation) if up is None else OPS.gated(gate, torch.from_numpy(up), activation)
    ).numpy()


@pytest.mark.slow_after(24)
@pytest.mark.parametrize("activation", GATES)
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize(("kind", "floats"), [("none", True), ("fp16", False), ("bf16x2", True)])
def test_activations(activation: str, gated: bool, kind: str, floats: bool) -> None:
    if activation not in ACTIVATIONS[:-1] and not gated:
        return
    gate, up = numbers(2, 71, spread=4.0), numbers(2, 71, spread=5.0) + 1 if gated else None
    a, b, y = Buffer(71), Buffer(71), Buffer(71) if floats else None
    packed = packed_buffer(kind, a) if kind != "none" else None
    call = (
        pointwise.gated_call(activation, a, b, y, kind, packed)
        if gated
        else pointwise.activate_call(activation, a, y, kind, packed)
    )
    arrays = {a: laid_out(gate), **({b: laid_out(up)} if gated else {})}
    arrays |= {out: empty(out, 2) for out in (y, packed) if out is not None}
    found, modelled = played(call, arrays, 2)
    expected = expected_of(activation, gate, up)
    if y is not None:
        for out in (found, modelled):
            np.testing.assert_allclose(out[y][:, :71], expected, rtol=4e-6, atol=2e-6)
            assert (out[y][:, 71:] == -77).all()
    if packed is not None:
        for out in (found, modelled):
            for row, required in zip(out[packed].view(np.uint8), expected, strict=True):
                np.testing.assert_allclose(
                    decoded(kind, row, 71), required, rtol=6e-4 if kind == "fp16" else 2e-5, atol=1e-5
                )


@pytest.mark.parametrize("activation", GATES)
def test_activations_of_large_numbers(activation: str) -> None:
    x = np.array([[1e4, -1e4, 3e9, -3e9, 88.0, -88.0, 0.0, 1e-30]], np.float32)
    a, b, y = Buffer(8), Buffer(8), Buffer(8)
    found, _ = played(
        pointwise.gated_call(activation, a, b, y),
        {a: laid_out(x), b: laid_out(np.ones_like(x)), y: empty(y, 1)},
        1,
    )
    np.testing.assert_allclose(
        found[y][:, :8], expected_of(activation, x, np.ones_like(x)), rtol=2e-6, atol=1e-30
    )


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
    """Numbers of both signs, near zero and far from it."""
    x = np.concatenate([np.linspace(-9, 9, 40), np.linspace(-1e-3, 1e-3, 7)]).astype(np.float32)[None]
    a, y = Buffer(47), Buffer(47)
    call = shaped.activate_with_call(a, y, function, constants)
    found, modelled = played(call, {a: laid_out(x), y: empty(y, 1)}, 1)
    expected = OPS.activate_with(torch.from_numpy(x.astype(np.float64)), function, constants).numpy()
    for out in (found, modelled):
        np.testing.assert_allclose(out[y][:, :47], expected, rtol=2e-6, atol=1e-9)
        assert (out[y][:, 47:] == -77).all()


def test_gelu_is_close_everywhere() -> None:
    """The formula with the interpreter's numbers, over the range where it does not end in 0 or x."""
    x = np.concatenate([np.linspace(-6, 6, 250), [0.0, -0.0]]).astype(np.float32)[None]
    a, y = Buffer(252), Buffer(252)
    found, _ = played(pointwise.activate_call("gelu", a, y), {a: laid_out(x), y: empty(y, 1)}, 1, twice=False)
    exact = torch.nn.functional.gelu(torch.from_numpy(x.astype(np.float64))).numpy()
    assert np.abs(found[y][:, :252] - exact).max() < 1e-6
    assert exp2.text.startswith("ex2.approx")


@pytest.mark.parametrize(("width", "rows"), [(1, 1), (514, 3)])
def test_add(width: int, rows: int) -> None:
    x, o = numbers(rows, width), numbers(rows, width, spread=2.0)
    a, b, y = Buffer(width), Buffer(width), Buffer(width)
    found, modelled = played(
        pointwise.add_call(a, b, y, 0.5), {a: laid_out(x), b: laid_out(o), y: empty(y, rows)}, rows
    )
    for out in (found, modelled):
        np.testing.assert_allclose(
            out[y][:, :width], OPS.add(torch.from_numpy(x), torch.from_numpy(o), 0.5), rtol=1e-6, atol=1e-6
        )
        assert (out[y][:, width:] == -77).all()


@pytest.mark.parametrize("cap", [0.0, 30.0])
def test_soft_cap(cap: float) -> None:
    x = np.concatenate(
        [
            numbers(2, 40, spread=50.0),
            np.array([[1e4, -1e4, 0.0, 1e-6], [2e9, -3e38, -1e-3, 7.0]], np.float32),
        ],
        1,
    )
    a, y = Buffer(44, True), Buffer(44, True)
    call = pointwise.soft_cap_call(a, y, 0.25, cap)
    found, modelled = played(call, {a: laid_out(x), y: empty(y, 2)}, 2)
    assert call.on_logit_rows
    for out in (found, modelled):
        np.testing.assert_allclose(
            out[y][:, :44], OPS.soft_cap(torch.from_numpy(x), 0.25, cap).numpy(), rtol=2e-6
        )


def test_tanh_near_the_seam() -> None:
    x = np.linspace(-0.4, 0.4, 80, dtype=np.float32)[None]
    a, y = Buffer(80), Buffer(80)
    found, _ = played(
        pointwise.soft_cap_call(a, y, 2.0, 2.0), {a: laid_out(x), y: empty(y, 1)}, 1, twice=False
    )
    np.testing.assert_allclose(found[y][:, :80], 2 * np.tanh(x.astype(np.float64)), rtol=1e-6)


def test_positions_are_added() -> None:
    table, x = numbers(9, 131), numbers(3, 131)
    ops = ReferenceOps(
        Step(np.zeros(3, np.int32), np.arange(5, 8, dtype=np.int32), np.zeros(1, np.int32)), None
    )  # type: ignore[arg-type]
    a, y = Buffer(131), Buffer(131)
    arrays = {
        a: laid_out(x),
        y: empty(y, 3),
        TABLES[0]: table,
        Runtime.POSITIONS: np.array([5, 6, 7], np.int32),
    }
    found, modelled = played(pointwise.add_positions_call(a, TABLES[0], y), arrays, 3)
    for out in (found, modelled):
        np.testing.assert_array_equal(out[y][:, :131], ops.add_positions(torch.from_numpy(x), table).numpy())


@pytest.mark.parametrize("kind", ["fp16", "bf16x2"])
def test_rows_do_not_know_of_each_other(kind: str) -> None:
    gate, up = numbers(3, 200), numbers(3, 200, spread=3.0)
    a, b = Buffer(200), Buffer(200)
    packed = packed_buffer(kind, a)
    call = pointwise.gated_call("gelu", a, b, None, kind, packed)
    together, _ = played(call, {a: laid_out(gate), b: laid_out(up), packed: empty(packed, 3)}, 3, twice=False)
    for row in range(3):
        part = slice(row, row + 1)
        alone, _ = played(
            call, {a: laid_out(gate[part]), b: laid_out(up[part]), packed: empty(packed, 1)}, 1, twice=False
        )
        np.testing.assert_array_equal(alone[packed].view(np.uint32), together[packed][part].view(np.uint32))


def test_rows_lie_along_the_long_side_of_the_grid() -> None:
    a, b, y = (Buffer(8, copies=16) for _ in range(3))
    assert pointwise.gated_call("silu", a, b, y).blocks(70000) == (70000, 1, 1)
