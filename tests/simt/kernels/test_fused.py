from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.base import Step
from engine.backends.cuda.kernels.norm import RowNorm, sum_norm_call
from engine.backends.cuda.kernels.packed_activations import packed_buffer
from engine.backends.graph.buffers import Buffer
from engine.backends.reference.backend import ReferenceOps
from tests.simt.models.packed_activations import decoded
from tests.simt.played import TABLES, empty, laid_out, played

OPS: Any = ReferenceOps(Step(np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)), None)  # type: ignore[arg-type]
EPS = 1e-5


def numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) + np.float32(0.25)


@pytest.mark.parametrize("post", [True, False])
@pytest.mark.parametrize(
    ("kind", "width", "form", "floats"),
    [
        ("rms", 70, "none", True), ("layer", 131, "fp16", True), ("rms", 260, "bf16x2", False),
        ("rms", 1030, "fp16", False),
        *(
            pytest.param("rms", width, form, form == "none", marks=pytest.mark.slow)
            for width in (4001, 8100)
            for form in ("none", "fp16", "bf16x2")
        ),
    ],
)  # fmt: skip
def test_a_norm_behind_the_sum(kind: str, width: int, form: str, floats: bool, post: bool) -> None:
    z, x, first, weight, bias = (
        numbers(1, 2, width),
        numbers(2, 2, width),
        *(numbers(i, width) for i in (3, 4, 5)),
    )
    a, b, total, y = Buffer(width), Buffer(width), Buffer(width), Buffer(width) if floats else None
    to = packed_buffer(form, a) if form != "none" else None
    norm = RowNorm(kind, EPS, TABLES[1], TABLES[2] if kind == "layer" else 0)
    call = sum_norm_call(
        a, RowNorm("rms", EPS, TABLES[0]) if post else None, b, 0.5, total, norm, y, form, to
    )
    arrays: dict[Any, Any] = {
        a: laid_out(z),
        b: laid_out(x),
        TABLES[0]: first,
        TABLES[1]: weight,
        TABLES[2]: bias,
    }
    arrays |= {out: empty(out, 2) for out in (total, y, to) if out is not None}

    added = torch.from_numpy(z)
    added = OPS.rms_norm(added, first, EPS) if post else added
    whole = OPS.add(torch.from_numpy(x), added, 0.5)
    expected = (
        OPS.rms_norm(whole, weight, EPS) if kind == "rms" else OPS.layer_norm(whole, weight, bias, EPS)
    ).numpy()
    for out in played(call, arrays, 2, twice=width < 1000):
        np.testing.assert_allclose(out[total][:, :width], whole.numpy(), rtol=3e-6, atol=2e-6)
        assert (out[total][:, width:] == -77).all()
        if y is not None:
            np.testing.assert_allclose(out[y][:, :width], expected, rtol=4e-6, atol=4e-6)
        if to is not None:
            for row, required in zip(out[to].view(np.uint8), expected, strict=True):
                np.testing.assert_allclose(
                    decoded(form, row, width), required, rtol=6e-4 if form == "fp16" else 2e-5, atol=5e-6
                )
