"""Packed panels of a large batch: some tiles' next `PANEL` features, unpacked, times all rows.

A panel holds integers (`integer_gemm`) or float32 (`gemm`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import prefetch_bytes
from engine.backends.cpu.codegen.simd import I64, counted_loop, intrinsic_function
from engine.backends.cpu.codegen.specialise import Jit, specialise, words
from engine.backends.cpu.kernels.linear import amx, direct
from engine.backends.cpu.kernels.linear.gemm import COLUMN_VECTORS, ROW_STEPS, panel_tile
from engine.backends.cpu.kernels.linear.integer_gemm import COLUMN_VECTORS as INTEGER_VECTORS
from engine.backends.cpu.kernels.linear.integer_gemm import ROW_STEPS as INTEGER_STEPS
from engine.backends.cpu.kernels.linear.integer_gemm import integer_tile
from engine.backends.cpu.kernels.linear.panel_format import PAIRS, PanelFormat
from engine.backends.cpu.kernels.packed_activations import FEATURES
from engine.backends.cpu.layouts.interleave import PANEL
from engine.backends.cpu.layouts.layout import IntegerLayout, WeightLayout

# Filled in for each weight layout by `panel_parts`.
configure: Any = None
release: Any = None
tile: Any = None
tile_big: Any = None
tile_small: Any = None
PANEL_BYTES = PACKED_BYTES = STEP_BIG = STEP_SMALL = VECTORS = 0


_Rows = dict[int, tuple[Any, dict[str, Any]]]
"""For each number of vectors of columns: the template of a panel times all rows, and what fills it in."""


@cache
def panel_format_of(weight_layout: WeightLayout, bits: int) -> PanelFormat | None:
    """The panel format in which large batches take integers; None if they take float32."""
    return (
        weight_layout.panel_format(bits)
        if isinstance(weight_layout, IntegerLayout) and (bits == 8 or (bits == 16 and PAIRS))
        else None
    )


def unpack_blocks(weight_layout: WeightLayout) -> Any:
    """unpack(first_block, blocks, target): float32 (blocks * unit, 16)."""

    def emit(b: ir.IRBuilder, first: Any, blocks: Any, target: Any) -> None:
        with counted_loop(b, blocks) as i:
            block = b.add(first, b.mul(i, ir.Constant(I64, weight_layout.block_bytes)))
            weight_layout.emit_unpack(
                b, block, b.add(target, b.mul(i, ir.Constant(I64, 64 * weight_layout.unit)))
            )

    return intrinsic_function(f"unpack_{weight_layout.name}", types.void, (types.int64,) * 3, emit)


def _pack_panel(weight_layout: IntegerLayout, form: PanelFormat) -> Any:
    """pack(first_block, blocks, target): unpack blocks to a packed panel of integers."""
    size = form.size * weight_layout.unit // FEATURES

    def emit(b: ir.IRBuilder, first: Any, blocks: Any, target: Any) -> None:
        with counted_loop(b, blocks) as i:
            block = b.add(first, b.mul(i, ir.Constant(I64, weight_layout.block_bytes)))
            weight_layout.emit_panel(b, block, b.add(target, b.mul(i, ir.Constant(I64, size))), form)

    return intrinsic_function(f"panel{form.bits}_{weight_layout.name}", types.void, (types.int64,) * 3, emit)


def _panel_rows_template(
    panel: int, x: int, x_stride: int, start: int, length: int, rows: int, y: int, y_stride: int,
    ahead: int, apart: int,
) -> None:  # fmt: skip
    """y += x from row `start` on times the panel. A tile with a row or two too many takes less time than
    smaller ones.

    Beside each tile some lines of the panels that begin at `ahead`, `apart` bytes apart, are prefetched: all
    at once would be more than a core can wait for while it computes.
    """
    size = (PACKED_BYTES // ((rows + STEP_BIG - 1) // STEP_BIG) + 63) // 64 * 64
    x += start * x_stride
    r = 0
    while r < rows:
        for m in range(VECTORS):
            prefetch_bytes(ahead + m * apart, size)
        ahead += size
        xr, yr, here = x + r * x_stride, y + r * y_stride, rows - r
        if here > max(STEP_SMALL, STEP_BIG - STEP_SMALL) and not STEP_BIG < here <= 2 * STEP_SMALL:
            tile_big(panel, PANEL_BYTES, xr, x_stride, length, yr, y_stride, here)
            r += STEP_BIG
        else:
            tile_small(panel, PANEL_BYTES, xr, x_stride, length, yr, y_stride, here)
            r += STEP_SMALL


def _amx_rows_template(
    panel: int, x: int, x_stride: int, start: int, length: int, rows: int, y: int, y_stride: int,
    ahead: int, apart: int,
) -> None:  # fmt: skip
    """The same by AMX."""
    configure(start, rows)
    tile(panel, PANEL_BYTES, x, x_stride, start, length, rows, y, y_stride, ahead, apart, PACKED_BYTES)
    release()


def _no_rows(tile: int, blocks: int, x: int, x_stride: int, rows: int, y: int, y_stride: int) -> None:
    """In place of `few_rows` where no number of rows is few."""


def _register_rows(tile_of: Callable[[int, int], Any], vectors: int, steps: tuple[int, int]) -> _Rows:
    """Products by register tiles: `tile_of(vectors, rows)`."""
    return {
        n: (
            _panel_rows_template,
            {
                "tile_big": tile_of(n, steps[0]),
                "tile_small": tile_of(n, steps[1]),
                "STEP_BIG": steps[0],
                "STEP_SMALL": steps[1],
            },
        )
        for n in {vectors, 1}
    }


def _integer_rows(form: PanelFormat) -> _Rows:
    """Products of panels of integers."""
    if form.amx:
        known = {"configure": amx.configure(form), "release": amx.release}
        return {
            n: (_amx_rows_template, {**known, "tile": amx.amx_rows(n, form)}) for n in (amx.COLUMN_VECTORS, 1)
        }
    return _register_rows(lambda n, rows: integer_tile(n, rows, form), INTEGER_VECTORS, INTEGER_STEPS)


def _panels(weight_layout: WeightLayout, form: PanelFormat | None) -> dict[str, Any]:
    """What `panel_parts` needs for panels of integers (`form`) or of float32 (None)."""
    if form is None:
        return {
            "name": "floats", "unpack": unpack_blocks(weight_layout),
            "rows": _register_rows(panel_tile, COLUMN_VECTORS, ROW_STEPS),
            "panel_bytes": PANEL * 64, "x_bytes": 4 * weight_layout.unit, "x_unit": 1,
        }  # fmt: skip
    assert isinstance(weight_layout, IntegerLayout)
    return {
        "name": form.name, "unpack": _pack_panel(weight_layout, form), "rows": _integer_rows(form),
        "panel_bytes": PANEL // FEATURES * form.size,
        "x_bytes": weight_layout.unit // FEATURES * (
            amx.block_bytes(form) if form.amx else form.activation_bytes
        ), "x_unit": FEATURES,
    }  # fmt: skip


def panel_parts(weight_layout: WeightLayout, jit: Jit, bits: int, few: Any) -> dict[str, Any]:
    """What `linear._large_batch_template` needs for activations of `bits` bits, compiled by `jit`; `few`: the
    product of a few rows (`direct`), None without.
    """
    form = panel_format_of(weight_layout, bits)
    kind = _panels(weight_layout, form)
    rows_of = {}
    for vectors, (template, tiles) in kind["rows"].items():
        function = specialise(
            template,
            f"rows_{kind['name']}_{weight_layout.name}_{vectors}",
            PANEL_BYTES=kind["panel_bytes"],
            PACKED_BYTES=PANEL // weight_layout.unit * weight_layout.block_bytes,
            VECTORS=vectors,
            **tiles,
        )
        rows_of[vectors] = jit(function, words(10))
    wide = max(rows_of)
    return {
        "unpack": kind["unpack"],
        "wide_rows": rows_of[wide],
        "thin_rows": rows_of[1],
        "few_rows": few or jit(_no_rows, words(7)),
        "FEW_ROWS": direct.FEW_ROWS if few is not None else 0,
        "FEW_BLOCKS": (direct.FEW_COLUMNS if form is not None and form.fast else 1 << 40)
        // weight_layout.unit,
        "PANEL_BYTES": kind["panel_bytes"],
        "X_BYTES": kind["x_bytes"],
        "X_UNIT": kind["x_unit"],
        "WIDE_VECTORS": wide,
        "INTEGER_PANEL": form is not None,
    }
