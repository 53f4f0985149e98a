"""Chooses the kernel that multiplies one to eight rows with packed codes (`multiply_codes`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels.linear import multiply_codes, unpack_codes
from engine.backends.cuda.kernels.linear.code_constants import constants
from engine.backends.cuda.kernels.linear.interface import EXPERTS, LINEAR, Variant
from engine.backends.cuda.layouts.codes import CodeLayout
from engine.backends.cuda.layouts.table import WEIGHT_LAYOUTS

_TWELVE = ("q40", "q4k", "q41", "q50", "q51", "iq4nl", "iq4xs", "tq10", "tq20")
"""Layouts for which twelve warps a block, used for small matrices, fit in 80 registers on every device."""
_WIDE = {"q5k": 128, "grouped4u64": 128, "grouped8u32": 168}
"""The register limits of layouts that need more than 80."""


def _light(weight_layout: CodeLayout) -> bool:
    """Whether there are so few numbers beside the codes that a warp can take two tiles."""
    return (
        weight_layout.scales == "half"
        and weight_layout.mins == ""
        and weight_layout.bits < 8
        and weight_layout.table == ""
    )


def variant(
    weight_layout: CodeLayout, tiles: int, columns: int, sm_count: int, experts: bool = False
) -> Variant:
    """Two tiles a warp if that leaves 20 warps a multiprocessor; small matrices get more warps along K."""
    if _light(weight_layout) and tiles // 2 * 4 >= 20 * sm_count:
        each, warps = 2, 4
    else:
        few = tiles * 8 < 32 * sm_count and columns >= 16 * 128 and weight_layout.name in _TWELVE
        each, warps = 1, 12 if few else 8
    return Variant(kernel(weight_layout, each, warps, experts), each)


_CHECKED = ("q40", "q4k", "q6k", "q80", "mxfp4", "grouped4u128", "q2k", "grouped8u32f32")


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists: those of usual types and of those with the most numbers."""
    for weight_layout in WEIGHT_LAYOUTS:
        if isinstance(weight_layout, CodeLayout) and weight_layout.name in _CHECKED:
            yield kernel(weight_layout, 1, 8)
            if weight_layout.name in ("q40", "q4k"):
                yield kernel(weight_layout, 1, 12)
            if weight_layout.name == "q40":
                yield kernel(weight_layout, 2, 4)
            if weight_layout.name in ("q4k", "q6k", "mxfp4"):
                yield unpack_codes.unpack_kernel(weight_layout)
            if weight_layout.name == "q6k":
                yield unpack_codes.embed_kernel(weight_layout)
            if weight_layout.name == "mxfp4":
                yield kernel(weight_layout, 1, 8, experts=True)


@cache
def kernel(weight_layout: CodeLayout, tiles: int, warps: int, experts: bool = False) -> Kernel:
    """The kernel of a product, with `tiles` (1, 2) a warp and `warps` (even) a block."""
    assert warps % 2 == 0
    assert 2 * warps % weight_layout.span == 0
    ahead = 2 * warps // weight_layout.span * weight_layout.span_bytes
    sizes = {"TILES": tiles, "WARPS": warps, "TILE_SHIFT": 3 + tiles.bit_length(), "AHEAD": ahead}
    words = sum(region.words for region in weight_layout.regions if not region.header)
    limit = 96 if tiles == 2 else _WIDE.get(weight_layout.name, 128 if words > 12 else 80)
    return Kernel(
        f"{'experts' if experts else 'linear'}_{weight_layout.name}_{tiles}x{warps}",
        multiply_codes.experts if experts else multiply_codes.linear,
        EXPERTS if experts else LINEAR,
        32 * warps,
        limit,
        {**constants(weight_layout), **sizes},
        max(1, 65536 // (limit * 32 * warps)),
    )
