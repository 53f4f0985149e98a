"""Packing of a GPU's weights by moving bits: the same bytes as a layout's own `pack` gives, and only where
bits alone move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import numpy as np
import pytest

from engine.backends.cuda.bit_moves import PAIR, bit_moves
from engine.backends.cuda.layouts.codes import CodeLayout, CodeParts
from engine.backends.cuda.layouts.layout import ROWS, Bytes, WeightLayout
from engine.backends.cuda.layouts.table import WEIGHT_LAYOUTS, weight_layout_for
from engine.backends.cuda.weight import CudaWeight
from engine.lazy_dataclass import dataclass
from tests.engine.backends.kernel_oracles import Matrix
from tests.simt.fake import FakeDevice

CODES = [each for each in WEIGHT_LAYOUTS if isinstance(each, CodeLayout)]
MORE_THAN_BITS = ("tq10", "nvfp464", "iq2kl", "iq3k")
"""Five digits to a byte, scales that are multiplied, codes for two values, and negated scales."""


def file_rows(layout: CodeLayout, rows: int, columns: int) -> Bytes:
    size = rows * columns // layout.file_columns * layout.file_bytes
    return np.random.default_rng(rows + columns).integers(0, 256, size, np.uint8)


@pytest.mark.slow_after(40)
@pytest.mark.parametrize("layout", CODES, ids=lambda each: each.name)
def test_what_moves_only_bits_is_packed_by_moving_them_to_the_last_bit(layout: CodeLayout) -> None:
    for rows, columns in ((32, 256), (64, 768), (32, 2048), (96, 1280)):
        moves = bit_moves(layout, columns)
        assert (moves is None) == (layout.name in MORE_THAN_BITS)
        if moves is not None:
            raw = file_rows(layout, rows, columns)
            with np.errstate(all="ignore"):  # random bytes may be no numbers
                made = layout.pack(raw, rows, columns)
                packed = moves.pack(raw, rows, columns)
            assert np.array_equal(packed, made)


@pytest.mark.parametrize("columns", [64, 192, 320])
def test_rows_of_any_number_of_blocks_are_packed(columns: int) -> None:
    for kind in ("Q4_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4"):
        layout = weight_layout_for(kind)
        assert isinstance(layout, CodeLayout)
        moves, raw = bit_moves(layout, columns), file_rows(layout, PAIR, columns)
        assert moves is not None
        assert np.array_equal(moves.pack(raw, PAIR, columns), layout.pack(raw, PAIR, columns))


@pytest.mark.parametrize("rows", [1, 16, 17, 90, 16 * 11 + 5])
@pytest.mark.parametrize(("kind", "columns"), [("Q4_K", 768), ("Q6_K", 256), ("Q8_0", 96), ("IQ3_S", 512)])
def test_a_weight_in_pieces_has_the_bytes_that_its_layout_packs(
    rows: int, kind: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces of two tiles, the last ones of fewer rows; columns that fill no block of 64."""
    matrix, layout = Matrix(kind, (rows, columns), 3), weight_layout_for(kind)
    full, width = -(-rows // ROWS) * ROWS, -(-columns // 64) * 64
    raw = np.zeros((full, matrix.data.size // rows * width // columns), np.uint8)
    raw[:rows, : matrix.data.size // rows] = matrix.data.reshape(rows, -1)
    expected = layout.pack(raw.reshape(-1), full, width)
    for at_once in (1 << 20, 1):
        monkeypatch.setattr("engine.backends.cuda.weight._BYTES_AT_ONCE", at_once)
        weight = CudaWeight(FakeDevice(), matrix)
        assert weight.nbytes == expected.size
        assert np.array_equal(weight.data.numpy(), expected)


@dataclass(frozen=True)
class Changed(CodeLayout):
    """A layout whose packed words (tiles, words of a tile) are changed."""

    change: Callable[[Bytes], Bytes] = field(default=lambda made: made)

    def pack_parts(self, taken: CodeParts, rows: int, columns: int) -> Bytes:
        made = super().pack_parts(taken, rows, columns).reshape(rows // ROWS, -1)
        return np.ascontiguousarray(self.change(made)).reshape(-1)


def test_layouts_that_do_more_are_not_taken_for_moves() -> None:
    q8 = weight_layout_for("Q8_0")
    assert isinstance(q8, CodeLayout)

    def moved(change: Callable[[Bytes], Bytes]) -> bool:
        layout: WeightLayout = Changed(
            "changed", q8.types, q8.bits, q8.split, q8.file_columns, q8.file_bytes, q8.group, q8.scales,
            q8.mins, q8.zero, q8.span, q8.table, q8.levels, q8.unit, keep=None, change=change,
        )  # fmt: skip
        return bit_moves(layout, 128) is not None

    assert moved(lambda made: made)
    assert moved(lambda made: ~made), "an inverted bit is still that bit"
    assert not moved(lambda made: np.concatenate([made[:, :-1] & made[:, 1:], made[:, -1:]], axis=1)), (
        "of two"
    )
    assert not moved(lambda made: made + np.uint8(1)), "a sum"
    assert not moved(lambda made: 0 * made), "a word of no row"
    assert not moved(lambda made: np.roll(made, 2, axis=1)), "a word of two rows"
    swapped = np.arange(16)[::-1]
    assert not moved(
        lambda made: np.concatenate(
            [made[:, :64].reshape(-1, 16, 4)[:, swapped].reshape(-1, 64), made[:, 64:]], axis=1
        )
    ), "words at unequal distances"
