"""Grouped codes on the CPU: every width and unit unpacked exactly, products, columns in another order and
in several parts.
"""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.codegen.simd import LANES
from engine.backends.cpu.codegen.simd_bytes import LIMIT
from engine.backends.cpu.kernels import packed_activations
from engine.backends.cpu.kernels.linear.dots import _dot
from engine.backends.cpu.layouts.grouped import GROUPED_WEIGHT_LAYOUTS, UNITS, WIDTHS, Grouped
from engine.backends.cpu.layouts.table import weight_layout_for
from engine.backends.cpu.runtime.memory import aligned
from engine.backends.cpu.weight import CpuWeight
from engine.backends.packing.pieces import affine_type
from engine.models.proof.random_tensors import builder
from engine.tensors import RawTensor
from engine.weights.packed.grouped import GroupedTensor, Layout, Run, runs_by_group
from engine.weights.tensor import FileTensor
from tests.engine.backends.cpu.test_weight_types import compiled, unpacked
from tests.engine.backends.kernel_oracles import PAIRS, Matrix, sixteen_bits

Array = np.ndarray[Any, Any]


class Drawn:
    """A `Source` of random numbers; `layout` as given."""

    def __init__(
        self,
        rows: int,
        runs: list[Run],
        order: Array | None,
        seed: int,
        half: bool = True,
        size: float = 1e-2,
    ) -> None:
        rng = np.random.default_rng(seed)
        columns = sum(run.size for run in runs)
        self._codes = np.concatenate(
            [rng.integers(0, 1 << run.bits, (rows, run.size)) for run in runs], axis=1
        ).astype(np.uint8)
        widths = np.zeros(max(run.group for run in runs) + 1, np.int64)
        for run in runs:
            widths[run.group] = run.bits
            self._codes[0, run.start] = (1 << run.bits) - 1
        self._zeros = rng.integers(0, (1 << widths) + 1, (rows, widths.size)).astype(np.int16)
        self._zeros[0], self._zeros[-1] = 0, 1 << widths
        scales = (rng.standard_normal((rows, widths.size)) * size).astype(np.float32)
        self._scales = scales.astype(np.float16).astype(np.float32) if half else scales
        self.tensor = GroupedTensor("test.weight", Layout(columns, tuple(runs), order, half, 0, rows), self)
        group = np.repeat([run.group for run in runs], [run.size for run in runs])
        kept = (self._codes.astype(np.int64) - self._zeros[:, group]).astype(np.float32) * self._scales[
            :, group
        ]
        self.values = kept if order is None else kept[:, np.argsort(order)]

    def product(self, x: Array) -> Array:
        """x (T, K) float32 times the matrix in a long step, float64: with VNNI each part of integers takes
        16 bits of its activations.
        """
        kept = self.tensor.order
        order = np.arange(x.shape[1]) if kept is None else np.asarray(kept)
        pieces: list[Any] = (
            list(self.tensor.pieces()) if self.tensor.type.startswith("PERMUTED") else [self.tensor]
        )
        ends = np.cumsum([piece.shape[1] for piece in pieces])
        total = np.zeros((len(x), self.values.shape[0]))
        for piece, end in zip(pieces, ends, strict=True):
            columns = order[end - piece.shape[1] : end]
            part = x[:, columns]
            given = (
                sixteen_bits(part)
                if PAIRS and weight_layout_for(piece.type).integer
                else part.astype(np.float64)
            )
            total += given @ self.values[:, columns].T.astype(np.float64)
        return total

    def codes(self, outputs: Array, start: int, stop: int) -> Array:
        return self._codes[outputs, start:stop]

    def scales(self, outputs: Array) -> Array:
        return self._scales[outputs]

    def zeros(self, outputs: Array) -> Array:
        return self._zeros[outputs]


def one_width(rows: int, columns: int, bits: int, unit: int, half: bool, seed: int) -> Drawn:
    runs, order = runs_by_group(np.arange(columns) // unit, bits)
    return Drawn(rows, runs, order, seed, half)


def test_names_are_those_of_the_tensors() -> None:
    assert {f.types[0] for f in GROUPED_WEIGHT_LAYOUTS if isinstance(f, Grouped)} == {
        one_width(2, unit, bits, unit, half, 0).tensor.type
        for bits in WIDTHS
        for unit in UNITS
        for half in (True, False)
    }


QUICK = ((4, 128, True), (8, 64, False))
CASES = [
    pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow])
    for case in itertools.product(WIDTHS, UNITS, (True, False))
]


@pytest.mark.parametrize(("bits", "unit", "half"), CASES)
def test_unpacking_and_products(bits: int, unit: int, half: bool) -> None:
    """Exact numbers, zeros of 0 and one past the largest code among them; a row's product is the same
    beside any others.
    """
    drawn = one_width(37, 3 * unit, bits, unit, half, bits)
    check_products(drawn.tensor, drawn.values, 3 * unit)


AFFINE = (
    (4, 64, "BF16"), (8, 64, "F32"), (3, 128, "F16"), (2, 32, "F32"), (5, 32, "BF16"), (6, 64, "F16"),
    (8, 128, "BF16"),
)  # fmt: skip
"""Every width, unit and kind of numbers; they are compiled from the same lines."""


@pytest.mark.parametrize(
    ("bits", "unit", "kind"),
    [pytest.param(*case, marks=[] if case in AFFINE[:2] else [pytest.mark.slow]) for case in AFFINE],
)
def test_unpacking_and_products_with_biases(bits: int, unit: int, kind: str) -> None:
    """Exact numbers, as the files' formula rounds them."""
    build = builder(affine_type(bits, unit, kind))
    assert build is not None
    tensor = build(np.random.default_rng(bits), 37, 3 * unit)
    check_products(tensor, tensor.dequantise(), 3 * unit)


def check_products(tensor: RawTensor, values: Array, columns: int) -> None:
    """Of a matrix (37, `columns`): unpacked to the last bit; one to sixteen rows, alone and beside others."""
    weight = CpuWeight(tensor)
    assert weight.weight_layout.types == (tensor.type,)
    assert np.array_equal(unpacked(weight), values)
    x = np.random.default_rng(1).standard_normal((8, columns)).astype(np.float32)
    width = columns // packed_activations.FEATURES
    packed = np.zeros((8, width * packed_activations.PACKED_BYTES), np.uint8)
    for row in range(8):
        compiled(packed_activations.quantise_row, 3)(x[row].ctypes.data, width, packed[row].ctypes.data)
    exact = sixteen_bits(x) @ values.T.astype(np.float64)
    bound = np.abs(x).sum(1)[:, None] * np.abs(values).max(1)
    alone: Array | None = None
    for rows in (1, 2, 4, 8):
        call = compiled(_dot(weight.weight_layout, rows), 7)
        got, out = (
            np.zeros((8, weight.tiles * LANES), np.float32),
            aligned(64 * 8).view(np.float32).reshape(8, LANES),
        )
        for tile in range(weight.tiles):
            source = weight.address + tile * weight.tile_bytes
            for first in range(0, 8, rows):
                out[:] = 0
                call(
                    source,
                    weight.blocks,
                    packed[first:].ctypes.data,
                    packed.strides[0],
                    rows,
                    out.ctypes.data,
                    0,
                )
                got[first : first + rows, tile * LANES : (tile + 1) * LANES] = out[:rows]
        assert (np.abs(got[:, :37] - exact) / bound).max() < 1e-6
        alone = got if alone is None else alone
        assert np.array_equal(got, alone)


SHAPE = AttentionShape(1, 1, 16, 0.25)


class Net:
    """A table of random rows, then matrices one after the other, some of them of the same input."""

    def __init__(self, backend: CpuBackend, width: int, matrices: list[Drawn], last: Drawn) -> None:
        rng = np.random.default_rng(4)
        table = Matrix("F32", (61, width), 9)
        self.values, self.table = table.values, backend.load_weight(table)
        self.drawn, self.last = matrices, last
        self.weights, self.head = (
            [backend.load_weight(d.tensor) for d in matrices],
            backend.load_weight(last.tensor),
        )
        self.bias = rng.standard_normal(matrices[0].tensor.shape[0]).astype(np.float32)

    def __call__(self, ops: Any) -> Any:
        x = ops.embed(self.table)
        y = None
        for weight in self.weights:
            y = ops.linear(x, weight, self.bias, y)
        return ops.linear(ops.last_rows(y), self.head)

    def exact(self, ids: Array) -> tuple[Array, Array]:
        """The outputs, and how far off each row may be: float32 sums in another order turn a few of the last
        product's activations to the next of their whole numbers.
        """
        x = self.values[ids]
        y = np.asarray(sum(d.product(x) + self.bias for d in self.drawn), np.float32)
        out = self.last.product(y)
        step = np.abs(y).max(1) / LIMIT * np.abs(self.last.values).max()
        return out, 2e-6 * np.abs(out).max() + 2 * step


def run(program: Any, ids: Array) -> Array:
    out: Array = program.run(
        Step(ids, np.arange(len(ids), dtype=np.int32), np.array([0], np.int32), len(ids))
    ).copy()
    return out


def test_the_largest_weights_and_activations_do_not_overflow() -> None:
    """Codes a whole range away from their zero points, times the largest whole numbers of either sign: where
    products are replaced by sums of both, these fit in 16 bits.
    """
    drawn = one_width(32, 64, 8, 32, False, 0)
    drawn._codes[:16], drawn._zeros[:16] = 255, 0
    drawn._codes[16:], drawn._zeros[16:] = 0, 256
    kept = drawn._codes.astype(np.int64) - np.repeat(drawn._zeros, 32, axis=1)
    values = kept * np.repeat(drawn._scales, 32, axis=1).astype(np.float64)
    signs = np.ones((20, 64), np.float32)
    signs[::2] = -1
    signs[5:, ::3] *= -1
    backend = CpuBackend(2)
    table = backend.load_weight(FileTensor("x", "F32", signs.shape, signs.view(np.uint8).reshape(-1)))
    weight = backend.load_weight(drawn.tensor)
    program = backend.record(
        lambda ops: ops.linear(ops.embed(table), weight), backend.new_cache([SHAPE], 1, "fp32"), 20
    )
    ids = np.arange(20, dtype=np.int32)
    try:
        many = run(program, ids)
        assert np.allclose(many, signs @ values.T, rtol=0, atol=1e-6 * np.abs(values).sum(1).max())
        if PAIRS:
            assert np.array_equal(many, np.concatenate([run(program, ids[i : i + 1]) for i in range(20)]))
    finally:
        program.close()


@pytest.mark.slow
def test_composites_multiply_as_their_numbers_do() -> None:
    """Several widths and orders, a few left-over columns, a bias and a residual; 1 to 8 rows to the last
    bit alike, and many.
    """
    backend, width, rng = CpuBackend(2), 200, np.random.default_rng(0)
    order = rng.permutation(width)
    parts = [Run(0, 64, 4, 0), Run(64, 32, 6, 1), Run(96, 96, 6, 2), Run(192, 8, 3, 3)]
    other, runs = runs_by_group(rng.permutation(np.arange(width) // 40), 4)
    net = Net(
        backend,
        width - 8,
        [
            Drawn(75, [r for r in parts if r.start < 192], order[order < 192], 1),
            Drawn(75, parts[:3], order[order < 192], 2),
        ],
        Drawn(53, [Run(0, 64, 4, 0), Run(64, 11, 2, 1)], rng.permutation(75), 3),
    )
    assert Drawn(9, parts, order, 1).tensor.type == "PERMUTED+GROUPED4_64+GROUPED6_32+GROUPED_REST"
    assert Drawn(9, other, runs, 1).tensor.type == "PERMUTED+GROUPED"
    cache = backend.new_cache([SHAPE], 1, "fp32")
    program = backend.record(net, cache, 64)
    ids = rng.integers(0, 61, 50).astype(np.int32)
    exact, bound = net.exact(ids)
    try:
        alone = np.concatenate([run(program, ids[i : i + 1]) for i in range(16)])
        for rows in (1, 2, 3, 4, 5, 7, 8, 9, 14, 16):
            assert np.array_equal(run(program, ids[:rows]), alone[:rows]), rows
        for rows in (17, 21, 50):
            assert (np.abs(run(program, ids[:rows]) - exact[:rows]) <= bound[:rows, None]).all(), rows
    finally:
        program.close()


def test_matrices_of_one_order_share_the_activations() -> None:
    """Two matrices of the same input and order, three parts in all: three permutations, not six."""
    from engine.backends.cpu.lowering.lower import LoweredPass

    backend, order = CpuBackend(1), np.random.default_rng(2).permutation(192)
    parts = [Run(0, 64, 6, 0), Run(64, 64, 4, 1), Run(128, 64, 3, 2)]
    net = Net(
        backend,
        192,
        [Drawn(32, parts, order, 1), Drawn(32, parts, order, 2)],
        Drawn(16, [Run(0, 32, 4, 0)], None, 3),
    )
    kernels = LoweredPass(net, backend.new_cache([SHAPE], 1, "fp32")).kernels
    assert kernels.count("permute") == 3
    assert sum(kernel.startswith("linear") for kernel in kernels) == 7


@pytest.mark.parametrize("name", ["model.layers.0.mlp.experts.3.w1.weight", "model.embed_tokens.weight"])
def test_rows_that_are_looked_up_or_chosen_are_kept_whole(name: str) -> None:
    drawn = Drawn(20, [Run(0, 64, 6, 0), Run(64, 64, 4, 1)], np.random.default_rng(2).permutation(128), 1)
    drawn.tensor.name = name
    weight = CpuBackend(1).load_weight(drawn.tensor)
    assert isinstance(weight, CpuWeight)
    assert weight.weight_layout.name == "f16"
    assert np.array_equal(unpacked(weight), drawn.values.astype(np.float16).astype(np.float32))


def test_loading_takes_little_more_than_the_weight() -> None:
    drawn = one_width(4096, 4096, 4, 128, True, 1)
    backend = CpuBackend(1)
    tracemalloc.start()
    try:
        weight = backend.load_weight(drawn.tensor)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert weight.nbytes < 4.2 / 8 * 4096 * 4096
    # One step of a million codes and its temporaries; a model has hundreds of such matrices.
    assert peak <= weight.nbytes + (16 << 20)
