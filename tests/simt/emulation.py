"""The instructions of `engine.backends.cuda.codegen.ptx` on Python numbers: `EMULATED` by name.

Each is called as emulated(machine, *arguments) and returns the results. "i" and "r" are Python ints that are
already wrapped to 32 bits; "f" is np.float32.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from engine.backends.cuda.codegen import ptx
from engine.backends.cuda.codegen.ptx import Op

M32 = 0xFFFFFFFF
FP16_VALUES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
"""Every fp16 number, indexed by its bits."""


class Machine(Protocol):
    """What the emulation needs of the interpreter: the running thread, memory, exchange within its warp."""

    @property
    def thread(self) -> int: ...
    @property
    def block(self) -> tuple[int, int, int]: ...
    @property
    def blocks(self) -> tuple[int, int, int]: ...
    @property
    def threads(self) -> int: ...

    def load(self, address: int, size: int, shared: bool) -> bytes:
        """Read `size` bytes. Raises if some are not allocated, or if the address is not aligned to `size`."""
        ...

    def store(self, address: int, data: bytes, shared: bool) -> None:
        """Write `data`, with the same checks as `load`."""
        ...

    def add(self, address: int, value: int, shared: bool) -> int:
        """Add to an int32 atomically; returns the previous value."""
        ...

    def exchange(self, value: Any) -> tuple[list[Any], int]:
        """Wait for the whole warp; returns the values of its 32 lanes and this lane's number.

        It is an error if lanes have diverged. All lanes get the same list object. No lane of another warp
        runs until each lane of this warp has reached its next exchange or ended.
        """
        ...

    def barrier(self) -> None:
        """Wait for all threads of the block."""
        ...

    def shared(self, size: int) -> int:
        """The address of the `size` bytes of shared memory that belong to this place in the code."""
        ...


def bits_of(value: Any) -> int:
    return int(np.float32(value).view(np.uint32))


def float_of(bits: int) -> np.float32:
    return np.uint32(int(bits) & M32).view(np.float32)


def fp16_pair(word: int) -> tuple[np.float16, np.float16]:
    word = int(word)
    return FP16_VALUES[word & 0xFFFF], FP16_VALUES[word >> 16 & 0xFFFF]


def half_bits(value: Any) -> int:
    value = np.float32(value)
    if not -65504 < value < 65504:
        with np.errstate(over="ignore"):
            return int(value.astype(np.float16).view(np.uint16))
    return int(value.astype(np.float16).view(np.uint16))


def bf16_bits(value: Any) -> int:
    bits = bits_of(value)
    if bits & 0x7FFFFFFF > 0x7F800000:
        return 0x7FFF
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF


def e4m3_value(byte: int) -> np.float32:
    sign, exponent, fraction = byte >> 7, byte >> 3 & 15, byte & 7
    if byte & 0x7F == 0x7F:
        return np.float32(np.nan)
    value = math.ldexp(fraction / 8, -6) if not exponent else math.ldexp(1 + fraction / 8, exponent - 7)
    return np.float32(-value if sign else value)


def fused(_: Machine, a: Any, b: Any, c: Any) -> np.float32:
    # The product of two float32 is exact in float64; the sum is rounded once more, which almost never changes
    # the float32 result.
    return np.float32(float(a) * float(b) + float(c))


def permuted(_: Machine, a: int, b: int, select: int) -> int:
    both, out = (int(a) & M32) | (int(b) & M32) << 32, 0
    for i in range(4):
        nibble = int(select) >> 4 * i & 15
        byte = both >> 8 * (nibble & 7) & 255
        out |= (byte if nibble < 8 else 255 * (byte >> 7)) << 8 * i
    return out


def by_table(a: int, b: int, c: int, table: int) -> int:
    out = 0
    for row in range(8):  # a row of the table: the bits of a, b and c that it applies to
        if table >> row & 1:
            out |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return out & M32


def each_half(function: Callable[[np.float32, np.float32], Any]) -> Callable[[Machine, int, int], int]:
    def each(_: Machine, a: int, b: int) -> int:
        (a0, a1), (b0, b1) = fp16_pair(a), fp16_pair(b)
        return (
            half_bits(function(np.float32(a0), np.float32(b0)))
            | half_bits(function(np.float32(a1), np.float32(b1))) << 16
        )

    return each


def fused_fp16x2(_: Machine, a: int, b: int, c: int) -> int:
    parts = zip(fp16_pair(a), fp16_pair(b), fp16_pair(c), strict=True)
    low, high = (half_bits(np.float64(x) * np.float64(y) + np.float64(z)) for x, y, z in parts)
    return low | high << 16


def quietly(function: Callable[[Any], Any]) -> Callable[[Machine, Any], np.float32]:
    def each(_: Machine, x: Any) -> np.float32:
        with np.errstate(all="ignore"):
            return np.float32(function(np.float64(x)))

    return each


def fragments(
    machine: Machine, operands: tuple[int, ...], sums: tuple[Any, ...], convert: Callable[[Any], Any]
) -> tuple[Any, ...]:
    """d = a b + c (m16n8k16), in the layout of `ptx.mma_fp16`."""
    lanes, me = machine.exchange(operands)
    if _product[0] is not lanes:  # the first lane to arrive computes the product for all lanes
        _product[:] = lanes, _warp_product(lanes, convert)
    g, column = me // 4, me % 4 * 2
    product = _product[1]
    return tuple(np.float32(float(sums[i]) + product[g + i // 2 * 8][column + i % 2]) for i in range(4))


_product: list[Any] = [None, None]
"""The list of the last exchange in `fragments`, and its product."""


def _warp_product(lanes: list[tuple[int, ...]], convert: Callable[[Any], Any]) -> list[list[float]]:
    numbers = convert(np.array(lanes, np.int64) & M32).reshape(8, 4, 6, 2)  # g, t, word, low or high
    a, b = np.zeros((16, 16)), np.zeros((16, 8))
    for i in range(4):
        a[i % 2 * 8 : i % 2 * 8 + 8, i // 2 * 8 : i // 2 * 8 + 8] = numbers[:, :, i].reshape(8, 8)
    for i in range(2):
        b[8 * i : 8 * i + 8] = numbers[:, :, 4 + i].reshape(8, 8).T
    with np.errstate(all="ignore"):
        # Add elements in the order of k, so that every row and column is summed in the same way. BLAS does
        # not guarantee this.
        return [[float(x) for x in row] for row in np.add.reduce(a[:, :, None] * b, axis=1)]


def fp16_pairs(words: Any) -> Any:
    """float64 (..., 2) of the fp16 pairs in words, low 16 bits first."""
    return np.stack([FP16_VALUES[words & 0xFFFF], FP16_VALUES[words >> 16]], axis=-1).astype(np.float64)


def bf16s_of_words(words: Any) -> Any:
    """float64 (..., 2) of the bf16 pairs in words, low 16 bits first."""
    return (
        np.stack([words << 16 & M32, words & 0xFFFF0000], axis=-1)
        .astype(np.uint32)
        .view(np.float32)
        .astype(np.float64)
    )


def from_xor(machine: Machine, value: Any, mask: int) -> Any:
    lanes, me = machine.exchange(value)
    return lanes[me ^ int(mask)]


def from_lane(machine: Machine, value: Any, lane: int) -> Any:
    lanes, _ = machine.exchange(value)
    return lanes[int(lane) & 31]


def from_below(machine: Machine, value: Any, distance: int) -> Any:
    lanes, me = machine.exchange(value)
    return lanes[me - int(distance)] if me >= int(distance) else value


def transposed(machine: Machine, word: int) -> int:
    lanes, me = machine.exchange(int(word))
    g, t = me // 4, me % 4
    low, high = (lanes[4 * row + g // 2] >> 16 * (g % 2) & 0xFFFF for row in (2 * t, 2 * t + 1))
    return int(low | high << 16)


def votes(machine: Machine, flag: int) -> int:
    lanes, _ = machine.exchange(int(flag) != 0)
    return sum(1 << i for i, each in enumerate(lanes) if each)


def reader(signature: str, size: int, numpy: str, shared_memory: bool = False) -> Callable[..., Any]:
    if "f" in signature:  # through NumPy, so that NaNs keep their bits

        def load(machine: Machine, address: int) -> Any:
            values = np.frombuffer(machine.load(int(address), size, shared_memory), numpy)
            return values[0] if len(signature) == 1 else tuple(values)

        assert numpy == "<f4"
        return load
    kind = np.dtype(numpy)
    code = {1: "b", 2: "h", 4: "i", 8: "q"}[kind.itemsize]
    unpack = struct.Struct("<" + (code.upper() if kind.kind == "u" else code) * len(signature)).unpack

    def load_whole(machine: Machine, address: int) -> Any:
        values = unpack(machine.load(int(address), size, shared_memory))
        return values[0] if len(values) == 1 else values

    return load_whole


def writer(numpy: str, shared_memory: bool = False) -> Callable[..., None]:
    kind = np.dtype(numpy)
    mask = (1 << 8 * kind.itemsize) - 1

    def store(machine: Machine, address: int, *values: Any) -> None:
        if kind.kind == "f":
            data = np.array(values, kind).tobytes()
        else:
            data = b"".join([(int(v) & mask).to_bytes(kind.itemsize, "little") for v in values])
        machine.store(int(address), data, shared_memory)

    return store


def add_int(machine: Machine, address: int, value: int, *, shared_memory: bool) -> int:
    """Add atomically; returns the previous value."""
    return machine.add(int(address), int(value), shared_memory)


OPS: Mapping[str, Op] = {op.name: op for op in vars(ptx).values() if isinstance(op, Op)}
"""All instructions."""

_MEMORY = re.compile(r"(ldg?|st|lds|sts)_(f32|u32|i32|i64|u16|u8|stream)(?:x?\d)?")
_NUMPY = {"f32": "<f4", "u32": "<u4", "i32": "<i4", "i64": "<i8", "u16": "<u2", "u8": "<u1", "stream": "<u4"}


def _memory_access(op: Op) -> Callable[..., Any] | None:
    """A load or a store by its name, with as many numbers as it has results, or takes after the address."""
    match = _MEMORY.fullmatch(op.name)
    if match is None:
        return None
    numpy, shared_memory = _NUMPY[match[2]], match[1] in ("lds", "sts")
    if op.outs:
        return reader(op.outs, np.dtype(numpy).itemsize * len(op.outs), numpy, shared_memory)
    return writer(numpy, shared_memory)


def _nothing(machine: Machine, *arguments: Any) -> None:
    """What only concerns the order in which a real device does its work."""


EMULATED: Mapping[str, Callable[..., Any]] = {
    **{name: access for name, op in OPS.items() if (access := _memory_access(op)) is not None},
    "float_bits": lambda _, x: bits_of(x),
    "bits_float": lambda _, x: float_of(x),
    "half_float": lambda _, w: np.float32(fp16_pair(w)[0]),
    "high_half_float": lambda _, w: np.float32(fp16_pair(w)[1]),
    "pack_fp16": lambda _, low, high: half_bits(low) | half_bits(high) << 16,
    "pack_bf16": lambda _, low, high: bf16_bits(low) | bf16_bits(high) << 16,
    "e4m3_float": lambda _, b: e4m3_value(int(b) & 255),
    "fma": fused,
    "add_fp16x2": each_half(lambda a, b: a + b),
    "mul_fp16x2": each_half(lambda a, b: a * b),
    "fma_fp16x2": fused_fp16x2,
    "exp2": quietly(np.exp2),
    "log2": quietly(np.log2),
    "rsqrt": quietly(lambda x: 1 / np.sqrt(x)),
    "sqrt": quietly(np.sqrt),
    "reciprocal": quietly(lambda x: 1 / x),
    "near_reciprocal": quietly(lambda x: 1 / x),
    "to_int": lambda _, x: int(np.rint(np.clip(np.float64(x), -(2.0**31), 2.0**31 - 1))),
    "to_float": lambda _, x: np.float32(int(x)),
    "maximum": lambda _, a, b: np.fmax(np.float32(a), np.float32(b)),
    "minimum": lambda _, a, b: np.fmin(np.float32(a), np.float32(b)),
    "absolute": lambda _, a: np.abs(np.float32(a)),
    "permute_bytes": permuted,
    "and_or": lambda _, a, b, c: by_table(int(a) & M32, int(b) & M32, int(c) & M32, 0xEA),
    "popcount": lambda _, a: (int(a) & M32).bit_count(),
    "mma_fp16": lambda m, *v: fragments(m, v[:6], v[6:], fp16_pairs),
    "mma_bf16": lambda m, *v: fragments(m, v[:6], v[6:], bf16s_of_words),
    "transpose_b16": transposed,
    "thread": lambda m: m.thread,
    "threads": lambda m: m.threads,
    "block_x": lambda m: m.block[0],
    "block_y": lambda m: m.block[1],
    "block_z": lambda m: m.block[2],
    "blocks_x": lambda m: m.blocks[0],
    "blocks_y": lambda m: m.blocks[1],
    "barrier": lambda m: m.barrier(),
    "shfl_xor_f32": from_xor,
    "shfl_xor_u32": from_xor,
    "shfl_xor_i32": from_xor,
    "shfl_f32": from_lane,
    "shfl_u32": from_lane,
    "shfl_i32": from_lane,
    "shfl_up_f32": from_below,
    "shfl_up_i32": from_below,
    "ballot": votes,
    "unknown": lambda _, x: int(x),
    "fence": _nothing,
    "stay": _nothing,
    "prefetch": _nothing,
    "wait_for_others": _nothing,
    "let_others_start": _nothing,
    "add_i32": lambda m, a, v: add_int(m, a, v, shared_memory=False),
    "adds_i32": lambda m, a, v: add_int(m, a, v, shared_memory=True),
}
