"""Packed weight types: exact unpacking, loading in bounded memory, and codes of every width, on this CPU
and on lesser ones.
"""

from __future__ import annotations

import copy
import functools
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from llvmlite import ir
from numba import types

from engine.backends.base import AttentionShape, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.codegen import simd
from engine.backends.cpu.codegen.simd import I64, LANES, const_vector, intrinsic_function, store
from engine.backends.cpu.codegen.simd_bytes import BASE, LIMIT
from engine.backends.cpu.kernels import packed_activations
from engine.backends.cpu.kernels.linear import integer_gemm, panel_format
from engine.backends.cpu.kernels.linear.panel_format import FAST_INNER_PRODUCT
from engine.backends.cpu.kernels.linear.panels import unpack_blocks
from engine.backends.cpu.layouts.codes import GROUP, CodeReader, Codes
from engine.backends.cpu.layouts.table import WEIGHT_LAYOUTS, weight_layout_for
from engine.backends.cpu.weight import CpuWeight
from engine.backends.cpu.weight_spec import WeightSpec
from engine.errors import BadCheckpoint
from engine.weights.gguf.table import GGUF_FORMATS
from tests.engine.backends.kernel_oracles import (
    FALLBACK_TYPES,
    WEIGHT_CASES,
    WEIGHT_TYPES,
    Matrix,
    other_cpu,
    seen,
    sixteen_bits,
    unit_of,
)

Array = np.ndarray[Any, Any]


@functools.cache
def compiled(function: Any, arguments: int) -> Any:
    """An intrinsic as a Python function of int64."""
    names = ", ".join(f"a{i}" for i in range(arguments))
    scope: dict[str, Any] = {"function": function}
    exec(f"def call({names}): function({names})", scope)
    return numba.njit((types.int64,) * arguments)(scope["call"])


def unpacked(weight: CpuWeight) -> Array:
    """(N, K) float32 as the kernels see it."""
    n, k = weight.shape
    weight_layout, out = (
        weight.weight_layout,
        np.full((weight.tiles, weight.blocks * weight.weight_layout.unit, LANES), np.nan, np.float32),
    )
    call = compiled(unpack_blocks(weight_layout), 3)
    for tile in range(weight.tiles):
        call(weight.address + tile * weight.tile_bytes, weight.blocks, out[tile].ctypes.data)
    return np.ascontiguousarray(out.transpose(0, 2, 1)).reshape(-1, weight.blocks * weight_layout.unit)[
        :n, :k
    ]


@pytest.mark.parametrize("kind", WEIGHT_TYPES)
def test_unpacking_gives_the_file_s_values_to_the_last_bit(kind: str) -> None:
    """Whatever the bytes: fp16 numbers from the smallest subnormal one to 60,000, of either sign (for MXFP4
    all powers of two), and rows that fill no tile.
    """
    low, high = (2.0**-128, 2.0**123) if kind == "MXFP4" else (6e-8, 20.0 if kind in FALLBACK_TYPES else 6e4)
    for seed, (rows, blocks) in enumerate([(1, 1), (37, 3), (64, 2), (16, 5)]):
        matrix = Matrix(kind, (rows, blocks * unit_of(kind)), seed, low=low, high=high)
        assert np.isfinite(matrix.values).all()
        weight = CpuWeight(matrix)
        assert np.array_equal(unpacked(weight), matrix.values)
        assert weight.nbytes == WeightSpec(matrix).nbytes


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("kind", WEIGHT_CASES)
def test_products_of_extreme_scales(kind: str) -> None:
    """Steps of one to nine and of many rows, within float32's rounding of each output's own terms."""
    unit, top = unit_of(kind), 20.0 if kind in FALLBACK_TYPES else 6e4
    backend, rng = CpuBackend(2), np.random.default_rng(8)
    for shape, low, high in (((19, unit * (2 if unit >= 256 else 7)), 1e-7, 1.0), ((16, unit), top / 9, top)):
        matrix, table = Matrix(kind, shape, 5, low=low, high=high), Matrix("F32", (40, shape[1]), 6)
        table.values = table.values * rng.choice([1e-3, 1, 30], shape[1]).astype(np.float32)
        table.data = table.values.reshape(-1).view(np.uint8)
        # A type with minimums, or one whose middle code is 0, has terms of the size of its largest weight.
        bound = np.abs(table.values).sum(1)[:, None] * np.abs(matrix.values).max(1) + 1e-30
        packed, x = backend.load_weight(matrix), backend.load_weight(table)
        program = backend.record(
            lambda ops, w=packed, t=x: ops.linear(ops.last_rows(ops.embed(t)), w),  # type: ignore[misc]
            backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "fp16"),
            40,
        )
        try:
            for rows in (*range(1, 10), 40):
                ids = np.arange(rows, dtype=np.int32)
                exact = seen(table.values[:rows], kind, rows) @ matrix.values.T.astype(np.float64)
                error = (
                    np.abs(program.run(Step(ids, ids, np.zeros(1, np.int32), rows)) - exact) / bound[:rows]
                )
                assert error.max() < 1e-6, (rows, float(error.max()))
        finally:
            program.close()


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1e-40, 1e-31, 1e-20, 1.0, 1e30]),
    blocks=st.integers(1, 4),
)
@settings(max_examples=60)
@example(seed=85, size=1e-20, blocks=2)
def test_activations_in_sixteen_bits(seed: int, size: float, blocks: int) -> None:
    """Records hold what the oracle says, and sums are those of the numbers. Numbers move by half a step at
    most, of which there are `LIMIT` to the largest of 32, and by what four roundings to float32 take of the
    number: the step's, its inverse's, two products'.
    """
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((1, 32 * blocks)) * rng.choice([0, 1e-3, 1, 1000], 32 * blocks) * size).astype(
        np.float32
    )
    expected = sixteen_bits(x).reshape(blocks, 32)
    few, many = (
        np.zeros((blocks, packed_activations.PACKED_BYTES), np.uint8),
        np.zeros((blocks, panel_format.INT16_ACTIVATIONS.activation_bytes), np.uint8),
    )
    compiled(packed_activations.quantise_row, 3)(x.ctypes.data, blocks, few.ctypes.data)
    compiled(integer_gemm.pack_int16_row, 3)(x.ctypes.data, blocks, many.ctypes.data)
    high, low = (few[:, at : at + 32].view(np.int8).astype(np.float64) for at in (0, packed_activations.LOW))
    whole = BASE * high + low
    scale = np.ascontiguousarray(few[:, 64:68]).view(np.float32)
    assert np.array_equal(whole * scale, expected)
    sums = np.stack([whole[:, :16].sum(1), whole[:, 16:].sum(1), whole.sum(1)], 1)
    assert np.array_equal(np.ascontiguousarray(few[:, 80:92]).view(np.int32), -sums)
    pairs = (
        np.ascontiguousarray(many[:, :64])
        .view(np.int16)
        .reshape(blocks, 8, 4)[:, :, [0, 2, 1, 3]]
        .reshape(blocks, 32)
    )
    assert np.array_equal(pairs, whole)
    assert np.array_equal(many[:, 64:80], few[:, 64:80])
    np.testing.assert_allclose(np.ascontiguousarray(few[:, 68:80]).view(np.float32), sums * scale, rtol=1e-6)
    numbers = np.abs(x.reshape(blocks, 32).astype(np.float64))
    # the least number of float32
    assert (scale <= numbers.max(1, keepdims=True) * (1 + 2.0**-22) / LIMIT + 2.0**-149).all()
    assert (
        np.abs(expected - x.reshape(blocks, 32)) <= np.maximum(scale * 0.5 + numbers * 4 * 2.0**-24, 1e-30)
    ).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_spoils_its_record(bad: float) -> None:
    x, record = np.ones((1, 32), np.float32), np.zeros((1, packed_activations.PACKED_BYTES), np.uint8)
    x[0, 7] = bad
    compiled(packed_activations.quantise_row, 3)(x.ctypes.data, 1, record.ctypes.data)
    assert not np.isfinite(record[0, 64:68].view(np.float32)).any()


@given(bits=st.integers(2, 6), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_codes_fill_their_words(bits: int, seed: int) -> None:
    """Every bit of every code is somewhere: words of zeros and of ones, and no two codes alike."""
    codes = np.random.default_rng(seed).integers(0, 1 << bits, (GROUP, 3), dtype=np.uint8)
    words = Codes(bits).pack(codes)
    assert len(words) == bits
    ones = [sum(int(w).bit_count() for w in (word[i] for word in words)) for i in range(3)]
    assert ones == [sum(int(c).bit_count() for c in codes[:, i]) for i in range(3)]
    # The four codes of a quad lie in the four bytes of a word, at the same bits of each.
    for k in range(GROUP):
        value = np.zeros(3, np.uint8)
        for width, first, places in Codes(bits).planes:
            word, quad = divmod(k // 4, GROUP // 4 // width)
            byte = words[places[word]].view(np.uint8).reshape(3, 4)[:, k % 4]
            value |= (byte >> np.uint8(quad * width) & np.uint8((1 << width) - 1)) << np.uint8(first)
        assert np.array_equal(value, codes[k])


@pytest.mark.parametrize(("bits", "offset", "values"), [(2, 0, None), (3, 4, None), (4, 9, None),
    (5, 31, None), (6, 1, None),
                                                        (3, 0, tuple(range(-128, 128, 32))),
    (4, 0, tuple(range(-128, 128, 16)))])  # fmt: skip
def test_codes_come_back(bits: int, offset: int, values: tuple[int, ...] | None) -> None:
    codes = Codes(bits, offset, values)
    numbers = np.random.default_rng(bits).integers(0, 1 << bits, (GROUP, LANES), dtype=np.uint8)

    def emit(b: ir.IRBuilder, source: Any, target: Any) -> None:
        reader = CodeReader(b, codes, source)
        for k in range(GROUP):
            store(
                b,
                b.fsub(reader.vector(k), const_vector(float(codes.left))),
                b.add(target, ir.Constant(I64, 64 * k)),
            )

    packed, out = np.concatenate(codes.pack(numbers)), np.zeros((GROUP, LANES), np.float32)
    compiled(intrinsic_function(f"read_{bits}_{offset}", types.void, (types.int64,) * 2, emit), 2)(
        packed.ctypes.data, out.ctypes.data
    )
    expected = np.array(values)[numbers] if values else numbers.astype(np.float32) - offset
    assert np.array_equal(out, expected)


MORE = {
    "TQ1_0": 1.25, "IQ3_S": 1.26, "IQ3_XXS": 1.41, "IQ2_S": 1.4, "IQ2_XS": 1.55, "IQ2_XXS": 1.61,
    "IQ1_M": 2.04, "IQ1_S": 2.12,
}  # fmt: skip
"""Bytes in memory for a byte in the file."""


def test_every_readable_block_type_has_one_layout_near_its_file_s_size() -> None:
    names = [t for f in WEIGHT_LAYOUTS for t in f.types]
    assert len(names) == len(set(names))
    assert len({f.name for f in WEIGHT_LAYOUTS}) == len(WEIGHT_LAYOUTS)
    assert all(
        256 % f.unit == 0 and "_" not in f.name and (f.unit % 32 == 0 or not f.integer)
        for f in WEIGHT_LAYOUTS
    )
    for entry in GGUF_FORMATS:
        weight_layout = weight_layout_for(entry.name)
        if entry.name in weight_layout.types:
            assert weight_layout.unit == entry.block_size or entry.block_size == 1
            # Ternary digits, five to a byte in the file, are kept in 2 bits, and groups from a codebook as a
            # code of 3 or 4 bits for each value.
            more = MORE.get(entry.name, 1.04)
            assert (
                weight_layout.block_bytes / LANES / weight_layout.unit
                <= more * entry.block_bytes / entry.block_size
            )
        else:
            assert weight_layout.name == "f16"


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "Q8_0", "IQ3_S", "NVFP4", "F16"])
def test_loading_takes_little_more_than_the_weight(kind: str) -> None:
    """Rows are asked for in pieces, and the peak stays below 1.15 times what is kept."""

    class Streamed(Matrix):
        largest = 0

        def rows(self, start: int, stop: int) -> Matrix:
            piece = copy.copy(self)  # a piece of a file takes its bytes alone, so values are not copied
            piece.data = self.data.reshape(self.shape[0], -1)[start:stop].flatten()
            piece.values, piece.shape = self.values[start:stop], (stop - start, self.shape[1])
            Streamed.largest = max(Streamed.largest, piece.data.size)
            return piece

    matrix = Streamed(kind, (48, 512), 1)
    columns = 1 << 14
    repeated = Streamed(kind, (48, 512), 1)
    repeated.data = np.tile(matrix.data.reshape(48, -1), (200, columns // 512)).reshape(-1)
    repeated.values = np.broadcast_to(np.float32(0.5), (9600, columns))
    repeated.shape = (9600, columns)
    tracemalloc.start()
    try:
        weight = CpuWeight(repeated)
        # the matrix itself has pages of its own, which are not traced
        beside = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0 < beside <= 0.15 * weight.nbytes
    assert Streamed.largest <= 1 << 20


def test_a_number_too_large_for_fp16_is_refused() -> None:
    matrix = Matrix("NVFP4", (16, 256), 1)
    matrix.values = matrix.values * np.float32(1e9)
    with pytest.raises(BadCheckpoint, match=r"test\.weight \(NVFP4\).*65504"):
        CpuWeight(matrix)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cpu", "cases"),
    [
        ("generic", "slow or not slow"),
        ("core2", "not slow"),
        ("haswell", "slow or not slow"),
        pytest.param(
            "alderlake",
            "not slow",
            marks=pytest.mark.skipif("avxvnni" not in simd.FEATURES, reason="this CPU has no AVX-VNNI"),
        ),
        pytest.param(
            "x86-64-v4",
            "not slow",
            marks=pytest.mark.skipif(not FAST_INNER_PRODUCT, reason="this CPU's own code does the same"),
        ),
    ],
)
def test_other_cpus(cpu: str, cases: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same tests pass with code made for a plain x86-64, for one that can permute bytes, for AVX2, for
    AVX-VNNI and for AVX-512 without additions instead of products. The second, the fourth and the last differ
    from another by an instruction or two, which the types that share their code with others would show once
    more.
    """
    others = [str(Path(__file__).with_name(name)) for name in ("test_small_batch.py", "test_bit_moves.py")]
    command = [sys.executable, "-m", "pytest", "-q", "-m", cases, "-p", "no:cacheprovider", __file__, *others]
    command += ["-k", "not other_cpus and not head_shapes"]
    environment = other_cpu(cpu, tmp_path_factory)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
