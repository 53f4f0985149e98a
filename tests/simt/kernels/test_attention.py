"""Attention of small batches: the kernels' bodies against their models, and these against the reference
backend.
"""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.base import AttentionShape
from engine.backends.cuda.kernels.attention.attention import Form, attention_calls, kernel_for, splits_for
from engine.backends.cuda.kernels.packed_activations import packed_buffer
from engine.backends.graph.buffers import Buffer
from engine.backends.kv_formats import CacheType
from tests.simt.agree import both
from tests.simt.attention_cases import Case, by_model, shape_of, special
from tests.simt.models.packed_activations import encoded

BODIES = [  # first one of each kind of shape and of every cache type
    (("fp16", "fp8"), shape_of(5, 1, 33, window=20), 9, 1, 1, False),
    (("q4", "fp32"), shape_of(2, 1, 16, cap=3.0), 17, 2, 2, False),
    (("fp16", "fp16"), special(3, 1, 40, alibi=1), 70, 2, 2, False),
    (("fp16", "fp16"), special(2, 1, 16, alibi=2), 280, 1, 1, False),
    (("fp8", "fp8"), shape_of(2, 2, 40), 5, 2, 2, True),
    (("q4", "q4"), shape_of(2, 1, 40), 0, 1, 4, False),
    (("fp16", "fp16"), special(9, 1, 48, 40), 70, 1, 2, False),
    (("q8", "fp16"), special(3, 1, 40, 24), 17, 2, 2, False),
    (("q4", "q4"), special(3, 1, 48, 40), 14, 3, 1, False),
    pytest.param(("q4", "q4"), special(2, 1, 72, 40), 262, 1, 2, False, marks=pytest.mark.slow),
    (("fp8", "fp8"), special(2, 1, 80, 72), 9, 1, 1, False),
    (("fp32", "fp32"), special(3, 1, 48, 40), 70, 1, 2, False),
    (("q4", "q4"), special(2, 1, 40, alibi=1), 20, 1, 1, False),
    (("fp32", "fp32"), special(2, 1, 16, alibi=2), 70, 2, 2, False),
    (("fp16", "fp16"), special(2, 1, 16, window=70), 138, 3, 2, False),
    (("fp16", "fp16"), shape_of(2, 1, 264, window=9), 40, 1, 1, False),
    (("fp16", "fp16"), shape_of(4, 1, 64), 300, 1, 4, False),
    (("q8", "q8"), shape_of(7, 1, 64, window=70), 255, 2, 2, False),
    pytest.param(("q4", "q4"), shape_of(4, 1, 64, cap=5.0), 262, 2, 2, True, marks=pytest.mark.slow),
    pytest.param(("q8", "q4"), shape_of(1, 1, 16), 256, 3, 4, False, marks=pytest.mark.slow),
    (("q4", "fp16"), shape_of(2, 1, 16), 17, 1, 1, False),
    (("fp16", "q4"), shape_of(1, 2, 40, window=9), 8, 3, 1, False),
    (("fp32", "fp32"), shape_of(2, 2, 40), 70, 2, 2, True),
]


REGISTERED = [
    pytest.param(kind, shape_of(4, 1, dim), 70, 2, 2, False, marks=pytest.mark.slow)
    for kind, dim in (
        (("fp16", "fp16"), 128), (("fp16", "fp16"), 256), (("q8", "q8"), 128), (("q8", "q4"), 128),
        (("q4", "q4"), 128),
        (("fp8", "fp8"), 80), (("fp32", "fp32"), 128),
    )
]  # fmt: skip
REGISTERED += [
    pytest.param(("fp16", "fp16"), shape, 9, 1, 1, False, marks=pytest.mark.slow)
    for shape in (shape_of(2, 1, 512), special(9, 1, 576, 512))
]


@pytest.mark.slow_after(8)
@pytest.mark.parametrize(("kind", "shape", "start", "rows", "splits", "sinks"), [*BODIES, *REGISTERED])
def test_bodies(
    kind: tuple[str, str], shape: AttentionShape, start: int, rows: int, splits: int, sinks: bool
) -> None:
    """Weights are rounded to fp16, and quantised values to fp16 with their scales: about 2^-11 of what
    they are.
    """
    case = Case(CacheType(*kind), shape, start, rows, splits, sinks)
    found, expected = both(*case.attend(), twice=False)
    y, required = (by_model(*case.combine(each[5]))[1] for each in (found, expected))
    np.testing.assert_allclose(y, required, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize(
    ("shape", "values", "form"),
    [
        (shape_of(2, 1, 40), "q4", "fp16"),
        (shape_of(3, 1, 64, window=70), "fp16", "bf16x2"),
        (shape_of(1, 3, 24), "q8", ""),
        (shape_of(2, 1, 33), "fp16", ""),
        (shape_of(2, 1, 64), "fp16", ""),
        (shape_of(2, 1, 80), "fp16", "bf16x2"),
        (shape_of(2, 1, 128), "q8", "fp16"),
        (shape_of(2, 1, 512), "fp16", ""),
    ],
)
def test_joining(shape: AttentionShape, values: str, form: str) -> None:
    """Partial results of the model, with nonsense where the row has no position, joined by body and model:
    rows and packed activations.
    """
    case = Case(CacheType("fp16", values), shape, 130, 2, 4, form != "bf16x2")
    _, _, arguments, arrays = case.attend()
    arrays[5][...] = np.nan
    partial = by_model(case.attend()[0], case.attend()[1], arguments, arrays)[5]
    interpreted, modelled = both(*case.combine(partial, form), twice=False)
    width = shape.heads * shape.head_dim
    np.testing.assert_allclose(interpreted[1], modelled[1], atol=1e-5, rtol=1e-5)
    if form:
        for found, row in zip(interpreted[2], interpreted[1][:, :width], strict=True):
            expected = encoded(form, row)
            assert found.view(np.uint8)[: expected.nbytes].tobytes() == expected.tobytes()


def test_joining_to_packed_activations_alone() -> None:
    """Where only products read the rows, only packed activations are written, the same as with rows."""
    case = Case(CacheType("fp16", "fp16"), shape_of(2, 1, 128), 130, 2, 4)
    partial = case.attended()
    (_, rows, kept, *_), _ = both(*case.combine(partial, "fp16"), twice=False)
    (_, none, alone, *_), _ = both(*case.combine(partial, "fp16", floats=False), twice=False)
    assert rows.any()
    assert not none.any()
    assert alone.tobytes() == kept.tobytes()


SHAPES = [
    shape_of(1, 2, 64),
    shape_of(4, 1, 40, window=100),
    shape_of(7, 1, 16, cap=5.0),
    shape_of(2, 2, 80, window=300, cap=20.0),
    special(5, 1, 48, 40),
    special(2, 1, 72, 32),
    special(2, 2, 40, alibi=1),
    special(2, 2, 40, alibi=2),
    special(2, 1, 40, window=100),
]


@pytest.mark.slow_after(36)
@pytest.mark.parametrize(
    "kind",
    [
        ("fp32", "fp32"),
        ("fp16", "fp16"),
        ("fp8", "fp8"),
        ("q8", "q8"),
        ("q4", "q4"),
        ("q8", "q4"),
        ("q4", "fp16"),
    ],
)
@pytest.mark.parametrize("shape", SHAPES)
def test_models(kind: tuple[str, str], shape: AttentionShape) -> None:
    for start, rows, splits in ((0, 1, 4), (0, 8, 1), (14, 4, 2), (63, 2, 8), (254, 5, 4), (700, 3, 4)):
        case = Case(CacheType(*kind), shape, start, rows, splits, start % 2 == 0)
        np.testing.assert_allclose(case.modelled(), case.expected(), atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dim", "start"), [(("q4", "q4"), 16, 0), (("fp16", "q8"), 40, 61), (("fp32", "fp32"), 16, 61)]
)
def test_rows_do_not_depend_on_others(kind: tuple[str, str], dim: int, start: int) -> None:
    """Each of the rows of a step, alone: the same bits, in the bodies and in the models."""
    case = Case(CacheType(*kind), shape_of(3, 1, dim, window=40 if start else 0), start, 4, 2)
    kernel, blocks, arguments, arrays = case.attend()
    together = both(kernel, blocks, arguments, arrays, twice=False)
    joined = [both(*case.combine(each[5]), twice=False)[i][1] for i, each in enumerate(together)]
    for row in range(4):
        alone = [*arrays[:2], arrays[2][row : row + 1], arrays[3][row : row + 1], arrays[4], arrays[5][:1]]
        alone.append(arrays[6])
        count = -(-3 // kernel.constants["COLUMNS"])
        parts = both(kernel, (*blocks[:2], count), [*arguments[:10], 1, *arguments[11:]], alone, twice=False)
        for i, each in enumerate(parts):
            by, grid, values, memory = case.combine(each[5])
            memory[1], memory[2], memory[4] = memory[1][:1], memory[2][:1], alone[3]
            y = both(by, (grid[0], 1, 1), values, memory, twice=False)[i][1]
            assert y[0].tobytes() == joined[i][row].tobytes()


@pytest.mark.slow
def test_order_of_warps() -> None:
    """Warps and blocks in the opposite order write the same bits."""
    case = Case(CacheType("q8", "fp8"), shape_of(2, 1, 16), 64, 1, 2)
    both(*case.attend())
    both(*case.combine(by_model(*case.attend())[5], "fp16"))


def test_splits() -> None:
    """A power of two, about two blocks a multiprocessor, and no more than the joining kernel takes."""
    assert [splits_for(g, 132) for g in (1, 2, 8, 32, 512)] == [64, 64, 32, 8, 1]
    assert splits_for(8, 4) == 1


def test_every_form_has_a_name_of_its_own() -> None:
    kinds = [
        CacheType(keys, values)
        for keys in ("fp32", "fp16", "fp8", "q8", "q4")
        for values in ("fp32", "fp16", "fp8", "q8", "q4")
    ]
    forms = [Form(dim) for dim in (8, 33, 64, 80, 128, 256, 512)]
    forms += [Form(64, alibi=1), Form(64, alibi=2), Form(64, chunked=True), Form(320, alibi=1)]
    kernels = [kernel_for(kind, form) for kind in kinds for form in forms]
    latent = [kernel_for(kind, form) for kind in kinds[::6] for form in (Form(288, 256), Form(288, 224))]
    assert len({kernel.name for kernel in (*kernels, *latent)}) == len(kernels) + len(latent)


@pytest.mark.parametrize(("floats", "form"), [(True, None), (True, "fp16"), (False, "bf16x2")])
def test_calls(floats: bool, form: str | None) -> None:
    """What they touch, and as many arguments as their kernels take."""
    q, y = Buffer(160), Buffer(160)
    to = None if form is None else (form, packed_buffer(form, y))
    calls = attention_calls(CacheType("q8", "q4"), (256, 512), q, y, to, shape_of(2, 2, 40), 0, 132, floats)
    assert all(len(call.arguments) == len(call.kernel.parameters) for call in calls)
    assert calls[0].writes == calls[1].reads
    assert calls[1].writes == ((y,) if floats else ()) + (() if to is None else (to[1],))
    assert [call.blocks(5) for call in calls] == [(64, 2, 2), (1 if form else 4, 5, 1)]
