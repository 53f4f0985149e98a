"""Dot products of bytes: four weights of each lane times four activations, added to int32.

`KIND` names the CPU's instruction: "vnni" (AVX-512 VNNI, or AVX-VNNI on half vectors), "avx2" (pmaddubsw),
"sse2" (pmaddwd), "neon" (sdot), or "plain". 16-bit activations are written as `BASE` high + low, two signed
bytes, so that two byte products make a 16-bit one. Weights are unsigned codes below 64, or signed bytes plus
`BIAS` (`signed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llvmlite import ir
from numba.core import cgutils

from engine.backends.cpu.codegen.simd import (
    ARM64,
    FEATURES,
    I8,
    I16,
    I32,
    LANES,
    VI32,
    WIDE,
    X86,
    load,
    splat,
)

V64I8 = ir.VectorType(I8, 4 * LANES)


def _kind() -> str:
    if (WIDE and {"avx512vnni", "avx512bw"} <= FEATURES) or {"avxvnni", "avx2"} <= FEATURES:
        return "vnni"
    if "avx2" in FEATURES:
        return "avx2"
    if X86:
        return "sse2"
    return "neon" if ARM64 and "dotprod" in FEATURES else "plain"


KIND = _kind()
AMX = WIDE and KIND == "vnni" and {"amx-tile", "amx-int8", "amx-bf16"} <= FEATURES
"""Whether large batches are multiplied by Intel's Advanced Matrix Extensions (`kernels.linear.amx`)."""
BIAS = 128 if KIND == "vnni" else 0
"""Added to signed weights to make them bytes from 0 to 255, since VNNI's first operand is unsigned."""
BASE = 255 if KIND == "avx2" else 256
"""With 255 the low byte is never -128, whose sign the AVX2 code for signed weights could not change."""
LIMIT = 127 * BASE + 127
"""The largest 16-bit activation; a weight of 128 can be added to it (`panel_format`)."""
_CHUNKS = {"vnni": (4 * LANES if WIDE else 32), "avx2": 32, "sse2": 16, "neon": 16, "plain": 4 * LANES}
"""Bytes of one operand of the instruction."""


def part_of(b: ir.IRBuilder, vector: ir.Value, start: int, count: int) -> ir.Value:
    """Lanes start .. start + count - 1."""
    if vector.type.count == count:
        return vector
    mask = ir.Constant(ir.VectorType(I32, count), [ir.Constant(I32, start + i) for i in range(count)])
    return b.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def join(b: ir.IRBuilder, parts: list[ir.Value]) -> ir.Value:
    """Concatenate vectors; their number is a power of two."""
    while len(parts) > 1:
        size = parts[0].type.count
        mask = ir.Constant(ir.VectorType(I32, 2 * size), [ir.Constant(I32, i) for i in range(2 * size)])
        parts = [b.shuffle_vector(parts[i], parts[i + 1], mask) for i in range(0, len(parts), 2)]
    return parts[0]


def in_step(b: ir.IRBuilder, sums: ir.Value) -> ir.Value:
    """The same int32 (16) or int16 (32), neither half of which LLVM computes before the other, where a half
    is a register.

    Left to itself it sums the first parts of all products before the second parts, with every activation
    kept in memory between. No instruction stands for this: it is an assembler text of no lines that takes and
    gives both registers.
    """
    if WIDE or KIND not in ("vnni", "avx2"):
        return sums
    half = sums.type.count // 2
    parts = [part_of(b, sums, start, half) for start in (0, half)]
    kind = parts[0].type
    result = ir.LiteralStructType([kind, kind])
    nothing = ir.InlineAsm(ir.FunctionType(result, [kind, kind]), "", "=x,=x,0,1", side_effect=True)
    both = b.call(nothing, parts)
    return join(b, [b.extract_value(both, i) for i in range(2)])


def call_function(b: ir.IRBuilder, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
    """The result of LLVM's function `name`."""
    kind = ir.FunctionType(result, [a.type for a in arguments])
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), list(arguments))


def byte_products(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value, signed: bool) -> ir.Value:
    """total[lane] + sum over i < 4 of weights[lane, i] * x[lane, i]: int32 (16), bytes (64), int8 (64)."""
    size = _CHUNKS[KIND]
    parts = []
    for start in range(0, 4 * LANES, size):
        t, w, v = (
            part_of(b, total, start // 4, size // 4),
            part_of(b, weights, start, size),
            part_of(b, x, start, size),
        )
        parts.append(_EMIT[KIND](b, t, w, v, signed))
    return join(b, parts)


def products_in_int16(largest: int) -> int:
    """How many products of quads of weights from 0 to `largest` may be added before they become int32: 1 for
    signed weights (0), and where an instruction adds to int32 itself. A quad's two sums are at most
    2 x 127 x `largest`, as `BASE` is 255.
    """
    return max(1, 32767 // (2 * 127 * largest)) if KIND == "avx2" and largest else 1


def byte_sums(
    b: ir.IRBuilder,
    totals: Sequence[ir.Value],
    quads: Iterable[tuple[ir.Value, Sequence[ir.Value]]],
    signed: bool,
    several: bool,
) -> list[ir.Value]:
    """`byte_products` added to each of `totals`, of one quad or `several`, at most `products_in_int16`: the
    weights of each, and the activations of each total.
    """
    if not several:
        ((w, xs),) = quads
        return [byte_products(b, total, w, x, signed) for total, x in zip(totals, xs, strict=True)]
    sums: list[ir.Value | None] = [None] * len(totals)
    for w, xs in quads:
        for i, x in enumerate(xs):
            two = join(b, [_byte_pairs(b, *(part_of(b, a, at, 32) for a in (w, x))) for at in (0, 32)])
            before = sums[i]
            sums[i] = two if before is None else in_step(b, b.add(before, two))
    return [
        join(b, [_widened(b, part_of(b, total, at, 8), part_of(b, two, 2 * at, 16)) for at in (0, 8)])
        for total, two in zip(totals, sums, strict=True)
    ]


def _vnni(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value, signed: bool) -> ir.Value:
    return call_function(
        b, f"llvm.x86.avx512.vpdpbusd.{8 * weights.type.count}", total.type, total, weights, x
    )


def _avx2(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value, signed: bool) -> ir.Value:
    """Sums of two products fit int16: codes are below 64. For signed weights x takes their sign, and the
    unsigned operand is their magnitude.
    """
    if signed:
        x = call_function(b, "llvm.x86.avx2.psign.b", x.type, x, weights)
        weights = call_function(b, "llvm.x86.avx2.psign.b", x.type, weights, weights)
    return _widened(b, total, _byte_pairs(b, weights, x))


def _byte_pairs(b: ir.IRBuilder, weights: ir.Value, x: ir.Value) -> ir.Value:
    """int16 (16): the sums of two products of unsigned and signed bytes (32)."""
    return call_function(b, "llvm.x86.avx2.pmadd.ub.sw", ir.VectorType(I16, 16), weights, x)


def _widened(b: ir.IRBuilder, total: ir.Value, two: ir.Value) -> ir.Value:
    """total + both int16 of each lane: int32 (8), int16 (16)."""
    ones = ir.Constant(two.type, [ir.Constant(I16, 1)] * 16)
    return b.add(total, call_function(b, "llvm.x86.avx2.pmadd.wd", total.type, two, ones))


def _neon(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value, signed: bool) -> ir.Value:
    return call_function(b, "llvm.aarch64.neon.sdot.v4i32.v16i8", total.type, total, weights, x)


def _sse2(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value, signed: bool) -> ir.Value:
    """Multiply bytes 0 and 2 of each lane, then 1 and 3, as pairs of int16."""
    pairs = ir.VectorType(I16, weights.type.count // 2)
    eight = ir.Constant(pairs, [ir.Constant(I16, 8)] * pairs.count)
    w, v = b.bitcast(weights, pairs), b.bitcast(x, pairs)
    extend = b.ashr if signed else b.lshr
    for odd in (False, True):
        bytes_ = [a if odd else b.shl(a, eight) for a in (w, v)]
        products = call_function(
            b, "llvm.x86.sse2.pmadd.wd", total.type, extend(bytes_[0], eight), b.ashr(bytes_[1], eight)
        )
        total = b.add(total, products)
    return total


def _plain(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value, signed: bool) -> ir.Value:
    top = ir.Constant(total.type, [ir.Constant(I32, 24)] * total.type.count)
    w, v = b.bitcast(weights, total.type), b.bitcast(x, total.type)
    for i in range(4):
        place = ir.Constant(total.type, [ir.Constant(I32, 24 - 8 * i)] * total.type.count)
        weight, number = b.shl(w, place), b.shl(v, place)
        total = b.add(total, b.mul((b.ashr if signed else b.lshr)(weight, top), b.ashr(number, top)))
    return total


_EMIT = {"vnni": _vnni, "avx2": _avx2, "sse2": _sse2, "neon": _neon, "plain": _plain}


def spread_word(b: ir.IRBuilder, address: ir.Value, offset: int = 0) -> ir.Value:
    """The four bytes at address + offset in every lane."""
    return b.bitcast(splat(b, load(b, address, I32, offset)), V64I8)


def biased(b: ir.IRBuilder, signed: ir.Value) -> ir.Value:
    """Signed bytes plus `BIAS`."""
    return b.xor(signed, ir.Constant(V64I8, [ir.Constant(I8, -128)] * (4 * LANES))) if BIAS else signed


def joined(b: ir.IRBuilder, high: ir.Value, low: ir.Value) -> ir.Value:
    """BASE high + low, int32 (16)."""
    raised = b.shl(high, ir.Constant(VI32, [ir.Constant(I32, 8)] * LANES))
    return b.add(raised if BASE == 256 else b.sub(raised, high), low)
