"""LLVM building blocks for the CPU kernels: 16-lane vectors, loads and stores.

Inner loops are emitted as LLVM IR over <16 x float>, which LLVM turns into one AVX-512 register, two AVX2 or
four NEON ones. No CPU feature is assumed. Accumulators are `alloca`s that LLVM promotes to registers. All
addresses are int64.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import config
from numba.core import cgutils, types
from numba.extending import intrinsic

from engine.platform import levels
from engine.platform.amx import tiles_allowed

LANES = 16
F32 = ir.FloatType()
F64 = ir.DoubleType()
I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16 = ir.HalfType()
VF32 = ir.VectorType(F32, LANES)
VI32 = ir.VectorType(I32, LANES)


def _features() -> frozenset[str]:
    """Features of the target: the host's, or NUMBA_CPU_FEATURES if that or NUMBA_CPU_NAME is set, or those of
    the level that this program brings code for.
    """
    levels.chosen()
    if config.CPU_NAME or config.CPU_FEATURES:
        found = {f[1:] for f in (config.CPU_FEATURES or "").split(",") if f.startswith("+")}
    else:
        found = {name for name, there in levels.host_features().items() if there}
    if "amx-tile" in found:
        tiles_allowed()  # asked for also where Numba's settings name it, whatever the answer
    return frozenset(found)


FEATURES = _features()
ARM64 = platform.machine().lower() in ("arm64", "aarch64")
X86 = platform.machine().lower() in ("x86_64", "amd64")
WIDE = "avx512f" in FEATURES
"""Whether there are 32 registers of 16 lanes, so that larger register tiles are faster."""
AMD = "sse4a" in FEATURES
"""Whether the processor is AMD's: no other has SSE4a."""
HALF_IN_HARDWARE = ARM64 or "f16c" in FEATURES


def intrinsic_function(name: str, result: Any, arguments: tuple[Any, ...], emit: Callable[..., Any]) -> Any:
    """A Numba intrinsic `name` with these Numba types; `emit(builder, *values)` emits its code."""
    signature = result(*arguments)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, values: tuple[ir.Value, ...]) -> Any:
        value = emit(builder, *values)
        return context.get_dummy_value() if result is types.void else value

    typed = _of_parameters(len(arguments))(signature, codegen)
    typed.__name__ = name
    return intrinsic(typed)


@functools.cache  # of 120 intrinsics nearly all have one to four
def _of_parameters(count: int) -> Callable[[Any, Any], Any]:
    """Makes functions of this many parameters that return a signature and a code generator: Numba reads their
    number from the function's signature, so they are written out.
    """
    names, scope = "".join(f", a{i}" for i in range(count)), dict[str, Any]()
    exec(f"def made(signature, codegen):\n return lambda context{names}: (signature, codegen)", scope)
    made: Callable[[Any, Any], Any] = scope["made"]
    return made


# --- emitters, on LLVM values -------------------------------------------------------------------------------


def const_f32(value: float) -> ir.Constant:
    """A float constant."""
    return ir.Constant(F32, value)


def const_vector(value: float | int, kind: ir.VectorType = VF32) -> ir.Constant:
    """All lanes the same constant."""
    return ir.Constant(kind, [ir.Constant(kind.element, value)] * LANES)


def load(b: ir.IRBuilder, address: ir.Value, kind: ir.Type, offset: int = 0, align: int = 1) -> ir.Value:
    """Load a value of type `kind` from address + offset bytes."""
    if offset:
        address = b.add(address, ir.Constant(I64, offset))
    return b.load(b.inttoptr(address, kind.as_pointer()), align=align)


def store(b: ir.IRBuilder, value: ir.Value, address: ir.Value, offset: int = 0) -> None:
    """Store a value at address + offset bytes; no alignment is assumed."""
    if offset:
        address = b.add(address, ir.Constant(I64, offset))
    b.store(value, b.inttoptr(address, value.type.as_pointer()), align=1)


def lane(b: ir.IRBuilder, vector: ir.Value, i: int) -> ir.Value:
    """Lane number i of a vector."""
    return b.extract_element(vector, ir.Constant(I32, i))


def stack_room(b: ir.IRBuilder, size: int) -> ir.Value:
    """The address of `size` bytes on the stack, a multiple of 64; `size` is one, too.

    As vectors, since Numba clears the first element of what it allocates: of one array that would be all.
    """
    line = ir.VectorType(I8, 64)
    place = cgutils.alloca_once(b, line, size=ir.Constant(I64, size // 64))
    place.align = 64
    return b.ptrtoint(place, I64)


def splat(b: ir.IRBuilder, scalar: ir.Value, lanes: int = LANES) -> ir.Value:
    """A vector with `scalar` in all lanes."""
    kind = ir.VectorType(scalar.type, lanes)
    one = b.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(I32, 0))
    return b.shuffle_vector(
        one,
        ir.Constant(kind, ir.Undefined),
        ir.Constant(ir.VectorType(I32, lanes), [ir.Constant(I32, 0)] * lanes),
    )


def _call(b: ir.IRBuilder, name: str, kind: ir.Type, arguments: list[ir.Value]) -> ir.Value:
    suffix = f".v{LANES}f32" if kind is VF32 else ".f32"
    function = cgutils.get_or_insert_function(
        b.module, ir.FunctionType(kind, [a.type for a in arguments]), name + suffix
    )
    return b.call(function, arguments)


def fma(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    """x * y + z, fused if the CPU can."""
    return _call(b, "llvm.fmuladd", x.type, [x, y, z])


def permute(b: ir.IRBuilder, table: ir.Value, index: ir.Value) -> ir.Value:
    """table[index % 16] in each lane; for `WIDE` CPUs only."""
    kind = ir.FunctionType(VF32, [VF32, VI32])
    return b.call(
        cgutils.get_or_insert_function(b.module, kind, "llvm.x86.avx512.permvar.sf.512"), [table, index]
    )


def rint(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Each lane rounded to the nearest integer, ties to even."""
    return _call(b, "llvm.rint", x.type, [x])


def floor(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Each lane rounded down to an integer."""
    return _call(b, "llvm.floor", x.type, [x])


def square_root(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """The square root of a vector."""
    return _call(b, "llvm.sqrt", x.type, [x])


def load_half(b: ir.IRBuilder, address: ir.Value, offset: int = 0) -> ir.Value:
    """Load 16 fp16 values as float32."""
    return fp16_values(b, load(b, address, ir.VectorType(I16, LANES), offset))


def fp16_values(b: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """16 fp16 bit patterns as float32."""
    if HALF_IN_HARDWARE:
        return b.fpext(b.bitcast(bits, ir.VectorType(F16, LANES)), VF32)
    bits = b.zext(bits, VI32)
    sign = b.shl(b.and_(bits, const_vector(0x8000, VI32)), const_vector(16, VI32))
    magnitude = b.bitcast(b.shl(b.and_(bits, const_vector(0x7FFF, VI32)), const_vector(13, VI32)), VF32)
    # A product corrects the exponent's bias and also normalises subnormals without a branch.
    scaled = b.bitcast(b.fmul(magnitude, const_vector(2.0**112)), VI32)
    return b.bitcast(b.or_(scaled, sign), VF32)


def load_e4m3(b: ir.IRBuilder, address: ir.Value, offset: int = 0) -> ir.Value:
    """Load 16 fp8 values as float32: e4m3 (exponent bias 7) without NaN."""
    byte = load(b, address, ir.VectorType(I8, LANES), offset)
    # Shifted into fp16, only the exponent's bias is wrong; a product corrects it, for subnormals too.
    wide = ir.VectorType(I16, LANES)
    placed = b.and_(b.shl(b.sext(byte, wide), const_vector(7, wide)), const_vector(0xBFFF, wide))
    return b.fmul(fp16_values(b, placed), const_vector(2.0**8))


def load_bfloat(b: ir.IRBuilder, address: ir.Value, offset: int = 0) -> ir.Value:
    """Load 16 bf16 values as float32."""
    bits = b.zext(load(b, address, ir.VectorType(I16, LANES), offset), VI32)
    return b.bitcast(b.shl(bits, const_vector(16, VI32)), VF32)


def prefetch(b: ir.IRBuilder, address: ir.Value, offset: int, level: int = 1) -> None:
    """Prefetch the cache line at address + offset into the cache of this level; any address is harmless."""
    pointer = b.inttoptr(b.add(address, ir.Constant(I64, offset)), I8.as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
    function = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
    b.call(function, [pointer, ir.Constant(I32, 0), ir.Constant(I32, 4 - level), ir.Constant(I32, 1)])


class Accumulators:
    """Vectors that live through a loop: allocas that LLVM promotes to registers."""

    def __init__(self, b: ir.IRBuilder, count: int) -> None:
        self.b = b
        self.slots = [cgutils.alloca_once(b, VF32) for _ in range(count)]

    def clear(self) -> None:
        """Set all to zero."""
        for slot in self.slots:
            self.b.store(const_vector(0.0), slot)

    def get(self, i: int) -> ir.Value:
        """The current value."""
        return self.b.load(self.slots[i])

    def set(self, i: int, value: ir.Value) -> None:
        """Replace the value."""
        self.b.store(value, self.slots[i])

    def add_product(self, i: int, x: ir.Value, y: ir.Value) -> None:
        """Slot i += x * y."""
        self.set(i, fma(self.b, x, y, self.get(i)))


@contextmanager
def counted_loop(b: ir.IRBuilder, count: ir.Value) -> Iterator[ir.Value]:
    """Emit `for i in range(count)`; yields the int64 index."""
    with cgutils.for_range(b, count, intp=I64) as loop:
        yield loop.index


def exp_vector(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """exp(x) for x <= 0 (and small positive x) with a relative error below 2e-7; 0 below -87.

    Cody and Waite's range reduction by ln 2 in two parts, then the polynomial of Cephes' expf.
    """
    zero = b.fcmp_ordered("<", x, const_vector(-87.0))
    clamped = b.select(zero, const_vector(-87.0), x)
    n = rint(b, b.fmul(clamped, const_vector(1.4426950408889634)))
    r = fma(b, n, const_vector(-0.693359375), clamped)
    r = fma(b, n, const_vector(2.12194440e-4), r)
    p = const_vector(1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = fma(b, p, r, const_vector(c))
    p = b.fadd(fma(b, b.fmul(r, r), p, r), const_vector(1.0))
    scale = b.shl(b.add(b.fptosi(n, VI32), const_vector(127, VI32)), const_vector(23, VI32))
    return b.select(zero, const_vector(0.0), b.fmul(p, b.bitcast(scale, VF32)))


_TANH_ODD = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-8,
    1.48572235717979e-5, 6.37261928875436e-4, 4.89352455891786e-3,
)  # fmt: skip
_TANH_EVEN = (1.19825839466702e-6, 1.18534705686654e-4, 2.26843463243900e-3, 4.89352518554385e-3)


def tanh_vector(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """tanh(x) with a relative error below 5e-7: the quotient of polynomials of Eigen's tanh for float.

    Beyond 7.9 in magnitude it is constant.
    """
    top, bottom = const_vector(7.90531110763549805), const_vector(-7.90531110763549805)
    x = b.select(b.fcmp_ordered(">", x, top), top, b.select(b.fcmp_ordered("<", x, bottom), bottom, x))
    square = b.fmul(x, x)
    odd, even = const_vector(_TANH_ODD[0]), const_vector(_TANH_EVEN[0])
    for c in _TANH_ODD[1:]:
        odd = fma(b, odd, square, const_vector(c))
    for c in _TANH_EVEN[1:]:
        even = fma(b, even, square, const_vector(c))
    return b.fdiv(b.fmul(x, odd), even)


Combine = Callable[[ir.Value, ir.Value], ir.Value]


def reduce(b: ir.IRBuilder, value: ir.Value, combine: Combine) -> ir.Value:
    """Reduce the 16 lanes to a scalar by halving; `combine` takes vectors of 8, 4, 2 and 1 lanes."""
    return lane(b, reduce_each(b, [value], combine), 0)


def reduce_each(b: ir.IRBuilder, values: Sequence[ir.Value], combine: Combine) -> ir.Value:
    """Reduce the 16 lanes of each of 1, 2, 4 or 8 vectors: a vector with a lane for each, in their order.

    Two vectors are combined to one while there are two, which takes as many shuffles as one alone. Then the
    parts are narrower vectors: LLVM 22 takes wrong lanes if only half of a full vector is used.
    """
    values, width = list(values), LANES // 2
    while width:
        pairs, lanes = list(zip(values[::2], values[1::2], strict=False)), 2 * LANES
        if not pairs:
            pairs, lanes = [(values[0], ir.Constant(values[0].type, ir.Undefined))], values[0].type.count
        low = [first + i for first in range(0, lanes, 2 * width) for i in range(width)]
        masks = [
            ir.Constant(ir.VectorType(I32, len(low)), [ir.Constant(I32, start + i) for i in low])
            for start in (0, width)
        ]
        values = [combine(*(b.shuffle_vector(*pair, mask) for mask in masks)) for pair in pairs]
        width //= 2
    return values[0]


def half_bits(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """fp16 bits of a float32 or a vector of 16, rounded to nearest even; too large values become infinite."""
    lanes = isinstance(value.type, ir.VectorType)
    whole, narrow, half = (ir.VectorType(k, LANES) if lanes else k for k in (I32, I16, F16))
    if HALF_IN_HARDWARE:
        return b.bitcast(b.fptrunc(value, half), narrow)

    def number(n: int) -> ir.Constant:
        return const_vector(n, whole) if lanes else ir.Constant(I32, n)

    # In integers: correct the exponent's bias, add half an ulp and truncate.
    bits = b.bitcast(value, whole)
    sign = b.lshr(b.and_(bits, number(0x80000000)), number(16))
    magnitude = b.and_(bits, number(0x7FFFFFFF))
    odd = b.and_(b.lshr(magnitude, number(13)), number(1))
    rounded = b.add(b.add(magnitude, number(0xFFF)), odd)
    normal = b.sub(b.lshr(rounded, number(13)), number(112 << 10))
    # Below 2^-14 the fp16 step is 2^-24: adding 0.5 (step 2^-24 in float32) rounds to it.
    lifted = b.fadd(b.bitcast(magnitude, value.type), const_vector(0.5) if lanes else const_f32(0.5))
    subnormal = b.sub(b.bitcast(lifted, whole), number(0x3F000000))
    small = b.icmp_unsigned("<", magnitude, number(0x38800000))
    big = b.icmp_unsigned(">=", magnitude, number(0x477FF000))
    return b.trunc(b.or_(b.select(small, subnormal, b.select(big, number(0x7C00), normal)), sign), narrow)


class OutputTile:
    """`rows` x `vectors` sums of 16 lanes in registers: out[t, 16 m + lane]."""

    def __init__(self, b: ir.IRBuilder, vectors: int, rows: list[ir.Value], fresh: bool = False) -> None:
        """`rows` are the addresses of the rows of out; sums start at 0 if `fresh`, else at what is there."""
        self._b, self._vectors, self._rows = b, vectors, rows
        self.sums = Accumulators(b, vectors * len(rows))
        if fresh:
            self.sums.clear()
            return
        for t, row in enumerate(self._rows):
            for m in range(vectors):
                self.sums.set(self.slot(t, m), load(b, row, VF32, 64 * m))

    def slot(self, t: int, m: int) -> int:
        """Index in `sums` of row t, vector m."""
        return t * self._vectors + m

    def write(self) -> None:
        """Store all sums."""
        for t, row in enumerate(self._rows):
            for m in range(self._vectors):
                store(self._b, self.sums.get(self.slot(t, m)), row, 64 * m)


def row_addresses(
    b: ir.IRBuilder, first: ir.Value, stride: ir.Value, rows: int, here: ir.Value | None = None
) -> list[ir.Value]:
    """Addresses of `rows` rows, `stride` bytes apart; rows from `here` on, which is positive, repeat the one
    before it.

    So code for `rows` rows also serves fewer: a row that is computed twice is written twice with one value,
    as long as all rows are read before the first is written.
    """
    index: list[ir.Value] = [ir.Constant(I64, t) for t in range(rows)]
    if here is not None:
        last = b.sub(here, ir.Constant(I64, 1))
        index = [b.select(b.icmp_signed("<", t, here), t, last) for t in index]
    return [b.add(first, b.mul(stride, t)) for t in index]
