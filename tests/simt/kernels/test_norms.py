from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.base import Step
from engine.backends.cuda.kernels import magnitude, norm
from engine.backends.cuda.kernels.packed_activations import packed_buffer
from engine.backends.cuda.kernels.qk_norm import qk_norm_call
from engine.backends.graph.buffers import Buffer
from engine.backends.reference.backend import ReferenceOps
from tests.simt.models.packed_activations import decoded
from tests.simt.played import TABLES, empty, laid_out, played

OPS: Any = ReferenceOps(Step(np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)), None)  # type: ignore[arg-type]


def expected_of(kind: str, x: Any, weight: Any, bias: Any, eps: float, heads: int = 1) -> Any:
    x = torch.from_numpy(x)
    return (
        OPS.rms_norm(x, weight, eps, heads) if kind == "rms" else OPS.layer_norm(x, weight, bias, eps, heads)
    ).numpy()


def numbers(*shape: int, spread: float = 1.0, centre: float = 0.0) -> Any:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * spread + centre).astype(np.float32)


WIDE = [(width, "none", True) for width in (4001, 8100, 8195)]
WIDE += [(8100, "fp16", True), (8100, "bf16x2", False), (8195, "fp16", True)]


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize(
    ("width", "form", "floats"),
    [
        (1, "none", True), (70, "fp16", True), (515, "bf16x2", False), (1030, "fp16", False),
        (1344, "bf16x2", True),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in WIDE),
    ],
)  # fmt: skip
def test_norms(kind: str, width: int, form: str, floats: bool) -> None:
    rows = 2 if width < 600 else 1
    x, weight, bias = numbers(rows, width, spread=3.0, centre=0.5), numbers(width), numbers(width, centre=1.0)
    with_bias = kind == "layer" and width != 515
    a, y = Buffer(width), Buffer(width) if floats else None
    to = packed_buffer(form, a) if form != "none" else None
    call = norm.norm_call((kind, 1e-5), a, TABLES[0], TABLES[1] if with_bias else 0, y, form, to)
    arrays: dict[Any, Any] = {a: laid_out(x), TABLES[0]: weight, TABLES[1]: bias}
    arrays |= {out: empty(out, rows) for out in (y, to) if out is not None}
    expected = expected_of(kind, x, weight, bias if with_bias else None, 1e-5)
    for out in played(call, arrays, rows, twice=width < 600):
        if y is not None:
            np.testing.assert_allclose(out[y][:, :width], expected, rtol=3e-6, atol=2e-6)
            assert (out[y][:, width:] == -77).all()
        if to is not None:
            for row, required in zip(out[to].view(np.uint8), expected, strict=True):
                found = decoded(form, row, width)
                np.testing.assert_allclose(found, required, rtol=6e-4 if form == "fp16" else 2e-5, atol=4e-6)


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_long_rows(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The form for rows that registers do not hold, in blocks small enough to interpret."""
    monkeypatch.setattr(norm, "SIZES", ((64, 1),))
    norm.norm_kernel.cache_clear()
    try:
        width = 519
        x, weight, bias = numbers(2, width, centre=-2.0), numbers(width), numbers(width)
        a, y, packed = Buffer(width), Buffer(width), packed_buffer("fp16", Buffer(width))
        call = norm.norm_call(
            (kind, 1e-6), a, TABLES[0], TABLES[1] if kind == "layer" else 0, y, "fp16", packed
        )
    finally:
        norm.norm_kernel.cache_clear()
    assert call.kernel.name == f"{kind}_norm_long_fp16"
    call = replace(
        call, kernel=replace(call.kernel, name=f"{kind}_norm_long_fp16_by_64")
    )  # other code than that of models
    arrays = {a: laid_out(x), y: empty(y, 2), packed: empty(packed, 2), TABLES[0]: weight, TABLES[1]: bias}
    expected = expected_of(kind, x, weight, bias, 1e-6)
    for out in played(call, arrays, 2):
        np.testing.assert_allclose(out[y][:, :width], expected, rtol=3e-6, atol=3e-6)
        for row, required in zip(out[packed].view(np.uint8), expected, strict=True):
            np.testing.assert_allclose(decoded("fp16", row, width), required, rtol=6e-4, atol=4e-6)


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize(("heads", "width", "shared"), [(5, 33, True), (2, 300, False), (1, 64, True)])
def test_parts(kind: str, heads: int, width: int, shared: bool) -> None:
    count = width if shared else heads * width
    x, weight, bias = numbers(2, heads * width, spread=2.0, centre=1.0), numbers(count), numbers(count)
    a, y = Buffer(heads * width), Buffer(heads * width)
    with_bias = kind == "layer" and shared
    call = qk_norm_call((kind, 1e-5), a, TABLES[0], TABLES[1] if with_bias else 0, y, heads, shared)
    arrays = {a: laid_out(x), y: empty(y, 2), TABLES[0]: weight, TABLES[1]: bias}
    expected = expected_of(kind, x, weight, bias if with_bias else None, 1e-5, heads)
    for out in played(call, arrays, 2):
        np.testing.assert_allclose(out[y][:, : heads * width], expected, rtol=3e-6, atol=3e-6)
        assert (out[y][:, heads * width :] == -77).all()


def test_large_and_small_rows() -> None:
    x = np.stack([numbers(128, spread=1e15), numbers(128, spread=1e-15), np.zeros(128, np.float32)])
    weight = np.ones(128, np.float32)
    a, y = Buffer(128), Buffer(128)
    found, modelled = played(
        norm.norm_call(("rms", 1e-6), a, TABLES[0], 0, y),
        {a: laid_out(x), y: empty(y, 3), TABLES[0]: weight},
        3,
        twice=False,
    )
    for out in (found, modelled):
        np.testing.assert_allclose(out[y][:, :128], expected_of("rms", x, weight, None, 1e-6), rtol=3e-6)


def test_rows_do_not_know_of_each_other() -> None:
    x, weight = numbers(3, 200), numbers(200)
    a = Buffer(200)
    packed = packed_buffer("fp16", a)
    call = norm.norm_call(("layer", 1e-5), a, TABLES[0], 0, None, "fp16", packed)
    together, _ = played(call, {a: laid_out(x), packed: empty(packed, 3), TABLES[0]: weight}, 3, twice=False)
    for row in range(3):
        part = slice(row, row + 1)
        alone, _ = played(
            call, {a: laid_out(x[part]), packed: empty(packed, 1), TABLES[0]: weight}, 1, twice=False
        )
        np.testing.assert_array_equal(alone[packed].view(np.uint32), together[packed][part].view(np.uint32))


def test_a_kernel_for_every_width() -> None:
    assert [norm.norm_kernel("rms", w).name for w in (1, 1024, 1025, 8192, 8193, 100_000)] == [
        f"rms_norm_{size}_none" for size in ("1024", "1024", "4096", "8192", "long", "long")
    ]


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("width", [1, 70, 1301])
def test_magnitude(width: int, centred: bool) -> None:
    x, a, y = numbers(2, width, spread=3.0, centre=2.0), Buffer(width), Buffer(1)
    expected = OPS.magnitude(torch.from_numpy(x), centred).numpy()
    for out in played(
        magnitude.magnitude_call(a, y, centred), {a: laid_out(x), y: empty(y, 2)}, 2, twice=width < 600
    ):
        np.testing.assert_allclose(out[y][:, :1], expected, rtol=3e-6, atol=1e-7)
        assert (out[y][:, 1:] == -77).all()
