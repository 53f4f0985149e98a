"""Kernels in steps over several sequences: every row gets the bits of its sequence alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, RotaryTable
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels import pointwise
from engine.backends.cuda.kernels.attention.attention import form_of, kernel_for
from engine.backends.cuda.kernels.kv_write.kv_write import kv_write_kernel
from engine.backends.cuda.kernels.rope import HeadNorm, Rotated, rope_call
from engine.backends.cuda.kv_cache import KEYS, VALUES, side_bytes
from engine.backends.cuda.lowering.call import SMALL_BATCH, Runtime
from engine.backends.cuda.runtime.state import State
from engine.backends.graph.buffers import Buffer
from engine.backends.kv_formats import CacheType
from engine.core import PAGE_TOKENS
from tests.simt import agree
from tests.simt.agree import At
from tests.simt.attention_cases import Case, by_model, shape_of, special
from tests.simt.fake import FakeDevice
from tests.simt.kernels.test_kv_write import step, stores
from tests.simt.played import TABLES, empty, laid_out, played

Launch = Callable[[Kernel, tuple[int, int, int], list[Any], list[Any]], list[Any]]


def by_body(
    kernel: Kernel, blocks: tuple[int, int, int], arguments: list[Any], arrays: list[Any]
) -> list[Any]:
    """The arrays after the kernel's body, which runs on a GPU where there is one."""
    return agree.interpreted(kernel, blocks, arguments, arrays, False)


BOTH = pytest.mark.parametrize("launch", [by_model, by_body])


def run_table(rows: Sequence[int], pages: Sequence[int]) -> Any:
    """What `Runtime.RUNS` is the address of."""
    out, row, page = np.zeros((SMALL_BATCH, 4), np.int32), 0, 0
    for count, size in zip(rows, pages, strict=True):
        out[row : row + count] = row, row + count, page, 0
        row, page = row + count, page + size
    return out


# -- attention

RUNS = ((300, 1), (14, 4), (62, 3))
"""The first position and the rows of each sequence."""
KINDS = [
    (("fp32", "fp32"), 16, 0), (("fp16", "fp16"), 40, 9), (("q4", "q4"), 16, 0), (("q8", "q4"), 64, 70),
    (("fp8", "fp8"), 24, 0), (("q8", "q8"), 40, 0), (("fp16", "q8"), 33, 20), (("q4", "fp16"), 64, 0),
]  # fmt: skip


REGISTERED = [
    (("fp16", "fp16"), 64), (("fp16", "fp16"), 128), (("fp16", "fp16"), 256), (("q8", "q8"), 128),
    (("q8", "q4"), 128), (("q4", "q4"), 128), (("fp8", "fp8"), 80), (("fp32", "fp32"), 128),
]  # fmt: skip
"""The kernels that are compiled for all devices."""


def attended(launch: Launch, cases: Sequence[Case], several: bool) -> tuple[Any, Any]:
    """Partial results and rows of sequences in one step; each row's partial results where nothing belongs are
    -77.
    """
    kernel, parts = (
        kernel_for(cases[0].kind, form_of(cases[0].shape, cases[0].extent), several),
        [case.attend()[3] for case in cases],
    )
    arrays = [np.concatenate([part[i] for part in parts]) for i in range(6)]
    arrays[5][...] = -77
    before, ends = 0, np.cumsum([len(case.table) for case in cases])
    for case, table in zip(cases, np.split(arrays[4], ends[:-1]), strict=True):
        table[table < 1 << 24] += before
        before += len(case.order)
    arrays.append(np.concatenate([part[6] for part in parts]) if cases[0].extent else parts[0][6])
    arrays.append(run_table([case.rows for case in cases], [len(case.table) for case in cases]))
    shape, rows = cases[0].shape, sum(case.rows for case in cases)
    ratio, columns = shape.heads // shape.kv_heads, kernel.constants["COLUMNS"]
    shift = (-(-ratio // columns) - 1).bit_length()
    blocks = rows << shift if several else -(-rows * ratio // columns)
    arguments = [
        At(0), At(1), At(2), arrays[2].strides[0], At(5), arrays[5].strides[0], At(3), At(4),
        At(7) if several else 0, At(6), rows, ratio, shape.scale, shape.soft_cap, shape.window, shift,
    ]  # fmt: skip
    partial = launch(kernel, (cases[0].splits, shape.kv_heads, blocks), arguments, arrays)[5]
    combine, grid, arguments, arrays = cases[0].combine(partial)
    arrays[1] = np.zeros((rows, arrays[1].shape[1]), np.float32)
    arrays[2] = np.zeros((rows, arrays[2].shape[1]), np.float32)
    arrays[4] = np.concatenate([case.positions for case in cases])
    return partial, launch(combine, (grid[0], rows, 1), arguments, arrays)[1]


def assert_as_alone(
    launch: Launch, shape: AttentionShape, kind: tuple[str, str], sinks: bool = True,
    profiles: tuple[int, int] = (0, 0),
) -> None:  # fmt: skip
    cases = [Case(CacheType(*kind), shape, start, rows, 2, sinks, profiles) for start, rows in RUNS]
    for case in cases:
        case.sink = cases[0].sink
    together, row = attended(launch, cases, True), 0
    for case in cases:
        for found, alone in zip(together, attended(launch, [case], False), strict=True):
            assert np.isfinite(alone).all()
            assert found[row : row + case.rows].tobytes() == alone.tobytes()
        row += case.rows


@pytest.mark.parametrize(("kind", "dim", "window"), KINDS)
def test_attention_by_models(kind: tuple[str, str], dim: int, window: int) -> None:
    for ratio, kv_heads in ((1, 2), (3, 1), (9, 1), (17, 1)):
        assert_as_alone(by_model, shape_of(ratio, kv_heads, dim, window), kind)


@pytest.mark.parametrize(
    ("kind", "dim", "window"),
    [
        *(pytest.param(*each, marks=[] if i == 1 else [pytest.mark.slow]) for i, each in enumerate(KINDS)),
        *(pytest.param(*each, 0, marks=pytest.mark.slow) for each in REGISTERED),
    ],
)
def test_attention_by_bodies(kind: tuple[str, str], dim: int, window: int) -> None:
    assert_as_alone(by_body, shape_of(3, 1, dim, window), kind)


@pytest.mark.parametrize("launch", [by_model, pytest.param(by_body, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (("fp16", "fp16"), special(3, 1, 40, 32)),
        (("q4", "q4"), special(2, 1, 48, 32)),
        (("fp16", "fp16"), special(3, 1, 16, alibi=1)),
        (("fp32", "fp32"), special(3, 1, 16, alibi=2)),
        (("fp16", "fp16"), special(2, 1, 16, window=70)),
    ],
)
def test_special_attention(launch: Launch, kind: tuple[str, str], shape: AttentionShape) -> None:
    assert_as_alone(launch, shape, kind, sinks=False)


@pytest.mark.parametrize("launch", [by_model, pytest.param(by_body, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("kind", "ratio", "window", "extent"),
    [(("fp16", "fp16"), 3, 0, 20), (("q4", "q4"), 2, 70, 70), (("fp32", "fp32"), 5, 0, 290)],
)
def test_biases_by_distance(
    launch: Launch, kind: tuple[str, str], ratio: int, window: int, extent: int
) -> None:
    assert_as_alone(launch, shape_of(ratio, 1, 16, window), kind, False, (3, extent))


@pytest.mark.slow
@pytest.mark.parametrize("extent", [512, 1024])
def test_registered_biases_by_distance(extent: int) -> None:
    assert_as_alone(by_body, shape_of(2, 1, 128), ("fp16", "fp16"), False, (2, extent))


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [1, 9, 17])
def test_blocks_of_a_row(ratio: int) -> None:
    """One block of columns, two, and three of four, of which the last is empty."""
    assert_as_alone(by_body, shape_of(ratio, 1, 16), ("fp16", "fp16"), sinks=False)


# -- cache writes


@pytest.mark.slow_after(6)
@BOTH
@pytest.mark.parametrize("kinds", [("fp16", "fp8"), ("fp32", "q8"), ("q8", "q4"), ("q4", "q4")])
def test_cache_writes(launch: Launch, kinds: tuple[str, str]) -> None:
    """Runs over position 16 and over a page's start, where q4's keys change, and one that begins a text."""
    starts, counts, heads, ratio, dim = (14, 254, 0), (4, 3, 1), 1, 2, 8
    rng, rows = np.random.default_rng(1), sum(counts)
    inputs, before = step(rng, rows, heads, ratio, dim), stores(rng, kinds, heads, dim, 6)
    runs = zip(starts, counts, strict=True)
    positions = np.concatenate([np.arange(start, start + count, dtype=np.int32) for start, count in runs])
    tables = np.array([[3, 0], [5, 1], [2, 4]], np.int32)
    kernel = kv_write_kernel(*kinds, dim)

    def written(kept: list[Any], first: int, count: int, table: Any, runs: Any) -> list[Any]:
        arrays = [x[first : first + count] for x in inputs] + kept
        arrays += [positions[first : first + count], table, run_table(counts, (2, 2, 2))]
        arguments = [
            At(0), inputs[0].strides[0], At(1), inputs[1].strides[0], At(2), inputs[2].strides[0], At(3),
            At(4), At(5), At(6), runs, ratio, 1, 0, 1,
        ]  # fmt: skip
        return launch(kernel, (heads, count, 2), arguments, arrays)[3:5]

    together = written(before, 0, rows, tables.reshape(-1), At(7))
    alone, first = before, 0
    for count, table in zip(counts, tables, strict=True):
        alone = written(alone, first, count, table, 0)
        first += count
    for side, name, one, other, old in zip((KEYS, VALUES), kinds, together, alone, before, strict=True):
        assert one.tobytes() == other.tobytes()
        size = heads * side_bytes(side, name, dim)
        changed = (one != old).reshape(-1, size).any(1).nonzero()[0]
        assert changed.tolist() == [1, 2, 3, 5]  # those of the rows, and no others


# -- positions


def test_rope_and_learned_positions() -> None:
    positions = np.array([7, 2, 3, 4, 5, 9, 10, 0], np.int32)
    rng = np.random.default_rng(2)
    x, weight, learned = (rng.standard_normal(size).astype(np.float32) for size in ((8, 64), (32,), (12, 64)))
    angles = np.arange(12)[:, None] * 0.3 ** np.arange(16) + 0.1
    table = RotaryTable(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), False)
    q, y = Buffer(64), Buffer(64)
    calls = [
        rope_call([Rotated(q, y, 2, norm)], table, TABLES[0], TABLES[1])
        for norm in (None, HeadNorm("rms", 1e-6, TABLES[2]))
    ]
    calls.append(pointwise.add_positions_call(q, TABLES[3], y))
    tables = dict(zip(TABLES, (table.cos, table.sin, weight, learned), strict=False))
    for call in calls:
        kinds = Runtime.POSITIONS, Runtime.ROPE_POSITIONS
        given = {**tables, q: laid_out(x), y: empty(y, 8), **dict.fromkeys(kinds, positions)}
        together = played(call, given, 8, twice=False)
        for row in range(8):
            given |= {q: laid_out(x[row : row + 1]), y: empty(y, 1)}
            given |= dict.fromkeys(kinds, positions[row : row + 1])
            for one, other in zip(together, played(call, given, 1, twice=False), strict=True):
                assert one[y][row].tobytes() == other[y][0].tobytes()


# -- the state of a step


def test_what_a_step_sends() -> None:
    """A step over one sequence sends one block table, one over several has room for eight."""
    from tests.simt.backend.test_runs import Text, joined

    device = FakeDevice()
    state = State(device, 16, 3)
    parts = [Text(seed, range(3 * seed, 3 * seed + 3), 100) for seed in range(3)]
    for text, length in zip(parts, (2 * PAGE_TOKENS + 5, 0, PAGE_TOKENS), strict=True):
        text.length = length
    step = joined([text.step(rows) for text, rows in zip(parts, (1, 4, 3), strict=True)])
    state.write(step)
    state.send(several=True)
    device.synchronize()

    def sent(address: int, count: int) -> list[int]:
        return device.memory.view(address, np.int32, count).tolist()

    assert sent(state.positions, 8) == step.positions.tolist() == [517, 0, 1, 2, 3, 256, 257, 258]
    assert sent(state.tokens, 8) == step.token_ids.tolist()
    assert sent(state.pages, 6) == [0, 1, 2, 3, 6, 7]
    assert sent(state.runs, 4 * 8) == [0, 1, 0, 0, *4 * (1, 5, 3, 0), *3 * (5, 8, 4, 0)]
    alone = parts[1].step(2)
    state.write(alone)
    state.staging.numpy().view(np.int32)[-21:] = -1  # behind the one table
    state.send(several=False)
    device.synchronize()
    assert sent(state.positions, 2) == [4, 5]
    assert sent(state.pages, 6) == [3, 1, 2, 3, 6, 7]
