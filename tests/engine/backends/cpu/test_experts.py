"""Mixture of experts on the CPU: against the reference backend, and every row the same to the last bit
whatever is beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.base import AttentionShape, Program, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.backends.routing import ROOT, Routing
from tests.engine.backends.kernel_oracles import INTEGER, PAIRS, Matrix, seen, unit_of

Array = np.ndarray[Any, Any]
TINY = AttentionShape(1, 1, 16, 1.0)
MOST_ROWS = 70
OTHERS = ("Q4_0", "Q8_0", "MXFP4", "Q4_K", "Q6_K", "BF16")
"""What models with experts come in; slow, because each has kernels of its own to compile."""


def seen_by(experts: list[Matrix], x: Any, routes: Any, prompt_bits: int = 16) -> Any:
    """For the reference: the rows as the CPU's products with these experts see them."""
    if not isinstance(x, torch.Tensor):
        return x
    chosen = routes[0].reshape(-1).tolist()
    rows = [
        seen(row[None].numpy(), experts[e].type, chosen.count(e), prompt_bits)
        for row, e in zip(x, chosen, strict=True)
    ]
    return torch.tensor(np.concatenate(rows).astype(np.float32))


class Mixture:
    """A router and experts with biases, added to the rows of a table; `rows_first` takes the rows that
    need logits first.
    """

    def __init__(
        self,
        kind: str,
        routing: Routing,
        width: int = 64,
        inner: int = 96,
        rows_first: bool = False,
        bits: int = 16,
        corrected: bool = False,
        residual: bool = True,
        tabled: bool = False,
    ) -> None:
        self.routing, self.rows_first, self.bits, self.residual = routing, rows_first, bits, residual
        count = routing.experts
        self.correction = np.linspace(-0.3, 0.3, count, dtype=np.float32) if corrected else None
        rng = np.random.default_rng(7)
        shares = rng.random((97, count)).argsort(1)[:, : routing.used]
        self.experts_of = shares.astype(np.int32) if tabled else None
        self.scales = np.linspace(0.5, 1.5, count, dtype=np.float32) if corrected else None
        width, inner = (-(-size // unit_of(kind)) * unit_of(kind) for size in (width, inner))
        self.table, self.router = Matrix("F32", (97, width), 1), Matrix("F32", (count, width), 2)
        self.gate, self.up = (
            [Matrix(kind, (inner, width), s + 10 * e) for e in range(count)] for s in (3, 4)
        )
        self.down = [Matrix(kind, (width, inner), 5 + 10 * e) for e in range(count)]
        rng = np.random.default_rng(6)
        self.biases = [rng.standard_normal((count, n)).astype(np.float32) for n in (inner, width)]

    def forward(self, backend: Any) -> Callable[[Any], Any]:
        table, router = backend.load_weight(self.table), backend.load_weight(self.router)
        gate, up, down = ([backend.load_weight(m) for m in part] for part in (self.gate, self.up, self.down))

        def forward(ops: Any) -> Any:
            x = ops.embed(table, 0.1)
            x = ops.last_rows(x) if self.rows_first else x
            logits = ops.linear(x, router)
            routes = ops.route(logits, self.routing, self.correction, self.scales, self.experts_of)
            spread = ops.spread(x, routes)
            # Products of the same rows with other experts run side by side, and those with the same ones
            # after another kernel.
            a = ops.expert_linear(seen_by(self.gate, spread, routes, self.bits), gate, routes, self.biases[0])
            b = ops.expert_linear(seen_by(self.up, spread, routes, self.bits), up, routes)
            inner = ops.gated(a, b, "silu")
            y = ops.expert_linear(seen_by(self.down, inner, routes, self.bits), down, routes, self.biases[1])
            y = ops.gather(y, routes, x if self.residual else None)
            return y if self.rows_first else ops.last_rows(y)

        return forward


@contextmanager
def recorded(backend: Any, mixture: Mixture) -> Iterator[Program]:
    program = backend.record(mixture.forward(backend), backend.new_cache([TINY], 1, "fp32"), MOST_ROWS)
    try:
        yield program
    finally:
        program.close()


def step(ids: Array, logit_rows: int | None = None, start: int = 0) -> Step:
    positions = np.arange(start, start + len(ids), dtype=np.int32)
    return Step(ids.astype(np.int32), positions, np.zeros(1, np.int32), logit_rows or len(ids))


CASES = [
    ("F32", Routing(4, 2)), ("Q4_1", Routing(8, 8)), ("F16", Routing(5, 1)), ("Q4_1", Routing(128, 8)),
    ("F16", Routing(7, 3, False)), ("Q4_1", Routing(33, 6, False)), ("F32", Routing(1, 1)),
    *(pytest.param(kind, Routing(9, 4), marks=pytest.mark.slow) for kind in OTHERS),
]  # fmt: skip


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(("kind", "routing"), CASES)
def test_against_the_reference(kind: str, routing: Routing) -> None:
    mixture = Mixture(kind, routing)
    rng = np.random.default_rng(8)
    with recorded(CpuBackend(2), mixture) as cpu, recorded(ReferenceBackend(), mixture) as reference:
        for rows in (1, 2, 3, 5, 7, 8, 9, 16, 17, 31, MOST_ROWS):
            ids = rng.integers(0, 97, rows)
            found, expected = cpu.run(step(ids)), reference.run(step(ids))
            error = np.abs(found - expected) / np.abs(expected).max()
            # An activation on the border of two of 16 bits' codes may fall to the other side: a step of 2^-15
            # of its block's largest.
            assert error.max() <= (2.0**-14 if kind in INTEGER else 2e-5), rows
            assert np.median(error) <= 5e-6, rows


SCORED = [
    Routing(9, 3, False, "sigmoid"), Routing(1, 1, False, "sigmoid"), Routing(8, 2, True, scale=2.5),
    Routing(24, 4, False, groups=6, used_groups=2), Routing(32, 6, True, "sigmoid", 2.5, 8, 3, 2),
    Routing(6, 3, True, "sigmoid", 1.0, 6, 4, 2), Routing(16, 2, False, nearness=0.01),
    Routing(9, 4, False, scale=1.5, nearness=0.5), Routing(5, 5, nearness=0.0),
    Routing(9, 3, False, "sigmoid", by_logit=True),
    Routing(24, 4, True, "sigmoid", 2.5, 6, 2, 2, by_logit=True), Routing(9, 3, True, ROOT, 1.5),
]  # fmt: skip


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("routing", SCORED)
def test_any_routing(routing: Routing, corrected: bool) -> None:
    mixture = Mixture("F32", routing, 64, 32, corrected=corrected, residual=not corrected)
    rng = np.random.default_rng(8)
    with recorded(CpuBackend(2), mixture) as cpu, recorded(ReferenceBackend(), mixture) as reference:
        for rows in (1, 8, 16, 17, MOST_ROWS):
            ids = rng.integers(0, 97, rows)
            found, expected = cpu.run(step(ids)), reference.run(step(ids))
            assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max(), rows


@pytest.mark.parametrize("kind", ["Q4_1", pytest.param("Q6_K", marks=pytest.mark.slow)])
def test_prompts_in_eight_bits(kind: str) -> None:
    """Of an expert that gets more than sixteen rows; the others take theirs in 16."""
    mixture = Mixture(kind, Routing(5, 2), bits=8)
    ids = np.random.default_rng(8).integers(0, 97, MOST_ROWS)
    with recorded(CpuBackend(2, 8), mixture) as cpu, recorded(ReferenceBackend(), mixture) as reference:
        for rows in (8, 20, MOST_ROWS):
            # Not at the begin of a sequence, whose first rows go apart.
            later = step(ids[:rows], start=1)
            found, expected = cpu.run(later), reference.run(later)
            # A number on the border of two codes may fall to the other side, which shows in all that an
            # expert makes of it.
            error = np.abs(found - expected) / np.abs(expected).max()
            assert np.median(error) <= 2e-6, rows
            assert error.max() <= (2e-5 if rows <= 16 else 2e-3), rows


@pytest.mark.parametrize(("kind", "width", "inner"), [("F32", 75, 37), ("F16", 20, 130)])
def test_odd_widths_and_rows_that_need_logits(kind: str, width: int, inner: int) -> None:
    mixture = Mixture(kind, Routing(6, 2), width, inner, rows_first=True)
    ids = np.arange(40)
    with recorded(CpuBackend(2), mixture) as cpu, recorded(ReferenceBackend(), mixture) as reference:
        for rows, required in ((1, 1), (8, 3), (40, 1), (40, 8), (40, 9), (40, 40)):
            found, expected = cpu.run(step(ids[:rows], required)), reference.run(step(ids[:rows], required))
            assert found.shape == expected.shape == (required, width)
            assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max(), (rows, required)


@pytest.mark.parametrize(
    "kind", ["Q4_1", "F16", *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS)]
)
def test_rows_of_a_short_step_are_those_of_steps_of_one(kind: str) -> None:
    """With few experts rows meet in them, with twice the same token in all."""
    ids = np.array([5, 9, 5, 44, 61, 9, 80, 5, 12, 5, 9, 44, 80, 7, 5, 61])
    for routing in (Routing(4, 2), Routing(16, 3)):
        with recorded(CpuBackend(2), Mixture(kind, routing, inner=320)) as program:
            alone = np.concatenate([program.run(step(ids[i : i + 1])).copy() for i in range(16)])
            for rows in (2, 3, 4, 5, 7, 8, 9, 14, 16):
                assert np.array_equal(program.run(step(ids[:rows])), alone[:rows])
            many = program.run(step(np.tile(ids, 4))).reshape(4, 16, -1)
            # Without pairs long steps take whole activations, and short ones 16 bits of them.
            rounded = kind in INTEGER and not PAIRS
            assert np.abs(many - alone).max() <= (1e-4 if rounded else 1e-5) * np.abs(alone).max()


@pytest.mark.skipif(not PAIRS, reason="without pairs long steps take activations in float32")
@pytest.mark.parametrize(
    "kind", ["Q4_1", *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS[:-1])]
)
def test_long_steps_give_the_same_rows_however_they_are_cut(kind: str) -> None:
    """Experts of integers with biases get more than sixteen rows of one step and fewer of another."""
    ids = np.random.default_rng(2).integers(0, 97, MOST_ROWS)
    with recorded(CpuBackend(2), Mixture(kind, Routing(16, 3), 600, 520)) as program:
        whole = program.run(step(ids)).copy()
        for cut in (17, 20, 35):
            parts = [program.run(step(part)).copy() for part in (ids[:cut], ids[cut:])]
            assert np.array_equal(np.concatenate(parts), whole), cut


@pytest.mark.slow  # compiles kernels of its own
def test_wide_experts_of_few_bits() -> None:
    """More tiles at once than are interleaved."""
    mixture = Mixture("Q2_K", Routing(8, 8), 256, 3072)
    with recorded(CpuBackend(1), mixture) as cpu, recorded(ReferenceBackend(), mixture) as reference:
        for rows in (1, 8, 60):
            found, expected = cpu.run(step(np.arange(rows))), reference.run(step(np.arange(rows)))
            assert np.abs(found - expected).max() <= 2.0**-14 * np.abs(expected).max(), rows


def test_experts_of_several_layouts() -> None:
    """A file may keep some experts with more bits."""
    mixture = Mixture("Q4_1", Routing(6, 3))
    for part, size in ((mixture.up, (96, 64)), (mixture.down, (64, 96))):
        part[2], part[5] = Matrix("F16", size, 70), Matrix("F32", size, 71)
    with recorded(CpuBackend(2), mixture) as cpu, recorded(ReferenceBackend(), mixture) as reference:
        for rows in (1, 3, 8, 16, 17, MOST_ROWS):
            ids = np.arange(rows) + 3
            found, expected = cpu.run(step(ids)), reference.run(step(ids))
            assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max(), rows


@pytest.mark.parametrize(
    "routing", [Routing(20, 4), Routing(20, 4, scale=2.5), Routing(20, 4, False, groups=5, used_groups=3)]
)
def test_equal_logits_go_to_the_first_experts(routing: Routing) -> None:
    mixture = Mixture("F32", routing)
    mixture.router.values[:] = 0
    mixture.router.values[7], mixture.router.values[18] = mixture.table.values[3], mixture.table.values[3]
    with recorded(CpuBackend(1), mixture) as cpu, recorded(ReferenceBackend(), mixture) as reference:
        ids = np.array([3, 50, 3])
        found, expected = cpu.run(step(ids)), reference.run(step(ids))
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_scores_that_are_all_zero_weigh_nothing() -> None:
    mixture = Mixture("F32", Routing(4, 2, True, "sigmoid", 2.5))
    mixture.router.values[:] = -1000 * mixture.table.values[3]
    with recorded(CpuBackend(1), mixture) as cpu, recorded(ReferenceBackend(), mixture) as reference:
        found, expected = cpu.run(step(np.array([3]))), reference.run(step(np.array([3])))
    assert np.abs(found - expected).max() <= 1e-6
    assert np.abs(found[0] - mixture.table.values[3] * 0.1).max() <= 1e-6  # the residual alone


@pytest.mark.parametrize("routing", [Routing(7, 3, True, ROOT, 1.5), Routing(5, 2, False)])
def test_experts_of_tokens_in_a_table(routing: Routing) -> None:
    """Whatever their scores are, which only weigh them."""
    mixture = Mixture("F32", routing, tabled=True)
    ids = np.arange(MOST_ROWS) + 3
    with recorded(CpuBackend(2), mixture) as cpu, recorded(ReferenceBackend(), mixture) as reference:
        for rows in (1, 3, 8, 16, 17, MOST_ROWS):
            found, expected = cpu.run(step(ids[:rows])), reference.run(step(ids[:rows]))
            assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()
    with recorded(ReferenceBackend(), Mixture("F32", routing)) as best:
        assert np.abs(best.run(step(ids)) - expected).max() > 0.01 * np.abs(expected).max()


@pytest.mark.parametrize("routing", [Routing(5, 2), Routing(6, 3, True, "sigmoid", 1.0, 3, 2, 2)])
def test_logits_that_are_no_numbers_choose_some_experts(routing: Routing) -> None:
    """Nothing outside the matrices is read: the next step is as ever."""
    mixture = Mixture("F32", routing)
    mixture.table.values[4] = np.nan
    mixture.table.values[6] = np.inf
    with recorded(CpuBackend(2), mixture) as program:
        before = program.run(step(np.arange(3))).copy()
        spoiled = program.run(step(np.array([0, 4, 1, 6, 2]))).copy()
        assert np.array_equal(spoiled[[0, 2, 4]], before)
        assert not np.isfinite(spoiled[[1, 3]]).any()
        assert np.array_equal(program.run(step(np.arange(3))), before)
