"""Dot products of bytes: four weights of each lane times four activations, added to int32.

`KIND` names the CPU's instruction: "vnni" (AVX-512 VNNI, or AVX-VNNI on half vectors), "avx2" (pmaddubsw),
"sse2" (pmaddwd), "neon" (sdot), or "plain". 16-bit activations are written as `BASE` high + low, two signed
bytes, so that two byte products make a 16-bit one. Weights are unsigned codes below 64, or signed bytes plus
`BIAS` (`signed`).
"""

from __future__ import annotations

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
BIAS = 128 if KIND == "vnni" else 0
"""Added to signed weights to make them bytes from 0 to 255, since VNNI's first operand is unsigned."""
BASE = 255 if KIND == "avx2" else 256
"""With 255 the low byte is never -128, whose sign the AVX2 code for signed weights could not change."""
LIMIT = 127 * BASE + 127
"""The largest 16-bit activation."""
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


def _call(b: ir.IRBuilder, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
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


def _vnni(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value, signed: bool) -> ir.Value:
    return _call(b, f"llvm.x86.avx512.vpdpbusd.{8 * weights.type.count}", total.type, total, weights, x)


def _avx2(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value, signed: bool) -> ir.Value:
    """Sums of two products fit int16: codes are below 64. For signed weights x takes their sign, and the
    unsigned operand is their magnitude.
    """
    if signed:
        x = _call(b, "llvm.x86.avx2.psign.b", x.type, x, weights)
        weights = _call(b, "llvm.x86.avx2.psign.b", x.type, weights, weights)
    pairs = ir.VectorType(I16, 16)
    two = _call(b, "llvm.x86.avx2.pmadd.ub.sw", pairs, weights, x)
    return b.add(
        total,
        _call(b, "llvm.x86.avx2.pmadd.wd", total.type, two, ir.Constant(pairs, [ir.Constant(I16, 1)] * 16)),
    )


def _neon(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value, signed: bool) -> ir.Value:
    return _call(b, "llvm.aarch64.neon.sdot.v4i32.v16i8", total.type, total, weights, x)


def _sse2(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value, signed: bool) -> ir.Value:
    """Multiply bytes 0 and 2 of each lane, then 1 and 3, as pairs of int16."""
    pairs = ir.VectorType(I16, weights.type.count // 2)
    eight = ir.Constant(pairs, [ir.Constant(I16, 8)] * pairs.count)
    w, v = b.bitcast(weights, pairs), b.bitcast(x, pairs)
    extend = b.ashr if signed else b.lshr
    for odd in (False, True):
        bytes_ = [a if odd else b.shl(a, eight) for a in (w, v)]
        products = _call(
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
