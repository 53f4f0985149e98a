# Long: one table of instructions.
"""The instructions that kernels are written in, each as PTX and as an emulation on Python numbers.

A kernel is a plain function that calls these objects. `engine.backends.cuda.codegen.build` replaces each with
a Numba intrinsic, and the interpreter in the tests replaces each with its `emulate`. So kernels can be read,
listed and interpreted without Numba-CUDA.

A letter stands for a type: "i" int32, "r" uint32 (bits), "l" int64 (global addresses and offsets), "f"
float32. Shared memory has 32-bit addresses of its own. Numba widens some 32-bit arithmetic to int64; write
`int32(...)` or `uint32(...)` there. A float without `float32(...)` would make the arithmetic float64, which
`build` rejects. Source: NVIDIA, PTX ISA 8.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.backends.cuda.codegen.emulation import (
    M32,
    add_int,
    bf16_bits,
    bf16s_of_words,
    bits_of,
    by_table,
    byte_products,
    e4m3_value,
    each_half,
    float_of,
    fragments,
    from_below,
    from_lane,
    from_xor,
    fused,
    fused_halves,
    half_bits,
    halves_of,
    halves_of_words,
    permuted,
    quietly,
    reader,
    transposed,
    votes,
    writer,
)


@dataclass(frozen=True, eq=False)
class Op:
    """One instruction, or a few that belong together.

    `text` is PTX with $0, $1 ... for the results, then the arguments; `since` maps a minimum compute
    capability (80 for 8.0) to a different text. `outs` and `ins` are the letters of results and arguments.
    With `memory` it keeps its place in the code. With `convergent` all lanes of the warp must execute it
    together. `emulate(machine, *arguments)` returns the results.
    """

    name: str
    text: str
    outs: str
    ins: str
    emulate: Callable[..., Any]
    memory: bool = False
    convergent: bool = False
    since: Mapping[int, str] = field(default_factory=dict)
    min_capability: int = 75

    def __call__(self, *arguments: Any) -> Any:
        """Raise `TypeError`: the instruction is replaced before a kernel runs."""
        raise TypeError(f"{self.name} runs on a device only")

    def text_for(self, capability: int) -> str:
        """The PTX for a device of this compute capability."""
        fitting = [min_capability for min_capability in self.since if min_capability <= capability]
        return self.since[max(fitting)] if fitting else self.text


@dataclass(frozen=True)
class SharedMemory:
    """`shared(size)` in a kernel: the 32-bit address of `size` bytes, aligned to 16, the same in a block.

    `size` is a constant. A function may have several calls, each with a different
    size, and each has its own memory.
    """

    size: int = 0

    def __call__(self, size: int) -> Any:
        """Raise `TypeError`: the call is replaced before a kernel runs."""
        raise TypeError("shared memory is on a device only")


class Unrolled:
    """`for i in static(range(N))` in a kernel: a loop that is unrolled before compilation; N is known."""

    def __call__(self, values: range) -> range:
        """In plain Python an ordinary range."""
        return values


class Registers:
    """`sums = registers(value, N)` in a kernel: N variables of one thread, read and written as `sums[i]`.

    The index must be known before compilation, as in a `static` loop. They are not an array: a function that
    takes them whole is inlined where it is called (`written`).
    """

    def __call__(self, value: Any, size: int) -> list[Any]:
        """In plain Python a list."""
        return [value] * size


shared, static, registers = SharedMemory(), Unrolled(), Registers()


# --- numbers and bits ---------------------------------------------------------------------------------------


float_bits = Op("float_bits", "mov.b32 $0, $1;", "r", "f", lambda _, x: bits_of(x))
bits_float = Op("bits_float", "mov.b32 $0, $1;", "f", "r", lambda _, x: float_of(x))
half_float = Op(
    "half_float",
    "{.reg .b16 h, z; mov.b32 {h, z}, $1; cvt.f32.f16 $0, h;}",
    "f",
    "r",
    lambda _, w: np.float32(halves_of(w)[0]),
)
"""float32 of the fp16 number in the low 16 bits."""
high_half_float = Op(
    "high_half_float",
    "{.reg .b16 h, z; mov.b32 {z, h}, $1; cvt.f32.f16 $0, h;}",
    "f",
    "r",
    lambda _, w: np.float32(halves_of(w)[1]),
)
"""float32 of the fp16 number in the high 16 bits."""
pack_fp16 = Op(
    "pack_fp16",
    "{.reg .b16 l, h; cvt.rn.f16.f32 l, $1; cvt.rn.f16.f32 h, $2; mov.b32 $0, {l, h};}",
    "r",
    "ff",
    lambda _, low, high: half_bits(low) | half_bits(high) << 16,
)
"""Two float32 rounded to fp16, the first in the low bits."""
pack_bf16 = Op(
    "pack_bf16",
    "cvt.rn.bf16x2.f32 $0, $2, $1;",
    "r",
    "ff",
    lambda _, low, high: bf16_bits(low) | bf16_bits(high) << 16,
    min_capability=80,
)
"""Two float32 rounded to bf16, the first in the low bits. Needs compute capability 8.0."""
e4m3_float = Op(
    "e4m3_float",
    "{.reg .b32 s, m; and.b32 s, $1, 0x80; shl.b32 s, s, 24; and.b32 m, $1, 0x7f; shl.b32 m, m, 20; or.b32 "
    "m, m, s; .reg .f32 v; mov.b32 v, m; mul.f32 $0, v, 0f7B800000;}",
    "f",
    "r",
    lambda _, b: e4m3_value(int(b) & 255),
)
"""float32 of an e4m3 byte: exponent and fraction moved to their places, times 2^120; NaN becomes 480."""
fma = Op("fma", "fma.rn.f32 $0, $1, $2, $3;", "f", "fff", fused)
add_fp16x2 = Op("add_fp16x2", "add.rn.f16x2 $0, $1, $2;", "r", "rr", each_half(lambda a, b: a + b))
mul_fp16x2 = Op("mul_fp16x2", "mul.rn.f16x2 $0, $1, $2;", "r", "rr", each_half(lambda a, b: a * b))
fma_fp16x2 = Op("fma_fp16x2", "fma.rn.f16x2 $0, $1, $2, $3;", "r", "rrr", fused_halves)
exp2 = Op("exp2", "ex2.approx.ftz.f32 $0, $1;", "f", "f", quietly(np.exp2))
log2 = Op("log2", "lg2.approx.ftz.f32 $0, $1;", "f", "f", quietly(np.log2))
rsqrt = Op("rsqrt", "rsqrt.approx.ftz.f32 $0, $1;", "f", "f", quietly(lambda x: 1 / np.sqrt(x)))
sqrt = Op("sqrt", "sqrt.rn.f32 $0, $1;", "f", "f", quietly(np.sqrt))
reciprocal = Op("reciprocal", "rcp.rn.f32 $0, $1;", "f", "f", quietly(lambda x: 1 / x))
round_even = Op("round_even", "cvt.rni.f32.f32 $0, $1;", "f", "f", quietly(np.rint))
to_int = Op(
    "to_int",
    "cvt.rni.s32.f32 $0, $1;",
    "i",
    "f",
    lambda _, x: int(np.rint(np.clip(np.float64(x), -(2.0**31), 2.0**31 - 1))),
)
"""Round to the nearest integer, ties to even."""
to_float = Op("to_float", "cvt.rn.f32.s32 $0, $1;", "f", "i", lambda _, x: np.float32(int(x)))
maximum = Op(
    "maximum", "max.f32 $0, $1, $2;", "f", "ff", lambda _, a, b: np.fmax(np.float32(a), np.float32(b))
)
minimum = Op(
    "minimum", "min.f32 $0, $1, $2;", "f", "ff", lambda _, a, b: np.fmin(np.float32(a), np.float32(b))
)
absolute = Op("absolute", "abs.f32 $0, $1;", "f", "f", lambda _, a: np.abs(np.float32(a)))
dp4a = Op("dp4a", "dp4a.s32.s32 $0, $1, $2, $3;", "i", "rri", byte_products)
"""c + the sum of the four products of signed bytes."""
permute_bytes = Op("permute_bytes", "prmt.b32 $0, $1, $2, $3;", "r", "rrr", permuted)
"""Four bytes picked from the eight of two words by the selector's low four nibbles.

A nibble of 0 .. 7 picks a byte; plus 8 it gives eight copies of that byte's top bit.
"""
and_or = Op(
    "and_or",
    "lop3.b32 $0, $1, $2, $3, 0xEA;",
    "r",
    "rrr",
    lambda _, a, b, c: by_table(int(a) & M32, int(b) & M32, int(c) & M32, 0xEA),
)
"""(a & b) | c in one instruction."""
popcount = Op("popcount", "popc.b32 $0, $1;", "i", "r", lambda _, a: (int(a) & M32).bit_count())


mma_fp16 = Op(
    "mma_fp16",
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {$0, $1, $2, $3}, {$4, $5}, {$8}, {$10, $11, $12, $13};"
    " mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {$0, $1, $2, $3}, {$6, $7}, {$9}, {$0, $1, $2, $3};",
    "ffff",
    "rrrrrrffff",
    lambda m, *v: fragments(m, v[:6], v[6:], halves_of_words),
    convergent=True,
    since={
        80: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, "
        "$9}, {$10, $11, $12, $13};"
    },
)
"""d = a b + c of fp16 with float32 sums: a (16, 16) in arguments 0 .. 3, b (16, 8) in 4 and 5, c in 6 .. 9;
for the layout see `fragments`.
"""
mma_bf16 = Op(
    "mma_bf16",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, "
    "{$10, $11, $12, $13};",
    "ffff",
    "rrrrrrffff",
    lambda m, *v: fragments(m, v[:6], v[6:], bf16s_of_words),
    convergent=True,
    min_capability=80,
)
"""d = a b + c of bf16 with float32 sums; the arguments are those of `mma_fp16`."""

transpose_b16 = Op(
    "transpose_b16",
    "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;",
    "r",
    "r",
    transposed,
    memory=True,
    convergent=True,
)
"""Transpose an (8, 8) matrix of 16-bit numbers: lane 4 g + t has row g, columns 2 t and 2 t + 1."""

# --- where a thread is, and how threads meet ----------------------------------------------------------------

thread = Op("thread", "mov.u32 $0, %tid.x;", "i", "", lambda m: m.thread)
threads = Op("threads", "mov.u32 $0, %ntid.x;", "i", "", lambda m: m.threads)
block_x = Op("block_x", "mov.u32 $0, %ctaid.x;", "i", "", lambda m: m.block[0])
block_y = Op("block_y", "mov.u32 $0, %ctaid.y;", "i", "", lambda m: m.block[1])
block_z = Op("block_z", "mov.u32 $0, %ctaid.z;", "i", "", lambda m: m.block[2])
blocks_x = Op("blocks_x", "mov.u32 $0, %nctaid.x;", "i", "", lambda m: m.blocks[0])
blocks_y = Op("blocks_y", "mov.u32 $0, %nctaid.y;", "i", "", lambda m: m.blocks[1])

barrier = Op("barrier", "bar.sync 0;", "", "", lambda m: m.barrier(), memory=True, convergent=True)
"""Wait for all threads of the block; what they wrote is visible to the others."""
fence = Op("fence", "membar.gl;", "", "", lambda m: None, memory=True)
"""Other blocks see what this thread wrote before the fence before they see what it writes after it."""


def _shuffle(name: str, mode: str, letter: str, emulate: Callable[..., Any]) -> Op:
    clamp = "0" if mode == "up" else "0x1f"
    text = f"shfl.sync.{mode}.b32 $0, $1, $2, {clamp}, 0xffffffff;"
    return Op(name, text, letter, letter + "i", emulate, memory=True, convergent=True)


shfl_xor_f32 = _shuffle("shfl_xor_f32", "bfly", "f", from_xor)
"""The float32 of lane (this lane ^ argument)."""
shfl_xor_u32 = _shuffle("shfl_xor_u32", "bfly", "r", from_xor)
shfl_xor_i32 = _shuffle("shfl_xor_i32", "bfly", "i", from_xor)
shfl_f32 = _shuffle("shfl_f32", "idx", "f", from_lane)
"""The float32 of the given lane."""
shfl_u32 = _shuffle("shfl_u32", "idx", "r", from_lane)
shfl_i32 = _shuffle("shfl_i32", "idx", "i", from_lane)
shfl_up_f32 = _shuffle("shfl_up_f32", "up", "f", from_below)
"""The float32 of the lane `distance` below this one, or this lane's own if there is none."""
shfl_up_i32 = _shuffle("shfl_up_i32", "up", "i", from_below)
ballot = Op(
    "ballot",
    "{.reg .pred p; setp.ne.s32 p, $1, 0; vote.sync.ballot.b32 $0, p, 0xffffffff;}",
    "r",
    "i",
    votes,
    memory=True,
    convergent=True,
)
"""One bit for each lane: whether its argument is not 0."""
wait_for_others = Op(
    "wait_for_others", "", "", "", lambda m: None, memory=True, since={90: "griddepcontrol.wait;"}
)
"""With programmatic dependent launch, wait for the writes of earlier kernels; otherwise do nothing."""
let_others_start = Op(
    "let_others_start",
    "",
    "",
    "",
    lambda m: None,
    memory=True,
    since={90: "griddepcontrol.launch_dependents;"},
)
"""With programmatic dependent launch, let the next kernel run up to its `wait_for_others`; else nothing."""
unknown = Op("unknown", "mov.b32 $0, $1;", "i", "i", lambda _, x: int(x), memory=True)
"""The same number, but opaque to the compiler: a loop over it is not unrolled, which saves registers."""
stay = Op("stay", "bar.warp.sync 0xffffffff;", "", "", lambda m: None, memory=True, convergent=True)
"""Keep loads of changing memory (`ld_`) on their side of this point. Otherwise the assembler delays those
that are only used in the next iteration of a loop.
"""
prefetch = Op("prefetch", "prefetch.global.L2 [$0];", "", "l", lambda m, a: None, memory=True)
"""Fetch the cache line of an address into the L2 cache."""

# --- memory -------------------------------------------------------------------------------------------------


def _loads(name: str, kind: str, letter: str, numpy: str, count: int = 1) -> tuple[Op, Op]:
    """`ldg_NAME` for memory that nothing writes while the kernel runs, and `ld_NAME` for any memory."""
    vector, outs = f".v{count}" if count > 1 else "", letter * count
    target = "{" + ", ".join(f"${i}" for i in range(count)) + "}" if count > 1 else "$0"
    read = reader(outs, np.dtype(numpy).itemsize * count, numpy)
    constant = Op(
        f"ldg_{name}", f"ld.global.nc{vector}.{kind} {target}, [${count}];", outs, "l", read, memory=True
    )
    changing = Op(
        f"ld_{name}", f"ld.global{vector}.{kind} {target}, [${count}];", outs, "l", read, memory=True
    )
    return constant, changing


ldg_f32, ld_f32 = _loads("f32", "f32", "f", "<f4")
"""`ldg_X` reads memory that no kernel writes while this one runs (the read-only cache); `ld_X` reads any."""
ldg_f32x2, ld_f32x2 = _loads("f32x2", "f32", "f", "<f4", 2)
ldg_f32x4, ld_f32x4 = _loads("f32x4", "f32", "f", "<f4", 4)
ldg_u32, ld_u32 = _loads("u32", "b32", "r", "<u4")
ldg_u32x2, ld_u32x2 = _loads("u32x2", "b32", "r", "<u4", 2)
ldg_u32x4, ld_u32x4 = _loads("u32x4", "b32", "r", "<u4", 4)
ldg_i32, ld_i32 = _loads("i32", "b32", "i", "<i4")
ldg_i64, ld_i64 = _loads("i64", "b64", "l", "<i8")
ldg_u16, ld_u16 = _loads("u16", "u16", "r", "<u2")
ldg_u8, ld_u8 = _loads("u8", "u8", "r", "<u1")
ldg_stream = Op(
    "ldg_stream",
    "ld.global.nc.L1::no_allocate.v4.b32 {$0, $1, $2, $3}, [$4];",
    "rrrr",
    "l",
    reader("rrrr", 16, "<u4"),
    memory=True,
    since={80: "ld.global.nc.L1::no_allocate.L2::128B.v4.b32 {$0, $1, $2, $3}, [$4];"},
)
"""Load 16 bytes of weights, which are read only once, without allocating a line in the L1 cache."""
ld_stream = Op(
    "ld_stream",
    "ld.global.L1::no_allocate.v4.b32 {$0, $1, $2, $3}, [$4];",
    "rrrr",
    "l",
    reader("rrrr", 16, "<u4"),
    memory=True,
    since={80: "ld.global.L1::no_allocate.L2::128B.v4.b32 {$0, $1, $2, $3}, [$4];"},
)
"""The same for changing memory, so that a `stay` keeps it in place."""
ld_stream2 = Op(
    "ld_stream2",
    "ld.global.L1::no_allocate.v2.b32 {$0, $1}, [$2];",
    "rr",
    "l",
    reader("rr", 8, "<u4"),
    memory=True,
)
ld_stream1 = Op(
    "ld_stream1", "ld.global.L1::no_allocate.b32 $0, [$1];", "r", "l", reader("r", 4, "<u4"), memory=True
)

st_f32 = Op("st_f32", "st.global.f32 [$0], $1;", "", "lf", writer("<f4"), memory=True)
st_f32x2 = Op("st_f32x2", "st.global.v2.f32 [$0], {$1, $2};", "", "lff", writer("<f4"), memory=True)
st_f32x4 = Op("st_f32x4", "st.global.v4.f32 [$0], {$1, $2, $3, $4};", "", "lffff", writer("<f4"), memory=True)
st_u32 = Op("st_u32", "st.global.b32 [$0], $1;", "", "lr", writer("<u4"), memory=True)
st_u32x2 = Op("st_u32x2", "st.global.v2.b32 [$0], {$1, $2};", "", "lrr", writer("<u4"), memory=True)
st_u32x4 = Op("st_u32x4", "st.global.v4.b32 [$0], {$1, $2, $3, $4};", "", "lrrrr", writer("<u4"), memory=True)
st_i32 = Op("st_i32", "st.global.b32 [$0], $1;", "", "li", writer("<i4"), memory=True)
st_i64 = Op("st_i64", "st.global.b64 [$0], $1;", "", "ll", writer("<i8"), memory=True)
st_u16 = Op(
    "st_u16",
    "{.reg .b16 h, z; mov.b32 {h, z}, $1; st.global.b16 [$0], h;}",
    "",
    "lr",
    writer("<u2"),
    memory=True,
)
st_u8 = Op("st_u8", "st.global.u8 [$0], $1;", "", "lr", writer("<u1"), memory=True)

lds_f32 = Op("lds_f32", "ld.shared.f32 $0, [$1];", "f", "i", reader("f", 4, "<f4", True), memory=True)
"""`lds_` and `sts_` load from and store to shared memory."""
lds_f32x2 = Op(
    "lds_f32x2", "ld.shared.v2.f32 {$0, $1}, [$2];", "ff", "i", reader("ff", 8, "<f4", True), memory=True
)
lds_f32x4 = Op(
    "lds_f32x4",
    "ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];",
    "ffff",
    "i",
    reader("ffff", 16, "<f4", True),
    memory=True,
)
lds_u32 = Op("lds_u32", "ld.shared.b32 $0, [$1];", "r", "i", reader("r", 4, "<u4", True), memory=True)
lds_u32x2 = Op(
    "lds_u32x2", "ld.shared.v2.b32 {$0, $1}, [$2];", "rr", "i", reader("rr", 8, "<u4", True), memory=True
)
lds_u32x4 = Op(
    "lds_u32x4",
    "ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];",
    "rrrr",
    "i",
    reader("rrrr", 16, "<u4", True),
    memory=True,
)
lds_i32 = Op("lds_i32", "ld.shared.b32 $0, [$1];", "i", "i", reader("i", 4, "<i4", True), memory=True)
sts_f32 = Op("sts_f32", "st.shared.f32 [$0], $1;", "", "if", writer("<f4", True), memory=True)
sts_f32x2 = Op("sts_f32x2", "st.shared.v2.f32 [$0], {$1, $2};", "", "iff", writer("<f4", True), memory=True)
sts_f32x4 = Op(
    "sts_f32x4", "st.shared.v4.f32 [$0], {$1, $2, $3, $4};", "", "iffff", writer("<f4", True), memory=True
)
sts_u32 = Op("sts_u32", "st.shared.b32 [$0], $1;", "", "ir", writer("<u4", True), memory=True)
sts_u32x4 = Op(
    "sts_u32x4", "st.shared.v4.b32 [$0], {$1, $2, $3, $4};", "", "irrrr", writer("<u4", True), memory=True
)
sts_i32 = Op("sts_i32", "st.shared.b32 [$0], $1;", "", "ii", writer("<i4", True), memory=True)


add_i32 = Op(
    "add_i32",
    "atom.global.add.s32 $0, [$1], $2;",
    "i",
    "li",
    lambda m, a, v: add_int(m, a, v, shared_memory=False),
    memory=True,
)
"""Add to an int32 in global memory atomically; returns the previous value. The order does not matter."""
adds_i32 = Op(
    "adds_i32",
    "atom.shared.add.s32 $0, [$1], $2;",
    "i",
    "ii",
    lambda m, a, v: add_int(m, a, v, shared_memory=True),
    memory=True,
)
