"""Attention with a bias that queries make by distance: the kernel that makes the biases, attention of small
batches with them, and of large ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape
from engine.backends.cuda.kernels.attention import prefill_pieces
from engine.backends.cuda.kernels.attention.attention import Form, attention_calls, kernel_for
from engine.backends.cuda.kernels.attention.relative import biases_call
from engine.backends.cuda.lowering.call import Runtime
from engine.backends.graph.buffers import Buffer
from engine.backends.kv_formats import CacheType
from tests.simt.agree import both
from tests.simt.attention_cases import Case, by_model, shape_of
from tests.simt.kernels.test_attention_prefill import attended
from tests.simt.played import TABLES, empty, laid_out, played

KINDS = [
    ("fp32", "fp32"), ("fp16", "fp16"), ("fp8", "fp8"), ("q8", "q8"), ("q4", "q4"), ("q8", "q4"),
    ("q4", "fp16"),
]  # fmt: skip


@pytest.mark.parametrize(("heads", "count", "extent"), [(6, 5, 19), (4, 16, 300), (1, 1, 1), (9, 2, 128)])
def test_biases(heads: int, count: int, extent: int) -> None:
    """Of the distances that reach a position, and no more is written; the same bits for each row alone."""
    rng, positions = np.random.default_rng(extent), np.array([0, 17, 255, 9, 700], np.int32)
    weights = rng.standard_normal((5, heads * count)).astype(np.float32) * 3
    profiles = rng.standard_normal((count, extent)).astype(np.float32)
    x, y = Buffer(heads * count), Buffer(heads * extent)
    call = biases_call(x, TABLES[0], y, heads, extent)
    given = {x: laid_out(weights), TABLES[0]: profiles, y: empty(y, 5), Runtime.POSITIONS: positions}
    expected = weights.reshape(5, heads, count).astype(np.float64) @ profiles * np.log2(np.e)
    for out in played(call, given, 5):
        made = out[y][:, : heads * extent].reshape(5, heads, extent)
        for row, own in enumerate(positions):
            reached = min(extent, own + 1)
            np.testing.assert_allclose(made[row, :, :reached], expected[row, :, :reached], rtol=0, atol=2e-5)
            assert (made[row, :, reached:] == -77).all()
        assert (out[y][:, heads * extent :] == -77).all()
    together = out[y]
    for row in range(5):
        given |= {x: laid_out(weights[row : row + 1]), y: empty(y, 1)}
        given[Runtime.POSITIONS] = positions[row : row + 1]
        assert played(call, given, 1, twice=False)[1][y][0].tobytes() == together[row].tobytes()


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("kind", "shape", "start", "rows", "splits", "profiles"),
    [
        (("fp16", "fp16"), shape_of(3, 1, 40), 70, 2, 2, (2, 9)),
        (("fp32", "fp32"), shape_of(5, 1, 16), 70, 2, 2, (3, 66)),
        (("q4", "q4"), shape_of(2, 1, 40), 17, 3, 1, (4, 300)),
        (("q8", "q4"), shape_of(1, 2, 64, window=20), 62, 4, 2, (2, 20)),
        (("fp8", "fp8"), shape_of(9, 1, 16), 255, 2, 4, (1, 100)),
        (("fp16", "fp16"), shape_of(2, 1, 264), 40, 1, 1, (2, 12)),
        (("fp16", "q8"), shape_of(2, 1, 33, cap=4.0), 9, 1, 1, (2, 5)),
        pytest.param(
            ("fp16", "fp16"), shape_of(4, 1, 128), 530, 1, 4, (2, 512), marks=pytest.mark.slow
        ),
        pytest.param(
            ("fp16", "fp16"), shape_of(4, 1, 128), 1040, 1, 8, (2, 1024), marks=pytest.mark.slow
        ),
    ],
)  # fmt: skip
def test_bodies(
    kind: tuple[str, str], shape: AttentionShape, start: int, rows: int, splits: int,
    profiles: tuple[int, int],
) -> None:  # fmt: skip
    """As close as without biases (`test_attention.test_bodies`)."""
    case = Case(CacheType(*kind), shape, start, rows, splits, False, profiles)
    found, expected = both(*case.attend(), twice=False)
    y, required = (by_model(*case.combine(each[5]))[1] for each in (found, expected))
    np.testing.assert_allclose(y, required, atol=2e-3, rtol=2e-3)


SHAPES = [
    (shape_of(1, 2, 64), (3, 40)), (shape_of(4, 1, 40, window=100), (2, 100)),
    (shape_of(7, 1, 16, cap=5.0), (1, 300)), (shape_of(2, 2, 80, window=300), (4, 7)),
]  # fmt: skip


@pytest.mark.slow_after(8)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "profiles"), SHAPES)
def test_models(kind: tuple[str, str], shape: AttentionShape, profiles: tuple[int, int]) -> None:
    for start, rows, splits in ((0, 1, 4), (0, 8, 1), (14, 4, 2), (63, 2, 8), (254, 5, 4), (700, 3, 4)):
        case = Case(CacheType(*kind), shape, start, rows, splits, start % 2 == 0, profiles)
        np.testing.assert_allclose(case.modelled(), case.expected(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "shape", "start", "rows"),
    [
        (("fp16", "fp16"), shape_of(3, 1, 40), 70, 3), (("q4", "q4"), shape_of(1, 17, 16), 30, 2),
        (("fp32", "fp32"), shape_of(2, 2, 128, window=66), 120, 2),
    ],
)  # fmt: skip
def test_sinks_of_each_row(kind: tuple[str, str], shape: AttentionShape, start: int, rows: int) -> None:
    """The body of what combines splits against its model, and both halves against the reference."""
    case = Case(CacheType(*kind), shape, start, rows, 2, False, (2, 9), row_sinks=True)
    partial, width = case.attended(), shape.heads * shape.head_dim
    found, expected = both(*case.combine(partial))
    np.testing.assert_allclose(found[1], expected[1], atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(expected[1][:, :width], case.expected(), atol=1e-4, rtol=1e-4)
    case.sink[:] = 0  # sinks matter, each row's own
    assert np.abs(found[1][:, :width] - case.expected()).reshape(rows, -1).max(1).min() > 0.01


MANY = [
    (("fp16", "fp16"), shape_of(4, 2, 64), 0, 70, (3, 20), 2e-3),
    (("fp32", "fp32"), shape_of(2, 1, 24), 30, 12, (2, 1), 1e-5),
    (("fp32", "fp32"), shape_of(3, 2, 16, window=100), 600, 40, (4, 100), 1e-5),
    (("q4", "q4"), shape_of(2, 1, 64, cap=5.0), 10, 30, (2, 33), 2e-3),
    (("q8", "fp16"), shape_of(1, 3, 16), 1010, 60, (5, 1024), 2e-3),
    (("fp32", "fp32"), shape_of(2, 2, 8), 2990, 600, (2, 700), 2e-5),
    (("fp8", "q8"), shape_of(2, 1, 40, window=7), 250, 30, (16, 7), 2e-3),
]


@pytest.mark.parametrize("capability", [90, 75])
@pytest.mark.parametrize(("kind", "shape", "start", "rows", "profiles", "close"), MANY)
def test_many_rows(
    kind: tuple[str, str], shape: AttentionShape, start: int, rows: int, profiles: tuple[int, int],
    close: float, capability: int,
) -> None:  # fmt: skip
    """Rows all of whose positions profiles reach, some, and none of a piece's."""
    case = Case(CacheType(*kind), shape, start, rows, 1, start % 4 == 2, profiles)
    found, _ = attended(case, capability)
    np.testing.assert_allclose(found, case.expected(), atol=close, rtol=close)
    case.of_distance[:] = 0  # biases matter
    assert np.abs(found - case.expected()).max() > 0.05


@pytest.mark.parametrize(("kind", "shape", "start", "rows", "profiles", "close"), MANY[:5])
def test_many_rows_with_sinks_of_their_own(
    kind: tuple[str, str], shape: AttentionShape, start: int, rows: int, profiles: tuple[int, int],
    close: float,
) -> None:  # fmt: skip
    case = Case(CacheType(*kind), shape, start, rows, 1, False, profiles, row_sinks=True)
    found, _ = attended(case)
    np.testing.assert_allclose(found, case.expected(), atol=close, rtol=close)
    case.sink[:] = 0
    assert np.abs(found - case.expected()).max() > 0.01


@pytest.mark.parametrize("extent", [1, 13, 50, 400])
@pytest.mark.parametrize("at_once", [2, 14, 500])
def test_pieces_and_rows_at_once_change_nothing(
    extent: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little memory scores and biases have, the result is the same."""
    case = Case(CacheType("fp32", "fp32"), shape_of(2, 1, 16), 40, 90, 1, True, (3, extent))
    whole, _ = attended(case)
    np.testing.assert_allclose(whole, case.expected(), atol=1e-5, rtol=1e-5)
    monkeypatch.setattr(prefill_pieces, "PIECE", 16)
    monkeypatch.setattr(prefill_pieces, "SCORE_BYTES", 4 * 2 * 16 * at_once)
    parts, step = attended(case)
    np.testing.assert_allclose(parts, whole, atol=2e-6, rtol=2e-6)
    assert max(step.scratch_bytes.values()) < 60_000 + 4 * 2 * 45 * 45


def test_every_extent_has_a_kernel_of_its_own() -> None:
    """Wide heads take the plain one, and what is named alike is alike."""
    kinds = [CacheType(*kind) for kind in KINDS]
    forms = [Form(dim, extent=extent) for dim in (33, 64, 128, 320) for extent in (0, 7, 512)]
    kernels = [kernel_for(kind, form) for kind in kinds for form in forms]
    assert len({kernel.name for kernel in kernels}) == len(kernels)
    assert "plain" in kernel_for(kinds[1], Form(320, extent=7)).name
    assert "EXTENT" not in kernel_for(kinds[1], Form(64)).constants


def test_calls() -> None:
    """They read the biases, which other calls make."""
    q, y, biases = Buffer(160), Buffer(160), Buffer(4 * 30)
    kind: Any = CacheType("q8", "q4")
    calls = attention_calls(kind, (256, 512), q, y, None, shape_of(2, 2, 40), 0, 132, biases=(biases, 30))
    assert biases in calls[0].reads
    assert calls[0].several is not None
    for call in (calls[0], calls[0].several):
        assert biases in call.arguments
        assert len(call.arguments) == len(call.kernel.parameters)
        assert call.kernel.constants["EXTENT"] == 30


def test_calls_with_sinks_of_rows() -> None:
    """What combines splits reads them."""
    q, y, sinks = Buffer(160), Buffer(160), Buffer(4)
    kind: Any = CacheType("q8", "q4")
    attend, combine = attention_calls(kind, (256, 512), q, y, None, shape_of(2, 2, 40), sinks, 132)
    assert sinks not in attend.reads
    assert sinks in combine.reads
    assert combine.kernel.name.endswith("_row_sinks")
