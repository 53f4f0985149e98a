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

_MOST_WARPS = {
    **dict.fromkeys(("q41", "q50", "q51"), (12, 80)),
    **dict.fromkeys(("q40", "q4k", "q2k", "q3k", "iq4nl"), (14, 72)),
    **dict.fromkeys(("q6k", "iq4xs", "tq10", "tq20", "mxfp4", "grouped2u32f32"), (16, 64)),
    **dict.fromkeys((f"grouped{bits}u64" for bits in (2, 3, 4, 5)), (16, 64)),
    **dict.fromkeys((f"grouped{bits}u64f32" for bits in (2, 3, 4, 5)), (16, 64)),
    **dict.fromkeys((f"grouped{bits}u128" for bits in (2, 3, 4, 6, 8)), (16, 64)),
    **dict.fromkeys((f"grouped{bits}u128f32" for bits in (2, 4, 5, 8)), (16, 64)),
}
"""By layout: the warps of a block for small matrices, and the register limit at which two such blocks fit on
a multiprocessor. Nothing spills on any device; some kernels of experts would.
"""
_WIDE = {
    **dict.fromkeys(("affine3u32f16", "affine3u32f32", "affine5u32bf16", "affine6u32bf16"), 96),
    **dict.fromkeys(("affine8u32bf16", "affine8u128f32", "bytes16", "iq4k"), 96),
    "q5k": 128, "grouped4u64": 128, "grouped8u32": 168,
}  # fmt: skip
"""The register limits of layouts that need more than 80 with eight warps."""
_WIDE_EXPERTS = ("iq2s", "iq2xs", "iq1m", "iq2k", "iq3k", "iq4k")
"""Layouts whose kernels of experts need 128."""
_TWO_TILES_COST = 0.8
"""A tile's time with two tiles a warp, relative to one (measured on an H200)."""


def _light(weight_layout: CodeLayout) -> bool:
    """Whether there are so few numbers beside the codes that a warp can take two tiles."""
    return (
        weight_layout.scales == "half"
        and weight_layout.mins == ""
        and weight_layout.bits < 6
        and weight_layout.table == ""
    )


def variant(
    weight_layout: CodeLayout, tiles: int, columns: int, sm_count: int, experts: bool = False
) -> Variant:
    """More warps along K for matrices so small that all their blocks run at once, two a multiprocessor; two
    tiles a warp where that takes less time: blocks run in rounds, and the last one may be nearly empty.
    """
    one, small = kernel(weight_layout, 1, 8, experts), tiles <= 2 * sm_count and columns >= 16 * 128
    if small and not experts and weight_layout.name in _MOST_WARPS:
        return Variant(kernel(weight_layout, 1, _MOST_WARPS[weight_layout.name][0]), 1)
    if _light(weight_layout):
        two = kernel(weight_layout, 2, 4, experts)
        if _TWO_TILES_COST * _tile_rounds(two, 2, tiles, sm_count) < _tile_rounds(one, 1, tiles, sm_count):
            return Variant(two, 2)
    return Variant(one, 1)


def _tile_rounds(kernel: Kernel, each: int, tiles: int, sm_count: int) -> int:
    """The tiles that each multiprocessor computes, one after the other, in all rounds of blocks."""
    return -(-tiles // (each * kernel.blocks * sm_count)) * each * kernel.blocks


_CHECKED = (
    "q40", "q4k", "q6k", "q80", "mxfp4", "nvfp464", "grouped4u128", "q2k", "grouped8u32f32", "iq3s", "iq2s",
    "iq4ks",
)  # fmt: skip


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists: those of usual types and of those with the most numbers."""
    for weight_layout in WEIGHT_LAYOUTS:
        if isinstance(weight_layout, CodeLayout) and weight_layout.name in _CHECKED:
            yield kernel(weight_layout, 1, 8)
            if weight_layout.name in _MOST_WARPS:
                yield kernel(weight_layout, 1, _MOST_WARPS[weight_layout.name][0])
            if _light(weight_layout):
                yield kernel(weight_layout, 2, 4)
            if weight_layout.name in ("q4k", "q6k", "mxfp4", "nvfp464"):
                yield unpack_codes.unpack_kernel(weight_layout)
            if weight_layout.name == "q6k":
                yield unpack_codes.embed_kernel(weight_layout)
            if weight_layout.name in ("mxfp4", "nvfp464", "iq2s"):
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
    most, narrow = _MOST_WARPS.get(weight_layout.name, (0, 0))
    if experts and weight_layout.name in _WIDE_EXPERTS:
        limit = 128
    limit = narrow if warps == most else limit
    return Kernel(
        f"{'experts' if experts else 'linear'}_{weight_layout.name}_{tiles}x{warps}",
        multiply_codes.experts if experts else multiply_codes.linear,
        EXPERTS if experts else LINEAR,
        32 * warps,
        limit,
        {**constants(weight_layout), **sizes},
        max(1, 65536 // (limit * 32 * warps)),
    )
