"""Pairs layouts with the kernels that multiply, unpack and look up rows in packed matrices."""

from __future__ import annotations

from collections.abc import Iterator

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels.linear import codes, plain, unpack_codes, unpack_plain
from engine.backends.cuda.kernels.linear.interface import Variant
from engine.backends.cuda.layouts.codes import CodeLayout
from engine.backends.cuda.layouts.layout import WeightLayout
from engine.backends.cuda.layouts.plain import PLAIN_WEIGHT_LAYOUTS, Fp8, Plain


def linear_variant(layout: WeightLayout, tiles: int, columns: int, sm_count: int) -> Variant:
    """For one to eight rows of x; `tiles` is the sum over all parts."""
    if isinstance(layout, CodeLayout):
        return codes.variant(layout, tiles, columns, sm_count)
    return plain.linear_variant(*_plain(layout), tiles, sm_count)


def experts_variant(layout: WeightLayout, tiles: int, columns: int, sm_count: int) -> Variant:
    """For rows of x that each have their own matrix; `tiles` is the sum over all rows of a small batch."""
    if isinstance(layout, CodeLayout):
        return codes.variant(layout, tiles, columns, sm_count, experts=True)
    return Variant(plain.experts_kernel(*_plain(layout), 1), 1)


def unpack_kernel(layout: WeightLayout) -> Kernel | None:
    """The kernel that unpacks to fp16 rows; None for plain numbers, which torch multiplies with directly."""
    if isinstance(layout, CodeLayout):
        return unpack_codes.unpack_kernel(layout)
    return unpack_plain.unpack_kernel(layout.unit) if isinstance(layout, Fp8) else None


def embed_kernel(layout: WeightLayout) -> Kernel:
    """The kernel that looks up rows by token id, in float32."""
    if isinstance(layout, CodeLayout):
        return unpack_codes.embed_kernel(layout)
    return unpack_plain.embed_kernel(*_plain(layout))


def _plain(layout: WeightLayout) -> tuple[str, int]:
    """The kind of number, and the columns of one scale (0: no scales)."""
    if isinstance(layout, Fp8):
        return "fp8", layout.unit
    assert isinstance(layout, Plain)
    return layout.name, 0


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists: all for plain numbers, and those that `codes` lists."""
    for layout in PLAIN_WEIGHT_LAYOUTS:
        kind, unit = _plain(layout)
        for tiles in (1,) if kind == "fp32" else (1, 2):
            yield plain.linear_kernel(kind, unit, tiles)
        yield plain.experts_kernel(kind, unit, 1)
        yield unpack_plain.embed_kernel(kind, unit)
        if unit:
            yield unpack_plain.unpack_kernel(unit)
    yield from codes.variants()
