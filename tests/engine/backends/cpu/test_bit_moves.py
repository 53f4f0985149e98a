"""Packing by moving bits: the same bytes as a layout's own `pack` gives, and only where bits alone move."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from engine.backends.cpu.bit_moves import bit_moves
from engine.backends.cpu.codebook_codes import LookedUp
from engine.backends.cpu.codegen.simd import LANES
from engine.backends.cpu.layouts.blocks import BlockLayout
from engine.backends.cpu.layouts.interleave import interleaved_tiles, places, tile_places
from engine.backends.cpu.layouts.layout import Bytes, WeightLayout
from engine.backends.cpu.layouts.q8 import Q8
from engine.backends.cpu.layouts.table import WEIGHT_LAYOUTS, weight_layout_for
from engine.backends.cpu.runtime.weight_memory import WeightMemory
from engine.backends.cpu.weight import CpuWeight
from engine.backends.gguf_blocks.block_type import BlockType
from tests.engine.backends.kernel_oracles import Matrix

MORE_THAN_BITS = ("tq10", "iq2kl", "iq3k")
"""Five digits to a byte, codes for two values, and negated scales."""


def random_rows(weight_layout: WeightLayout, rows: int, blocks: int) -> Bytes:
    return np.random.default_rng(rows + blocks).integers(
        0, 256, rows * blocks * weight_layout.file_bytes, np.uint8
    )


@pytest.mark.parametrize("weight_layout", WEIGHT_LAYOUTS, ids=lambda each: each.name)
def test_what_moves_only_bits_is_packed_by_moving_them_to_the_last_bit(weight_layout: WeightLayout) -> None:
    for rows, blocks in ((16, 1), (32, 3), (48, 8), (16, 20)):
        moves = bit_moves(weight_layout, blocks)
        assert (moves is None) == (weight_layout.name in MORE_THAN_BITS)
        if moves is not None:
            raw = random_rows(weight_layout, rows, blocks)
            with np.errstate(all="ignore"):  # random bytes may be no numbers
                made = weight_layout.pack(raw, rows, blocks * weight_layout.unit)
                packed = moves.packed(raw, rows, blocks * weight_layout.unit)
            assert np.array_equal(packed, made)


def test_code_that_looks_up_is_compiled_before_threads_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    layout, compiled = weight_layout_for("IQ2_XXS"), list[BlockType]()
    monkeypatch.setattr("engine.backends.cpu.codebook_codes._kernel", compiled.append)
    assert isinstance(layout, BlockLayout)
    LookedUp(layout.block, layout.pack_parts)
    assert compiled == [layout.block]


@pytest.mark.parametrize(("kind", "columns"), [("Q4_K", 2816), ("Q8_0", 2592), ("F16", 2564), ("Q4_0", 96)])
def test_bytes_in_memory_are_those_on_a_disk(
    kind: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces begin within interleaved tiles, the last ones are fewer, and the rows fill no tile."""
    matrix = Matrix(kind, (16 * 11 + 5, columns), 3)
    weights = []
    for memory, at_once in ((None, 1 << 20), (None, 1), (0, 1 << 20)):
        monkeypatch.setattr("engine.backends.cpu.weight._BYTES_AT_ONCE", at_once)
        weight = CpuWeight(matrix, WeightMemory(memory))
        assert weight.interleaved == interleaved_tiles(columns)
        weights.append((weight, np.array(all_bytes(weight))))
    assert len({found.tobytes() for _, found in weights}) == 1


def all_bytes(weight: CpuWeight) -> Bytes:
    """The bytes of all tiles."""
    return np.frombuffer((ctypes.c_char * weight.nbytes).from_address(weight.address), np.uint8)


@pytest.mark.parametrize("together", [1, 2, 4])
def test_a_tile_s_place_is_where_its_panels_are_written(together: int) -> None:
    tiles, size, panel = 7, 5, 2
    for first, count in ((0, 7), (1, 4), (5, 2)):
        packed = np.array([[10 * (first + t) + i for i in range(size)] for t in range(count)], np.uint8)
        one, other = (np.full(tiles * size, 255, np.uint8) for _ in range(2))
        for start, rows, apart in places(packed, first, tiles, together, panel):
            for i, row in enumerate(rows):
                one[start + i * apart : start + i * apart + len(row)] = row
        for tile, (begin, apart, last) in zip(
            packed, tile_places(first, count, tiles, together, panel, size), strict=True
        ):
            for i in range(size // panel):
                other[begin + i * apart : begin + i * apart + panel] = tile[i * panel : (i + 1) * panel]
            other[last : last + size % panel] = tile[size // panel * panel :]
        assert np.array_equal(one, other)


@dataclass(frozen=True)
class Changed(Q8):
    """Q8_0 whose packed bytes (tiles, bytes of a tile) are changed."""

    change: Callable[[Bytes], Bytes]

    def pack(self, raw: Bytes, rows: int, columns: int) -> Bytes:
        made = super().pack(raw, rows, columns).reshape(rows // LANES, -1)
        return self.change(made).reshape(-1)


def test_layouts_that_do_more_are_not_taken_for_moves() -> None:
    plain = Changed(lambda made: made)
    assert bit_moves(plain, 2) is not None
    assert bit_moves(Changed(lambda made: ~made), 2) is not None, "an inverted bit is still that bit"
    both = Changed(lambda made: np.concatenate([made[:, :-1] & made[:, 1:], made[:, -1:]], axis=1))
    assert bit_moves(both, 2) is None, "a bit of two"
    assert bit_moves(Changed(lambda made: made + np.uint8(1)), 2) is None, "a sum"
    turned = Changed(lambda made: np.roll(made, 2, axis=1))
    assert bit_moves(turned, 2) is None, "a lane with another row's bits"
