"""How weights and activations are packed for products of integers in large batches.

Products of pairs of int16 (vpdpwssd, vpmaddwd) take 16-bit activations, as decoding does; they need VNNI or
AVX2, without which float32 is as fast. Products of bytes take 8-bit activations, if the settings ask for it:
twice as many for each instruction.

Where additions have units of their own (`FAST_INNER_PRODUCT`), half of the products of pairs become additions
by S. Winograd's identity ("A new algorithm for inner product", IEEE Trans. Computers C-17, 1968):

    x0 w0 + x1 w1 = (x0 + w1) (x1 + w0) - x0 x1 - w0 w1

The last two products are summed once for each part of a row and of a panel. Two quads of eight are multiplied
as they are (`PLAIN_QUADS`), since all units would be adding while some that multiply wait. All of it is
integers: what
overflows int32 on the way comes back modulo 2^32, so the sums are the same to the last bit. A sum x + w fits
in int16, since activations are at most `LIMIT` and the weights of such panels within 128 of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from llvmlite import ir

from engine.backends.cpu.codegen.simd import (
    AMD,
    I16,
    I32,
    LANES,
    VI32,
    WIDE,
    const_vector,
    fma,
    load,
    splat,
    store,
)
from engine.backends.cpu.codegen.simd_bytes import (
    AMX,
    KIND,
    LIMIT,
    V64I8,
    byte_products,
    call_function,
    in_step,
    join,
    part_of,
    products_in_int16,
)
from engine.backends.cpu.kernels.packed_activations import FEATURES
from engine.lazy_dataclass import dataclass

PAIRS = KIND == "vnni" or (KIND == "avx2" and not WIDE)
"""Whether products of int16 pairs take less time than those of float32. With VNNI they are half as many
instructions; with AVX2 as many, but half of them are additions, which more ports take.
"""
FAST_INNER_PRODUCT = WIDE and KIND == "vnni" and AMD
"""Whether half of the products of pairs are replaced by additions. AMD's processors multiply in two of four
units that add; Intel's add in no more units than they multiply in.
"""
PLAIN_QUADS = (2, 5)
"""Quads of a block of 32 features whose `fast` products take no additions in place of products: one of each
half. Of all choices of one to three quads that were timed on Zen 4 these were among the fastest for 4- and
6-bit types: 3 to 5 % less time than with none.
"""
UNBOUNDED = 1 << 15
"""Of weights that may be any int16."""
V32I16 = ir.VectorType(I16, 2 * LANES)


@dataclass(frozen=True)
class PanelFormat:
    """How a packed panel holds a layout's weights: blocks of 32 features x 16 columns.

    bits 16   16 vectors of int16 pairs: of each quad of features the pairs are (0, 2) and (1, 3), which a
              mask and a shift extract from bytes.
    bits 8    8 vectors of quads of bytes, weights plus `zero`, from 0 to `largest`, or signed if that is 0.
    amx       16 vectors of the same pairs in bfloat16 ("bf16"), or 8 vectors of quads of bytes ("int8"): for
              16 bits signed ones.
    Then, for each part of `part` features, 16 float32 scales and, if `mins`, 16 float32 minimums, which are
    multiplied by the sum of the activations. With `zero` there are always minimums, which subtract it. If
    `fast`, 16 int32 follow: minus the sums of w0 w1 + w2 w3 over the part's quads but `PLAIN_QUADS`, modulo
    2^32. `magnitude`: that of the largest weight, or `UNBOUNDED`.

    A block of 32 packed activations: 32 integers of `bits` bits in the order of the weights, then float32:
    the scale, and the scale times the sums of the first 16 integers, of the last 16 and of all. Where
    products may be `fast`, three int32 follow: minus x0 x1 + x2 x3 over the same quads of the first 16, of
    the last 16 and of all.

    With `amx` 16 rows are packed together. For each 32 features there are the 16 rows' integers: of 16 bits
    the high bytes of all rows (in bfloat16: 256 times these), then the low bytes. Then come 16 float32 each
    of scales and of the three sums.
    """

    bits: int
    part: int
    mins: bool
    zero: int = 0
    largest: int = 0
    magnitude: int = 128

    @property
    def name(self) -> str:
        """The part of a compiled function's name that stands for this format."""
        kind = ("sums" if self.fast else "pairs") if self.bits == 16 else f"bytes{self.largest or 's'}"
        if self.amx:
            kind = f"amx{self.bits}{self.amx}"
        return f"{kind}_{self.part}{'_min' if self.mins else ''}"

    @property
    def amx(self) -> Literal["bf16", "int8", ""]:
        """What AMX multiplies, if it does: bfloat16 where float32 holds all sums of products exactly, else
        bytes.
        """
        if not AMX or self.magnitude > 128:
            return ""
        return "bf16" if self.bits == 16 and self.magnitude * self.part * LIMIT <= 1 << 24 else "int8"

    @property
    def fast(self) -> bool:
        """Whether half of the products are replaced by additions."""
        return self.magnitude <= 128 and self.negatives

    @property
    def negatives(self) -> bool:
        """Whether packed activations have the negative sums that `fast` products need."""
        return self.bits == 16 and FAST_INNER_PRODUCT

    @property
    def vectors(self) -> int:
        """Vectors of a block's weights."""
        return 8 if self.amx == "int8" else self.bits

    @property
    def numbers(self) -> Numbers:
        if self.amx == "bf16":
            return "floats"
        return "codes" if self.bits == 8 else "bytes" if self.amx else "pairs"

    @property
    def half_bytes(self) -> int:
        """Bytes of a row's high or low halves of 32 activations, or of all, as AMX takes them."""
        return 2 * FEATURES if self.amx == "bf16" else FEATURES

    @property
    def quads_in_int16(self) -> int:
        """How many vectors of bytes have their products added before they become int32."""
        return products_in_int16(self.largest) if self.bits == 8 else 1

    @property
    def code_bytes(self) -> int:
        """Bytes of a block's weights."""
        return 64 * self.vectors

    @property
    def size(self) -> int:
        """Bytes of a block."""
        return self.numbers_at(FEATURES // self.part)

    def numbers_at(self, part: int) -> int:
        """Offset of a part's scales in a block; its minimums and the rest follow."""
        return self.code_bytes + part * LANES * 4 * (1 + self.mins + self.fast)

    @property
    def _negatives_at(self) -> int:
        """How many bytes after a part's scales the negative sums of products of weights lie."""
        return LANES * 4 * (1 + self.mins)

    @property
    def scale_at(self) -> int:
        """Offset of the scale in a block of packed activations; the sums follow."""
        return LANES * self.half_bytes * self.bits // 8 if self.amx else FEATURES * self.bits // 8

    @property
    def activation_bytes(self) -> int:
        """Bytes of a block of packed activations; with `amx` of a row's share of it."""
        if self.amx:
            return self.half_bytes * self.bits // 8 + 16
        return self.scale_at + 16 + 12 * self.negatives

    def put_quad(self, b: ir.IRBuilder, block: ir.Value, q: int, vectors: Sequence[ir.Value]) -> None:
        """Write the weights of quad q: two vectors of pairs, or one of bytes."""
        for i, vector in enumerate(vectors):
            store(b, vector, block, 64 * (q * self.vectors // 8 + i))

    def put_scales(
        self, b: ir.IRBuilder, block: ir.Value, part: int, scale: ir.Value, minimum: ir.Value | None
    ) -> None:
        """Write a part's scales and minimums, float32 (16), and what else follows them."""
        at = self.numbers_at(part)
        store(b, scale, block, at)
        minimum = self.minimum(b, scale, minimum)
        if minimum is not None:
            store(b, minimum, block, at + 4 * LANES)
        if self.fast:
            total: ir.Value = const_vector(0, VI32)
            for k in self.steps(part):
                if k // 2 not in PLAIN_QUADS:
                    pair = (load(b, block, V32I16, 64 * (k + i)) for i in range(2))
                    total = pair_products(b, total, *pair)
            store(b, b.neg(total), block, at + self._negatives_at)

    def steps(self, part: int) -> range:
        """The numbers of a part's vectors of weights, of every second one if two are multiplied at once, or
        of more.
        """
        count = self.part * self.vectors // FEATURES
        return range(part * count, (part + 1) * count, 2 if self.fast else self.quads_in_int16)

    def start(self, b: ir.IRBuilder, block: ir.Value, row: ir.Value, part: int) -> ir.Value:
        """What the sums of products of a part begin with: int32 (16). `row` is the address of a block of
        packed activations.
        """
        if not self.fast:
            return const_vector(0, VI32)
        negative = load(b, block, VI32, self.numbers_at(part) + self._negatives_at)
        return b.add(negative, splat(b, load(b, row, I32, self.sum_at(part) + 12)))

    def minimum(self, b: ir.IRBuilder, scale: ir.Value, minimum: ir.Value | None) -> ir.Value | None:
        """A part's minimums with `zero` subtracted from its weights; None without `mins`."""
        if self.zero:
            added = const_vector(0.0) if minimum is None else minimum
            minimum = fma(b, scale, const_vector(-float(self.zero)), added)
        assert (minimum is not None) == self.mins
        return minimum

    def product(self, b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value) -> ir.Value:
        """total[lane] + the products of the weights and the 4 bytes of activations in the lane."""
        if self.bits == 16:
            return in_step(b, pair_products(b, total, weights, b.bitcast(x, V32I16)))
        return in_step(b, byte_products(b, total, weights, b.bitcast(x, V64I8), not self.largest))

    def sum_at(self, part: int) -> int:
        """Offset of the sum over a part's features in a block of packed activations."""
        apart = 4 * LANES if self.amx else 4
        return self.scale_at + apart * (1 + (2 if self.part == FEATURES else part))


Numbers = Literal["pairs", "floats", "codes", "bytes"]
"""What four weights of each column are: two pairs of int16 or of bfloat16; bytes as `PanelFormat` has them
for 8 bits; or signed bytes.
"""


class UnpackedWeights(Protocol):
    """Where a layout's unpacked weights go: to a packed panel (`PanelFormat`) or into products at once
    (`direct.DirectProducts`).

    A layout emits, for each block of 32 features, the quads of a part and then the part's scales. `block` is
    the address that it was given plus `size` for each block before.
    """

    @property
    def numbers(self) -> Numbers:
        """What a quad is given as."""
        ...

    @property
    def size(self) -> int:
        """Bytes from a block to the next."""
        ...

    def put_quad(self, b: ir.IRBuilder, block: ir.Value, q: int, vectors: Sequence[ir.Value]) -> None:
        """Take the weights of quad q."""
        ...

    def put_scales(
        self, b: ir.IRBuilder, block: ir.Value, part: int, scale: ir.Value, minimum: ir.Value | None
    ) -> None:
        """Take a part's scales and minimums, float32 (16)."""
        ...


INT16_ACTIVATIONS, INT8_ACTIVATIONS = (
    PanelFormat(bits, FEATURES, False, magnitude=UNBOUNDED) for bits in (16, 8)
)
"""The formats whose packed activations all panels of 16 and of 8 bits read, unless AMX multiplies."""


def code_pairs(b: ir.IRBuilder, quad: ir.Value, minus: ir.Value | None) -> tuple[ir.Value, ir.Value]:
    """The pairs of a quad of unsigned bytes, minus `minus` (32 int16)."""
    mask = const_vector(0x00FF00FF, VI32)
    both = [b.and_(quad, mask), b.and_(b.lshr(quad, const_vector(8, VI32)), mask)]
    first, second = (b.bitcast(v, V32I16) for v in both)
    return (first, second) if minus is None else (b.sub(first, minus), b.sub(second, minus))


def signed_pairs(b: ir.IRBuilder, quad: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The pairs of a quad of signed bytes."""
    eight, both = ir.Constant(V32I16, [ir.Constant(I16, 8)] * 32), b.bitcast(quad, V32I16)
    return b.ashr(b.shl(both, eight), eight), b.ashr(both, eight)


def in_both(b: ir.IRBuilder, numbers: ir.Value) -> ir.Value:
    """16 int32 that fit in 16 bits, each as both numbers of its lane's pair."""
    low = b.and_(numbers, const_vector(0xFFFF, VI32))
    return b.bitcast(b.or_(low, b.shl(low, const_vector(16, VI32))), V32I16)


def in_each_byte(b: ir.IRBuilder, numbers: ir.Value) -> ir.Value:
    """16 int32 that fit in 8 bits, each as the four bytes of its lane."""
    low = b.and_(numbers, const_vector(0xFF, VI32))
    return b.bitcast(b.mul(low, const_vector(0x01010101, VI32)), V64I8)


def pair_products(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, x: ir.Value) -> ir.Value:
    """total[lane] + both products of the lane's pairs: int32 (16), int16 (32), int16 (32)."""
    size = LANES if WIDE else 8
    parts = []
    for start in range(0, LANES, size):
        w, v = (part_of(b, a, 2 * start, 2 * size) for a in (weights, x))
        before = part_of(b, total, start, size)
        if KIND == "vnni":
            parts.append(call_function(b, f"llvm.x86.avx512.vpdpwssd.{32 * size}", before.type, before, w, v))
        else:
            parts.append(b.add(before, call_function(b, "llvm.x86.avx2.pmadd.wd", before.type, w, v)))
    return join(b, parts)


def products_by_sums(
    b: ir.IRBuilder,
    sums: Sequence[ir.Value],
    quads: Sequence[Sequence[ir.Value]],
    rows: Sequence[ir.Value],
    k: int,
) -> list[ir.Value]:
    """For each row, and in it for each of `quads`: its sum plus (x0 + w1) (x1 + w0) + (x2 + w3) (x3 + w2), or
    plus the products themselves for one of `PLAIN_QUADS`.

    A quad's vectors are the pairs (w0, w2) and (w1, w3); those of a row are numbers k and k + 1 at its
    address, one of `rows`.
    """
    out, left = list[ir.Value](), iter(sums)
    for row in rows:
        x = [b.bitcast(splat(b, load(b, row, I32, 4 * (k + i))), V32I16) for i in range(2)]
        for w in quads:
            if k // 2 in PLAIN_QUADS:
                out.append(pair_products(b, pair_products(b, next(left), w[0], x[0]), w[1], x[1]))
            else:
                out.append(pair_products(b, next(left), b.add(x[0], w[1]), b.add(x[1], w[0])))
    return out
