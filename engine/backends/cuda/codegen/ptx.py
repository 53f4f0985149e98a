"""The instructions that kernels are written in, each as PTX.

A kernel is a plain function that calls these objects. `engine.backends.cuda.codegen.kernel.specialised` puts
something else in the place of each: a Numba intrinsic in `engine.backends.cuda.codegen.build`, an emulation
in the interpreter of the tests. So kernels can be read, listed and interpreted without Numba-CUDA.

A code stands for a type: "i" int32, "r" uint32 (bits), "l" int64 (global addresses and offsets), "f"
float32. Shared memory has 32-bit addresses of its own. Numba widens some 32-bit arithmetic to int64; write
`int32(...)` or `uint32(...)` there. A float without `float32(...)` would make the arithmetic float64, which
`build` rejects. Source: NVIDIA, PTX ISA 8.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Op:
    """One instruction, or a few that belong together.

    `text` is PTX with $0, $1 ... for the results, then the arguments; `since` maps a minimum compute
    capability (80 for 8.0) to a different text. `outs` and `ins` are the letters of results and arguments.
    With `memory` it keeps its place in the code. With `convergent` all lanes of the warp must execute it
    together. An instruction is pickled by its name in this module.
    """

    name: str
    text: str
    outs: str
    ins: str
    memory: bool = False
    convergent: bool = False
    since: Mapping[int, str] = field(default_factory=dict)
    min_capability: int = 75

    def __call__(self, *arguments: Any) -> Any:
        """Raise `TypeError`: the instruction is replaced before a kernel runs."""
        raise TypeError(f"{self.name} runs on a device only")

    def __reduce__(self) -> str:
        return self.name

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


float_bits = Op("float_bits", "mov.b32 $0, $1;", "r", "f")
bits_float = Op("bits_float", "mov.b32 $0, $1;", "f", "r")
half_float = Op("half_float", "{.reg .b16 h, z; mov.b32 {h, z}, $1; cvt.f32.f16 $0, h;}", "f", "r")
"""float32 of the fp16 number in the low 16 bits."""
high_half_float = Op("high_half_float", "{.reg .b16 h, z; mov.b32 {z, h}, $1; cvt.f32.f16 $0, h;}", "f", "r")
"""float32 of the fp16 number in the high 16 bits."""
pack_fp16 = Op(
    "pack_fp16",
    "{.reg .b16 l, h; cvt.rn.f16.f32 l, $1; cvt.rn.f16.f32 h, $2; mov.b32 $0, {l, h};}",
    "r",
    "ff",
)
"""Two float32 rounded to fp16, the first in the low bits."""
pack_bf16 = Op("pack_bf16", "cvt.rn.bf16x2.f32 $0, $2, $1;", "r", "ff", min_capability=80)
"""Two float32 rounded to bf16, the first in the low bits. Needs compute capability 8.0."""
e4m3_float = Op(
    "e4m3_float",
    "{.reg .b32 s, m; and.b32 s, $1, 0x80; shl.b32 s, s, 24; and.b32 m, $1, 0x7f; shl.b32 m, m, 20; or.b32 "
    "m, m, s; .reg .f32 v; mov.b32 v, m; mul.f32 $0, v, 0f7B800000;}",
    "f",
    "r",
)
"""float32 of an e4m3 byte: exponent and fraction moved to their places, times 2^120; NaN becomes 480."""
fma = Op("fma", "fma.rn.f32 $0, $1, $2, $3;", "f", "fff")
add_fp16x2 = Op("add_fp16x2", "add.rn.f16x2 $0, $1, $2;", "r", "rr")
mul_fp16x2 = Op("mul_fp16x2", "mul.rn.f16x2 $0, $1, $2;", "r", "rr")
fma_fp16x2 = Op("fma_fp16x2", "fma.rn.f16x2 $0, $1, $2, $3;", "r", "rrr")
exp2 = Op("exp2", "ex2.approx.ftz.f32 $0, $1;", "f", "f")
log2 = Op("log2", "lg2.approx.ftz.f32 $0, $1;", "f", "f")
rsqrt = Op("rsqrt", "rsqrt.approx.ftz.f32 $0, $1;", "f", "f")
sqrt = Op("sqrt", "sqrt.rn.f32 $0, $1;", "f", "f")
reciprocal = Op("reciprocal", "rcp.rn.f32 $0, $1;", "f", "f")
near_reciprocal = Op("near_reciprocal", "rcp.approx.ftz.f32 $0, $1;", "f", "f")
"""1 / x, the last bit aside; it calls no function, as `reciprocal` does for numbers that are hardly any."""
to_int = Op("to_int", "cvt.rni.s32.f32 $0, $1;", "i", "f")
"""Round to the nearest integer, ties to even."""
to_float = Op("to_float", "cvt.rn.f32.s32 $0, $1;", "f", "i")
maximum = Op("maximum", "max.f32 $0, $1, $2;", "f", "ff")
minimum = Op("minimum", "min.f32 $0, $1, $2;", "f", "ff")
absolute = Op("absolute", "abs.f32 $0, $1;", "f", "f")
permute_bytes = Op("permute_bytes", "prmt.b32 $0, $1, $2, $3;", "r", "rrr")
"""Four bytes picked from the eight of two words by the selector's low four nibbles.

A nibble of 0 .. 7 picks a byte; plus 8 it gives eight copies of that byte's top bit.
"""
and_or = Op("and_or", "lop3.b32 $0, $1, $2, $3, 0xEA;", "r", "rrr")
"""(a & b) | c in one instruction."""
popcount = Op("popcount", "popc.b32 $0, $1;", "i", "r")


mma_fp16 = Op(
    "mma_fp16",
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {$0, $1, $2, $3}, {$4, $5}, {$8}, {$10, $11, $12, $13};"
    " mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {$0, $1, $2, $3}, {$6, $7}, {$9}, {$0, $1, $2, $3};",
    "ffff",
    "rrrrrrffff",
    convergent=True,
    since={
        80: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, "
        "$9}, {$10, $11, $12, $13};"
    },
)
"""d = a b + c of fp16 with float32 sums: a (16, 16) in arguments 0 .. 3, b (16, 8) in 4 and 5, c in 6 .. 9.

Lane (g, t) = (lane / 4, lane % 4) holds a at rows g, g + 8 and columns 2 t, 2 t + 1 (+ 8), b at rows 2 t,
2 t + 1 (+ 8) of column g, and c and d at rows g, g + 8 and columns 2 t, 2 t + 1.
"""
mma_bf16 = Op(
    "mma_bf16",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, "
    "{$10, $11, $12, $13};",
    "ffff",
    "rrrrrrffff",
    convergent=True,
    min_capability=80,
)
"""d = a b + c of bf16 with float32 sums; the arguments are those of `mma_fp16`."""

transpose_b16 = Op(
    "transpose_b16", "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;", "r", "r", memory=True, convergent=True
)
"""Transpose an (8, 8) matrix of 16-bit numbers: lane 4 g + t has row g, columns 2 t and 2 t + 1."""

# --- where a thread is, and how threads meet ----------------------------------------------------------------

thread = Op("thread", "mov.u32 $0, %tid.x;", "i", "")
threads = Op("threads", "mov.u32 $0, %ntid.x;", "i", "")
block_x = Op("block_x", "mov.u32 $0, %ctaid.x;", "i", "")
block_y = Op("block_y", "mov.u32 $0, %ctaid.y;", "i", "")
block_z = Op("block_z", "mov.u32 $0, %ctaid.z;", "i", "")
blocks_x = Op("blocks_x", "mov.u32 $0, %nctaid.x;", "i", "")
blocks_y = Op("blocks_y", "mov.u32 $0, %nctaid.y;", "i", "")

barrier = Op("barrier", "bar.sync 0;", "", "", memory=True, convergent=True)
"""Wait for all threads of the block; what they wrote is visible to the others."""
fence = Op("fence", "membar.gl;", "", "", memory=True)
"""Other blocks see what this thread wrote before the fence before they see what it writes after it."""


def _shuffle(name: str, mode: str, code: str) -> Op:
    clamp = "0" if mode == "up" else "0x1f"
    text = f"shfl.sync.{mode}.b32 $0, $1, $2, {clamp}, 0xffffffff;"
    return Op(name, text, code, code + "i", memory=True, convergent=True)


shfl_xor_f32 = _shuffle("shfl_xor_f32", "bfly", "f")
"""The float32 of lane (this lane ^ argument)."""
shfl_xor_u32 = _shuffle("shfl_xor_u32", "bfly", "r")
shfl_xor_i32 = _shuffle("shfl_xor_i32", "bfly", "i")
shfl_f32 = _shuffle("shfl_f32", "idx", "f")
"""The float32 of the given lane."""
shfl_u32 = _shuffle("shfl_u32", "idx", "r")
shfl_i32 = _shuffle("shfl_i32", "idx", "i")
shfl_up_f32 = _shuffle("shfl_up_f32", "up", "f")
"""The float32 of the lane `distance` below this one, or this lane's own if there is none."""
shfl_up_i32 = _shuffle("shfl_up_i32", "up", "i")
ballot = Op(
    "ballot",
    "{.reg .pred p; setp.ne.s32 p, $1, 0; vote.sync.ballot.b32 $0, p, 0xffffffff;}",
    "r",
    "i",
    memory=True,
    convergent=True,
)
"""One bit for each lane: whether its argument is not 0."""
wait_for_others = Op("wait_for_others", "", "", "", memory=True, since={90: "griddepcontrol.wait;"})
"""With programmatic dependent launch, wait for the writes of earlier kernels; otherwise do nothing."""
let_others_start = Op(
    "let_others_start", "", "", "", memory=True, since={90: "griddepcontrol.launch_dependents;"}
)
"""With programmatic dependent launch, let the next kernel run up to its `wait_for_others`; else nothing."""
unknown = Op("unknown", "mov.b32 $0, $1;", "i", "i", memory=True)
"""The same number, but opaque to the compiler: a loop over it is not unrolled, which saves registers."""
stay = Op("stay", "bar.warp.sync 0xffffffff;", "", "", memory=True, convergent=True)
"""Keep loads of changing memory (`ld_`) on their side of this point. Otherwise the assembler delays those
that are only used in the next iteration of a loop.
"""
prefetch = Op("prefetch", "prefetch.global.L2 [$0];", "", "l", memory=True)
"""Fetch the cache line of an address into the L2 cache."""

# --- memory -------------------------------------------------------------------------------------------------


def _loads(name: str, kind: str, code: str, count: int = 1) -> tuple[Op, Op]:
    """`ldg_NAME` for memory that nothing writes while the kernel runs, and `ld_NAME` for any memory."""
    vector, outs = f".v{count}" if count > 1 else "", code * count
    target = "{" + ", ".join(f"${i}" for i in range(count)) + "}" if count > 1 else "$0"
    constant = Op(f"ldg_{name}", f"ld.global.nc{vector}.{kind} {target}, [${count}];", outs, "l", memory=True)
    changing = Op(f"ld_{name}", f"ld.global{vector}.{kind} {target}, [${count}];", outs, "l", memory=True)
    return constant, changing


ldg_f32, ld_f32 = _loads("f32", "f32", "f")
"""`ldg_X` reads memory that no kernel writes while this one runs (the read-only cache); `ld_X` reads any."""
ldg_f32x2, ld_f32x2 = _loads("f32x2", "f32", "f", 2)
ldg_f32x4, ld_f32x4 = _loads("f32x4", "f32", "f", 4)
ldg_u32, ld_u32 = _loads("u32", "b32", "r")
ldg_u32x2, ld_u32x2 = _loads("u32x2", "b32", "r", 2)
ldg_u32x4, ld_u32x4 = _loads("u32x4", "b32", "r", 4)
ldg_i32, ld_i32 = _loads("i32", "b32", "i")
ldg_i64, ld_i64 = _loads("i64", "b64", "l")
ldg_u16, ld_u16 = _loads("u16", "u16", "r")
ldg_u8, ld_u8 = _loads("u8", "u8", "r")
ldg_stream = Op(
    "ldg_stream",
    "ld.global.nc.L1::no_allocate.v4.b32 {$0, $1, $2, $3}, [$4];",
    "rrrr",
    "l",
    memory=True,
    since={80: "ld.global.nc.L1::no_allocate.L2::128B.v4.b32 {$0, $1, $2, $3}, [$4];"},
)
"""Load 16 bytes of weights, which are read only once, without allocating a line in the L1 cache."""
ld_stream = Op(
    "ld_stream",
    "ld.global.L1::no_allocate.v4.b32 {$0, $1, $2, $3}, [$4];",
    "rrrr",
    "l",
    memory=True,
    since={80: "ld.global.L1::no_allocate.L2::128B.v4.b32 {$0, $1, $2, $3}, [$4];"},
)
"""The same for changing memory, so that a `stay` keeps it in place."""
ld_stream2 = Op("ld_stream2", "ld.global.L1::no_allocate.v2.b32 {$0, $1}, [$2];", "rr", "l", memory=True)
ld_stream1 = Op("ld_stream1", "ld.global.L1::no_allocate.b32 $0, [$1];", "r", "l", memory=True)

st_f32 = Op("st_f32", "st.global.f32 [$0], $1;", "", "lf", memory=True)
st_f32x2 = Op("st_f32x2", "st.global.v2.f32 [$0], {$1, $2};", "", "lff", memory=True)
st_f32x4 = Op("st_f32x4", "st.global.v4.f32 [$0], {$1, $2, $3, $4};", "", "lffff", memory=True)
st_u32 = Op("st_u32", "st.global.b32 [$0], $1;", "", "lr", memory=True)
st_u32x2 = Op("st_u32x2", "st.global.v2.b32 [$0], {$1, $2};", "", "lrr", memory=True)
st_u32x4 = Op("st_u32x4", "st.global.v4.b32 [$0], {$1, $2, $3, $4};", "", "lrrrr", memory=True)
st_i32 = Op("st_i32", "st.global.b32 [$0], $1;", "", "li", memory=True)
st_i64 = Op("st_i64", "st.global.b64 [$0], $1;", "", "ll", memory=True)
st_u16 = Op("st_u16", "{.reg .b16 h, z; mov.b32 {h, z}, $1; st.global.b16 [$0], h;}", "", "lr", memory=True)
st_u8 = Op("st_u8", "st.global.u8 [$0], $1;", "", "lr", memory=True)

lds_f32 = Op("lds_f32", "ld.shared.f32 $0, [$1];", "f", "i", memory=True)
"""`lds_` and `sts_` load from and store to shared memory."""
lds_f32x2 = Op("lds_f32x2", "ld.shared.v2.f32 {$0, $1}, [$2];", "ff", "i", memory=True)
lds_f32x4 = Op("lds_f32x4", "ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];", "ffff", "i", memory=True)
lds_u32 = Op("lds_u32", "ld.shared.b32 $0, [$1];", "r", "i", memory=True)
lds_u32x4 = Op("lds_u32x4", "ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];", "rrrr", "i", memory=True)
lds_i32 = Op("lds_i32", "ld.shared.b32 $0, [$1];", "i", "i", memory=True)
sts_f32 = Op("sts_f32", "st.shared.f32 [$0], $1;", "", "if", memory=True)
sts_f32x2 = Op("sts_f32x2", "st.shared.v2.f32 [$0], {$1, $2};", "", "iff", memory=True)
sts_f32x4 = Op("sts_f32x4", "st.shared.v4.f32 [$0], {$1, $2, $3, $4};", "", "iffff", memory=True)
sts_u32 = Op("sts_u32", "st.shared.b32 [$0], $1;", "", "ir", memory=True)
sts_u32x4 = Op("sts_u32x4", "st.shared.v4.b32 [$0], {$1, $2, $3, $4};", "", "irrrr", memory=True)
sts_i32 = Op("sts_i32", "st.shared.b32 [$0], $1;", "", "ii", memory=True)


add_i32 = Op("add_i32", "atom.global.add.s32 $0, [$1], $2;", "i", "li", memory=True)
"""Add to an int32 in global memory atomically; returns the previous value. The order does not matter."""
adds_i32 = Op("adds_i32", "atom.shared.add.s32 $0, [$1], $2;", "i", "ii", memory=True)
