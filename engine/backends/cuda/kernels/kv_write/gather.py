"""Gathers keys or values of a run of positions from the paged cache, for attention over long prompts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from engine.backends.base import AttentionShape
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    block_y,
    blocks_y,
    e4m3_float,
    fma,
    half_float,
    high_half_float,
    ld_f32,
    ld_f32x4,
    ld_i32,
    ld_u8,
    ld_u16,
    ld_u32,
    ld_u32x2,
    ld_u32x4,
    pack_fp16,
    registers,
    shfl_xor_f32,
    st_f32,
    st_f32x4,
    st_u16,
    st_u32x4,
    static,
    thread,
    to_float,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.kernels.kv_write.codes import SHRINK, level
from engine.backends.cuda.kv_cache import KEYS, VALUES, Layout, touched
from engine.backends.cuda.lowering.call import Argument, Call, Runtime
from engine.backends.kv_formats import QUANTISED, WHOLE_KEYS

THREADS = 256
FORMAT = ""
DIM = GROUPS = CHUNKS = NUMBER = 1
BLOCK = ROW = SCALES = MEAN = FIRST = 0
FP16 = WHOLE = HADAMARD = ADDS_MEAN = False


def _gather(store: int, pages: int, target: int, first: int, count: int) -> None:
    """target (count, G, DIM) = the numbers of the positions from `first` on.

    Grid (chunk of THREADS octets, head); an octet is eight dimensions of one position.
    """
    wait_for_others()
    item = int32(block_x() * THREADS + thread())
    live = item < count * CHUNKS
    item = item if live else int32(count * CHUNKS - 1)
    index = int32(item // CHUNKS)
    chunk = int32(item - index * CHUNKS)
    position = int32(first + index)
    heads, head = int64(blocks_y()), int64(block_y())
    block = store + (int64(ld_i32(pages + int64(4 * int32(position >> 8)))) * heads + head) * int64(BLOCK)
    x = registers(float32(0.0), 8)
    if HADAMARD:
        x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7] = _transformed_back(block, position, chunk)
    else:
        x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7] = _plain(
            block + int64(int32(position & 255) * ROW), chunk
        )
    size = 2 if FP16 else 4
    out = target + ((int64(index) * heads + head) * int64(DIM) + int64(8 * chunk)) * int64(size)
    if WHOLE:
        inside = live and 8 * chunk < DIM
        if inside:
            if FP16:
                st_u32x4(
                    out,
                    pack_fp16(x[0], x[1]),
                    pack_fp16(x[2], x[3]),
                    pack_fp16(x[4], x[5]),
                    pack_fp16(x[6], x[7]),
                )
            else:
                st_f32x4(out, x[0], x[1], x[2], x[3])
                st_f32x4(out + 16, x[4], x[5], x[6], x[7])
    else:
        for d in static(range(8)):
            _put(out + d * size, x[d], live and 8 * chunk + d < DIM)


def _put(at: Any, x: Any, inside: Any) -> None:
    """Store one number if the head is not a whole number of octets."""
    for _ in static(range(1)):  # in a loop, conditions on constants are decided before compilation
        if FP16:
            if inside:
                st_u16(at, pack_fp16(x, float32(0.0)))
        elif inside:
            st_f32(at, x)


def _transformed_back(block: Any, position: Any, chunk: Any) -> Any:
    """Eight dimensions of a group after the inverse transform; four adjacent lanes hold the whole group."""
    slot = int32(position & 255)
    scale = half_float(ld_u16(block + int64(SCALES + 2 * (slot * GROUPS + (chunk >> 2)))))
    x = registers(float32(0.0), 8)
    if FORMAT == "q8":
        low, high = ld_u32x2(block + int64(slot * ROW + 8 * chunk))
        for d in static(range(8)):
            x[d] = _byte(low if d < 4 else high, 24 - 8 * (d % 4)) * scale
    else:
        word = ld_u32(block + int64(slot * ROW + 4 * chunk))
        for d in static(range(8)):
            x[d] = _code(word, 4 * (d // 2) + 16 * (d % 2)) * scale
        kept = registers(float32(0.0), 8)
        at = block + int64(FIRST if position == 0 else MEAN) + int64(32 * chunk)
        adds = ADDS_MEAN and position >= WHOLE_KEYS
        kept[0], kept[1], kept[2], kept[3] = _kept(at, position == 0 or adds)
        kept[4], kept[5], kept[6], kept[7] = _kept(at + 16, position == 0 or adds)
        factor = float32(0.0) if position == 0 else float32(1.0)
        for d in static(range(8)):
            x[d] = fma(x[d], factor, kept[d])
    for stage in static(range(3)):
        for i in static(range(4)):
            (
                x[(i >> stage << stage + 1) + i % (1 << stage)],
                x[(i >> stage << stage + 1) + i % (1 << stage) + (1 << stage)],
            ) = (
                x[(i >> stage << stage + 1) + i % (1 << stage)]
                + x[(i >> stage << stage + 1) + i % (1 << stage) + (1 << stage)],
                x[(i >> stage << stage + 1) + i % (1 << stage)]
                - x[(i >> stage << stage + 1) + i % (1 << stage) + (1 << stage)],
            )
    for d in static(range(8)):
        x[d] = _across(x[d]) * float32(SHRINK)
    return x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]


def _across(x: Any) -> Any:
    """The two stages of the transform that exchange numbers between four lanes."""
    lane = thread() & 31
    for stage in static(range(2)):
        other = shfl_xor_f32(x, 1 << stage)
        x = other - x if lane & (1 << stage) else other + x
    return x


def _kept(at: Any, present: Any) -> Any:
    """Four numbers, or zeros if there are none to read."""
    a, b, c, d = float32(0.0), float32(0.0), float32(0.0), float32(0.0)
    if present:
        a, b, c, d = ld_f32x4(at)
    return a, b, c, d


def _byte(word: Any, shift: Any) -> Any:
    """The signed byte of a word that has `shift` bits above it."""
    return to_float(int32(int32(uint32(word << uint32(shift))) >> 24))


def _code(word: Any, shift: Any) -> Any:
    return level(uint32(uint32(word >> uint32(shift)) & uint32(15)))


def _plain(row: Any, chunk: Any) -> Any:
    """Eight numbers of a position, zeros past the end of the head."""
    x = registers(float32(0.0), 8)
    at = row + int64(8 * NUMBER * chunk)
    if WHOLE and FORMAT == "fp16":
        a, b, c, d = ld_u32x4(at)
        x[0], x[1], x[2], x[3] = half_float(a), high_half_float(a), half_float(b), high_half_float(b)
        x[4], x[5], x[6], x[7] = half_float(c), high_half_float(c), half_float(d), high_half_float(d)
    elif WHOLE and FORMAT == "fp32":
        x[0], x[1], x[2], x[3] = ld_f32x4(at)
        x[4], x[5], x[6], x[7] = ld_f32x4(at + 16)
    elif WHOLE:
        low, high = ld_u32x2(at)
        for d in static(range(8)):
            x[d] = e4m3_float(uint32(uint32((low if d < 4 else high) >> uint32(8 * (d % 4))) & uint32(255)))
    else:
        for d in static(range(8)):
            x[d] = _number(at, d, 8 * chunk + d < DIM)
    return x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]


def _number(at: Any, place: Any, inside: Any) -> Any:
    """One number, 0 past the end of the head."""
    x = float32(0.0)
    for _ in static(range(1)):  # as in `_put`
        if inside:
            if FORMAT == "fp32":
                x = ld_f32(at + 4 * place)
            elif FORMAT == "fp16":
                x = half_float(ld_u16(at + 2 * place))
            else:
                x = e4m3_float(ld_u8(at + place))
    return x


@cache
def gather_kernel(side: str, name: str, head_dim: int, fp16: bool) -> Kernel:
    """The kernel `_gather` for one side and format; the target is fp16 with `fp16`, otherwise float32."""
    layout = Layout(side, name, head_dim)
    hadamard = name in QUANTISED
    constants = {
        "FORMAT": name, "DIM": head_dim, "GROUPS": layout.groups,
        "CHUNKS": 4 * layout.groups if hadamard else -(-head_dim // 8),
        "NUMBER": 0 if hadamard else layout.row // head_dim, "BLOCK": layout.block, "ROW": layout.row,
        "SCALES": layout.scales, "MEAN": layout.mean, "FIRST": layout.first, "FP16": fp16,
        "WHOLE": head_dim % 8 == 0, "HADAMARD": hadamard, "ADDS_MEAN": side == KEYS, "THREADS": THREADS,
    }  # fmt: skip
    label = f"gather_kv_{side}_{name}_{head_dim}_{'fp16' if fp16 else 'fp32'}"
    return Kernel(label, _gather, "lllii", THREADS, 48, constants)


def gather_call(
    side: str,
    name: str,
    address: int,
    target: Argument,
    shape: AttentionShape,
    first: int,
    count: int,
    *,
    fp16: bool = True,
) -> Call:
    """target (count, G, D) = one side of a layer's cache from position `first` on, as fp16 or float32.

    `side` is "keys" or "values", in format `name` at `address`. The result is transformed back and includes
    the means. Numbers beyond the range of fp16 become infinities.
    """
    kernel = gather_kernel(side, name, shape.head_dim, fp16)
    chunks = -(-count * kernel.constants["CHUNKS"] // THREADS)
    own = touched((address, address))[side != KEYS]
    arguments = (address, Runtime.PAGES, target, first, count)
    return Call(kernel, lambda _: (chunks, shape.kv_heads, 1), arguments, (own,), (target,))


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists; long prompts need them."""
    for fp16 in (True, False):  # float32 for layers without flash attention
        yield gather_kernel(KEYS, "fp16", 128, fp16)
        for side in (KEYS, VALUES):
            for name in ("q8", "q4"):
                yield gather_kernel(side, name, 128, fp16)
