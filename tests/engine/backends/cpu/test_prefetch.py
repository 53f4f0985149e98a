"""How the product of each layout reads memory: in order, as a processor's own prefetcher follows it, and with
all lines prefetched where that does not keep up: one that is left out costs memory's whole latency.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from llvmlite import ir
from numba import njit, types

from engine.backends.base import Array, AttentionShape, Ops, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.codegen.simd import AMD, I8, I64, WIDE, store
from engine.backends.cpu.kernels.attention import products, tiles
from engine.backends.cpu.kernels.linear import panel_format
from engine.backends.cpu.kernels.linear.direct import _direct
from engine.backends.cpu.kernels.linear.dots import _dot, dots_kernel
from engine.backends.cpu.kernels.linear.linear import A_AHEAD, A_GROUP, A_TILE_BYTES, A_TILES, A_WEIGHT
from engine.backends.cpu.layouts import layout
from engine.backends.cpu.layouts.layout import READ_AHEAD, IntegerLayout, WeightLayout
from engine.backends.cpu.layouts.table import WEIGHT_LAYOUTS
from engine.backends.cpu.lowering.call import Operation
from engine.backends.cpu.runtime import read_ahead
from engine.backends.cpu.runtime.read_ahead import choose_read_ahead
from engine.backends.cpu.runtime.work_stealing import ARGUMENTS, OPERATION, SMALL_TILES, Words
from engine.backends.kv_formats import CacheType
from engine.weights.tensor import FileTensor

ROOM = 1 << 16
"""Bytes from a weight to the mark of its line."""
BLOCKS = 7
TWICE = WIDE and not AMD
"""Whether each line is prefetched into one level of the cache, and then into another."""


def _mark(b: ir.IRBuilder, address: Any, offset: int, level: int = 1) -> None:
    """Instead of a prefetch `READ_AHEAD` bytes ahead: a mark that the line would have been fetched, those of
    the second turn in a room of their own.
    """
    again = TWICE and level == 1
    ahead = READ_AHEAD // 4 if again else READ_AHEAD
    line = b.and_(b.add(address, ir.Constant(I64, offset - ahead)), ir.Constant(I64, -64))
    store(b, ir.Constant(I8, 1), b.add(line, ir.Constant(I64, 2 * ROOM if again else ROOM)))


def _multiply(kind: WeightLayout, rows: int, tile: int, ahead: int) -> None:
    """Multiply rows of zeros by `BLOCKS` blocks at the address `tile`; one row prefetches `ahead`."""
    dot = _dot(kind, rows)

    @njit(types.void(*(types.int64,) * 3))
    def product(tile: int, x: int, out: int) -> None:
        dot(tile, BLOCKS, x, 0, rows, out, ahead)

    x, out = np.zeros(4 * 256 * BLOCKS + 4096, np.uint8), np.zeros(16 * rows, np.float32)
    product(tile, x.ctypes.data, out.ctypes.data)


class _Reads:
    """Notes the order in which the lines of a tile are read for the first time, in code that is compiled
    while it stands for `ir.IRBuilder.load`.
    """

    def __init__(self, tile: int, size: int) -> None:
        self._load, self._inside = ir.IRBuilder.load, False
        self.turns = np.zeros(size // 64 + 2, np.int64)  # the last two: of other addresses, and the count
        self._tile, self._size = tile, size

    def patched(self, b: ir.IRBuilder, pointer: Any, *arguments: Any, **named: Any) -> Any:
        if not self._inside:
            self._inside = True
            self._note(b, b.ptrtoint(pointer, I64))
            self._inside = False
        return self._load(b, pointer, *arguments, **named)

    def _note(self, b: ir.IRBuilder, address: Any) -> None:
        def word(index: Any) -> Any:
            place = b.add(ir.Constant(I64, self.turns.ctypes.data), b.mul(index, ir.Constant(I64, 8)))
            return b.inttoptr(place, I64.as_pointer())

        offset, other = b.sub(address, ir.Constant(I64, self._tile)), ir.Constant(I64, self.turns.size - 2)
        inside = b.icmp_unsigned("<", offset, ir.Constant(I64, self._size // 64 * 64))
        line = word(b.select(inside, b.udiv(offset, ir.Constant(I64, 64)), other))
        count = word(ir.Constant(I64, self.turns.size - 1))
        turn, before = b.add(b.load(count), ir.Constant(I64, 1)), b.load(line)
        b.store(turn, count)
        b.store(b.select(b.icmp_signed("==", before, ir.Constant(I64, 0)), turn, before), line)


@pytest.mark.slow_after(16)
@pytest.mark.parametrize("kind", WEIGHT_LAYOUTS, ids=lambda kind: kind.name)
def test_the_lines_of_a_tile_are_read_in_their_order(
    kind: WeightLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "prefetch", _mark)
    size, memory = BLOCKS * kind.block_bytes, np.zeros(3 * ROOM + 64, np.uint8)
    tile = memory.ctypes.data + -memory.ctypes.data % 64
    reads = _Reads(tile, size)
    monkeypatch.setattr(ir.IRBuilder, "load", lambda b, *given, **named: reads.patched(b, *given, **named))
    _multiply(kind, 1, tile, 0)
    turns = reads.turns[:-2]
    assert np.count_nonzero(turns) > turns.size // 2  # a vector that reaches into the next line counts once
    found = np.flatnonzero(turns)
    assert (np.diff(turns[found]) > 0).all(), f"read in this order: {found[np.argsort(turns[found])]}"


@pytest.mark.slow_after(16)
@pytest.mark.parametrize("kind", WEIGHT_LAYOUTS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("rows", "ahead"), [(2, 0), (1, READ_AHEAD), (1, 2 * READ_AHEAD)])
def test_every_line_of_a_tile_is_prefetched(
    kind: WeightLayout, rows: int, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "prefetch", _mark)
    size = BLOCKS * kind.block_bytes
    assert size < ROOM
    memory = np.zeros(3 * ROOM + READ_AHEAD + 64, np.uint8)
    tile = -memory.ctypes.data % 64
    _multiply(kind, rows, memory.ctypes.data + tile, ahead)
    whole = size // 64 * 64  # the next tile begins in the rest
    further = max(0, ahead - READ_AHEAD)
    for room in (ROOM + further, 2 * ROOM + further // 4)[: 1 + TWICE]:
        marks = memory[tile + room : tile + room + whole : 64]
        assert marks.all(), f"lines {np.flatnonzero(marks == 0)} of {marks.size}"


@pytest.mark.skipif(not WIDE, reason="without AVX-512 nothing is prefetched into the first level")
@pytest.mark.parametrize("name", ["q4k", "f16"])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_single_row_may_prefetch_into_the_second_level_alone(
    name: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = next(each for each in WEIGHT_LAYOUTS if each.name == name)
    levels = np.zeros(3, np.int64)

    def count(b: ir.IRBuilder, address: Any, offset: int, level: int = 1) -> None:
        place = b.inttoptr(ir.Constant(I64, levels[level:].ctypes.data), I64.as_pointer())
        b.store(b.add(b.load(place), ir.Constant(I64, 1)), place)

    monkeypatch.setattr(layout, "prefetch", count)
    dots = njit(types.void(*(types.int64,) * 7))(dots_kernel(kind, None))

    @njit(types.void(*(types.int64,) * 4))
    def product(tile: int, x: int, out: int, ahead: int) -> None:
        dots(tile, BLOCKS, x, 2048 * BLOCKS, rows, out, ahead)

    tile, x = (np.random.default_rng(0).integers(0, 50, 1 << 18).astype(np.uint8) for _ in range(2))
    found = []
    for ahead in (READ_AHEAD, -READ_AHEAD):
        levels[:] = 0
        out = np.zeros((rows + 1, 16), np.float32)
        product(tile.ctypes.data, x.ctypes.data, out.ctypes.data, ahead)
        found.append((levels.tolist(), out.tobytes()))
    (both, sums), (second, same) = found
    assert sums == same
    assert both[2] or AMD
    if rows == 1:
        assert both[1]
        assert second == [0, 0, both[2] or both[1]]
    else:
        assert second == both


@pytest.mark.parametrize("name", ["q40", "q4k", "q6k", "q8", "affine4u64f16", "grouped4u128", "fp8u128"])
def test_lines_are_prefetched_between_products(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all at once, since a product's own weights would wait for them."""
    kind = next(each for each in WEIGHT_LAYOUTS if each.name == name)
    places = list[tuple[str, int]]()

    def note(b: ir.IRBuilder, address: Any, offset: int, level: int = 1) -> None:
        if not TWICE or level == 2:
            places.append((b.block.name, len(b.block.instructions)))

    monkeypatch.setattr(layout, "prefetch", note)
    _multiply(kind, 1, np.zeros(BLOCKS * kind.block_bytes + 64, np.uint8).ctypes.data, READ_AHEAD)
    products = [place for block, place in places if block == places[-1][0]]
    gaps = np.diff(products)
    assert len(gaps) > 2
    # Not between any two: some products are added in int16, with the next operands' ones.
    assert sum(gap < 8 for gap in gaps) <= len(gaps) // 2


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("kind", [k for k in WEIGHT_LAYOUTS if k.integer], ids=lambda kind: kind.name)
def test_every_line_of_a_few_rows_tile_is_prefetched(
    kind: IntegerLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "prefetch", _mark)
    monkeypatch.setattr(panel_format, "AMX", False)
    size, memory = BLOCKS * kind.block_bytes, np.zeros(3 * ROOM + READ_AHEAD + 64, np.uint8)
    form = kind.panel_format(16)
    direct = _direct(kind, form, 2)

    @njit(types.void(*(types.int64,) * 3))
    def product(tile: int, x: int, out: int) -> None:
        direct(tile, BLOCKS, x, 4096, 2, out, 64)

    tile = -memory.ctypes.data % 64
    x, out = np.zeros(BLOCKS * 256 * 16, np.uint8), np.zeros(32, np.float32)
    product(memory.ctypes.data + tile, x.ctypes.data, out.ctypes.data)
    whole = size // 64 * 64
    for room in (ROOM, 2 * ROOM)[: 1 + TWICE]:
        assert memory[tile + room : tile + room + whole : 64].all()


@pytest.mark.slow_after(4)
@pytest.mark.parametrize(
    ("dim", "queries"), [(64, 1), (64, 8), (80, 13), (64, 26), (64, 4), (80, 5), (80, 8)]
)
def test_queries_share_the_prefetching_of_the_next_keys(
    dim: int, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tile of queries asks for its share of the lines, in turn from all regions."""
    asked, order = np.zeros(1 << 12, np.int64), np.zeros((1 << 12) + 1, np.int64)
    ahead = 1 << 30

    def word(b: ir.IRBuilder, words: Words, index: Any) -> Any:
        place = b.add(ir.Constant(I64, words.ctypes.data), b.mul(index, ir.Constant(I64, 8)))
        return b.inttoptr(place, I64.as_pointer())

    def count(b: ir.IRBuilder, address: Any, offset: int, level: int = 1) -> None:
        line = b.udiv(b.sub(address, ir.Constant(I64, ahead - offset)), ir.Constant(I64, 64))
        turn = b.add(b.load(word(b, order, ir.Constant(I64, 0))), ir.Constant(I64, 1))
        b.store(turn, word(b, order, ir.Constant(I64, 0)))
        b.store(line, word(b, order, turn))
        b.store(b.add(b.load(word(b, asked, line)), ir.Constant(I64, 1)), word(b, asked, line))

    monkeypatch.setattr(tiles, "prefetch", count)

    def jit(function: Any, signature: Any) -> Any:
        return njit(signature)(function)

    scores = products.attention_products(CacheType("fp16", "fp16"), jit)["scores_of"]
    keys, x = np.zeros(256 * dim * 2, np.uint8), np.zeros((queries, dim), np.float32)
    out = np.zeros((queries, 256), np.float32)
    room = np.zeros(16 * tiles.VECTORS * tiles.STRIP_ROWS, np.float32)  # for strips
    scores(
        keys.ctypes.data, 0, 16, x.ctypes.data, dim, queries, dim, out.ctypes.data, ahead, room.ctypes.data
    )
    lines = keys.nbytes // 64
    assert asked[:lines].all()
    assert not asked[lines + 4 :].any()
    tiles_of = {1: 1, 4: 1, 5: 2, 8: 2, 13: 3, 26: 2}[queries]
    assert asked.sum() == tiles_of * lines  # as many instructions as without shares, with smaller steps
    each, regions = tiles.VECTORS * 32 // 64, keys.nbytes // tiles.REGION
    rounds = order[1 : 1 + order[0]].reshape(-1, regions, each)[:, :, 0]
    assert (rounds // (tiles.REGION // 64) == np.arange(regions)).all()


TILE_BYTES, GROUP, PARTS = 4096, 2, 5
WAYS = (-READ_AHEAD, READ_AHEAD, 0)


@pytest.fixture
def three_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "_WAYS", WAYS)


def _product(kernel: str, place: int, parts: int, size: int) -> tuple[Operation, Words]:
    """A product, and its argument block."""
    block = np.zeros(24, np.int64)
    block[[A_WEIGHT, A_TILE_BYTES, A_GROUP, A_TILES]] = place << 32, TILE_BYTES, GROUP, GROUP * parts
    block[A_AHEAD] = READ_AHEAD
    return Operation(kernel, block.tolist(), [], [], bytes=size, prefetches=kernel != "rms_norm"), block


class _Timed:
    """Instead of a replay: each operation takes as many ticks as its place and its way say."""

    def __init__(self, ticks: Sequence[int], others: Sequence[int] | None = None) -> None:
        """`ticks` are those of `WAYS`, `others` those of products of even places, if they differ."""
        self._ticks = dict(zip(WAYS, ticks, strict=True)), dict(zip(WAYS, others or ticks, strict=True))
        self.blocks: list[Words] = []

    def __call__(self, operations: Words, stages: Words, stamps: Words) -> None:
        calls = operations.reshape(-1, OPERATION)
        assert (np.diff(stages) == 1).all()
        assert (calls[:, SMALL_TILES] == 1).all()  # a stage of one tile runs on the calling thread
        for i, address in enumerate(calls[:, ARGUMENTS]):
            block = np.ctypeslib.as_array((ctypes.c_int64 * 24).from_address(int(address))).copy()
            self.blocks.append(block)
            place = int(block[A_WEIGHT] >> 32)
            stamps[i + 1] = stamps[i] + self._ticks[place % 2 == 0][int(block[A_AHEAD])] * place


def _chosen(
    timed: _Timed, kernels: Sequence[str], parts: int = PARTS, size: int = 2 << 20
) -> tuple[list[int], Words]:
    """The bytes ahead of these operations after the choice, and their blocks."""
    made = [_product(kernel, 1 + i, parts, size) for i, kernel in enumerate(kernels)]
    blocks: Words = np.stack([block for _, block in made])
    words = np.arange(OPERATION * len(made), dtype=np.int64).reshape(-1, OPERATION)
    choose_read_ahead([operation for operation, _ in made], words, blocks, timed)
    return blocks[:, A_AHEAD].tolist(), blocks


@pytest.mark.usefixtures("three_ways")
@pytest.mark.parametrize(
    ("ticks", "ahead"),
    [
        ((100, 120, 150), -READ_AHEAD), ((100, 95, 90), 0), ((100, 90, 95), READ_AHEAD),
        ((100, 99, 99), -READ_AHEAD), ((100, 97, 120), READ_AHEAD), ((1, 1, 1), -READ_AHEAD),
        ((0, 0, 0), READ_AHEAD),  # without a counter
    ],
)  # fmt: skip
def test_a_single_row_prefetches_in_the_way_that_is_fastest(ticks: tuple[int, int, int], ahead: int) -> None:
    kernels = ["linear_q4k"] * 9 + ["experts_q4k", "heads_q4k", "rms_norm", "experts_q6k"]
    found, _ = _chosen(_Timed(ticks), kernels)
    assert found == [ahead] * 11 + [READ_AHEAD] * 2  # the last words are another one's, and not measured


@pytest.mark.usefixtures("three_ways")
def test_each_layout_has_its_own_way() -> None:
    found, _ = _chosen(_Timed((100, 90, 120), (100, 110, 80)), ["linear_q4k", "linear8_q6k"] * 9)
    assert found == [READ_AHEAD, 0] * 9


@pytest.mark.usefixtures("three_ways")
@pytest.mark.parametrize(
    ("kernels", "parts", "size"),
    [
        (["linear_q4k"] * 7, PARTS, 4 << 20), (["experts_q4k"] * 20, PARTS, 4 << 20),
        (["linear_q4k"] * 20, 3, 4 << 20), (["linear_q4k"] * 16, PARTS, (1 << 20) - 1),
        (["linear_q4k"], 31, 40 << 20),
    ],
    ids=["too few", "of experts", "too small", "from the caches", "too few of one"],
)  # fmt: skip
def test_without_enough_products_to_time_they_prefetch(kernels: list[str], parts: int, size: int) -> None:
    timed = _Timed((100, 50, 50))
    assert set(_chosen(timed, kernels, parts, size)[0]) == {READ_AHEAD}
    assert not timed.blocks


@pytest.mark.usefixtures("three_ways")
@pytest.mark.parametrize(
    ("products", "parts", "measured"),
    [
        (8, PARTS, 8),
        (48, PARTS, 48),
        (49, PARTS, 48),
        (500, PARTS, 48),
        (1, 32, 8),
        (1, 500, 48),
        (5, 99, 48),
    ],
)
def test_what_is_timed_is_bounded_and_reads_each_part_of_a_weight_once(
    products: int, parts: int, measured: int
) -> None:
    timed = _Timed((100, 150, 150))
    _, blocks = _chosen(timed, ["linear_q4k"] * products, parts, 20 << 20)
    assert len(timed.blocks) == 4 * measured
    places = [int(block[A_WEIGHT]) for block in timed.blocks]
    assert len(set(places)) == len(places)
    for block in timed.blocks:
        weight = blocks[int(block[A_WEIGHT] >> 32) - 1]
        assert weight[A_WEIGHT] <= block[A_WEIGHT]
        assert block[A_WEIGHT] + block[A_TILES] * TILE_BYTES <= weight[A_WEIGHT] + parts * GROUP * TILE_BYTES
    aheads = [int(block[A_AHEAD]) for i, block in enumerate(timed.blocks) if i % 4]
    turns = {tuple(aheads[i : i + 3]) for i in range(0, len(aheads), 3)}
    assert turns == {WAYS, (*WAYS[1:], WAYS[0]), (*WAYS[2:], *WAYS[:2])}


def test_a_program_times_its_own_products_and_computes_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    times, counted = read_ahead._times, list[int]()

    def noted(timed: Sequence[tuple[int, list[int]]], *given: Any) -> Words:
        counted.append(len(timed))
        return times(timed, *given)

    monkeypatch.setattr(read_ahead, "_LEAST_BYTES", 0)
    monkeypatch.setattr(read_ahead, "_times", noted)
    values = np.random.default_rng(0).normal(0, 1 / 16, (256, 256)).astype(np.float32)
    backend = CpuBackend(2)
    weights = [
        backend.load_weight(FileTensor(f"w{i}", "F32", values.shape, values.view(np.uint8).reshape(-1)))
        for i in range(9)
    ]
    cache = backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "fp16")

    def forward(ops: Ops) -> Array:
        x = ops.last_rows(ops.embed(weights[0]))
        for weight in weights[1:]:
            x = ops.linear(x, weight)
        return x

    program = backend.record(forward, cache, 1)
    token = np.zeros(1, np.int32)
    found = program.run(Step(token + 7, token, token, 1)).copy()
    program.close()
    assert counted == [16]
    expected = values[7]
    for _ in weights[1:]:
        expected = values @ expected
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)
