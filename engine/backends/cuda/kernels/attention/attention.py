"""Small-batch attention: which kernels compute it, and their calls."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from engine.backends.base import AttentionShape
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels.attention import combine as attention_combine
from engine.backends.cuda.kernels.attention import mma, stage
from engine.backends.cuda.kernels.attention import plain as attention_plain
from engine.backends.cuda.kernels.attention.kv_read import OCTET_BYTES, reading
from engine.backends.cuda.kernels.attention.parts import HEAD
from engine.backends.cuda.kernels.common import hadamard
from engine.backends.cuda.kernels.packed_activations import COLUMNS
from engine.backends.cuda.kernels.packed_activations_write import output_arguments
from engine.backends.cuda.kv_cache import KEYS, VALUES, Layout, touched
from engine.backends.cuda.lowering.call import Call, Runtime
from engine.backends.graph.buffers import Buffer
from engine.backends.kv_formats import GROUP, QUANTISED, CacheType

MOST_SPLITS = 64
PARAMETERS = "lllllllll" + "ii" + "ff" + "ii"
"""The signature of both forms of the first kernel."""


def splits_for(kv_heads: int, sm_count: int) -> int:
    """Blocks for the positions of a key/value head: a power of two, about two blocks a multiprocessor."""
    most, splits = 2 * sm_count // kv_heads, 1
    while 2 * splits <= min(most, MOST_SPLITS):
        splits *= 2
    return splits


def takes_mma(kind: CacheType, head_dim: int) -> bool:
    """Whether tensor cores read these formats: each octet must be aligned for one load."""
    plain = any(name not in QUANTISED for name in (kind.keys, kind.values))
    return kind.keys in OCTET_BYTES and kind.values in OCTET_BYTES and (not plain or head_dim % 8 == 0)


@cache
def kernel_for(kind: CacheType, head_dim: int, several: bool = False) -> Kernel:
    """The first of the two kernels, `mma._attend` or `plain._attend_plain`.

    `several` is for steps over several sequences, where a block first has to find its run: the registers that
    this takes would be missed in steps over one.
    """
    if not takes_mma(kind, head_dim):
        return _plain_kernel(kind, head_dim, several)
    groups = -(-head_dim // GROUP)
    width, blocks = GROUP * groups, -(-groups // 2)
    outputs = 4 * 8 * 64 * blocks
    transformed = kind.keys in QUANTISED
    constants = {
        "D": head_dim,
        "GROUPS": groups,
        "DP": width,
        "HADAMARD": int(transformed),
        "SEVERAL": int(several),
        "COLUMNS": stage.COLUMNS,
        "KEYS": kind.keys,
        "VALUES": kind.values,
        "KEPT_FIRST": int("q4" in (kind.keys, kind.values)),
        "VBLOCKS": blocks,
        "KP": -(-groups // (-(-groups // 4))),  # octets of a position in registers at once
        "VP": -(-blocks // (-(-blocks // 2))),
        "FRAGMENTS": outputs,
        "STATE": outputs + 1024 * groups,
        "SHARED": outputs + 1024 * groups + 64 * stage.WARPS,
        **reading(Layout(KEYS, kind.keys, head_dim), "K_"),
        **reading(Layout(VALUES, kind.values, head_dim), "V_"),
    }
    name = f"attend_{kind.keys}_{kind.values}_{head_dim}{'_runs' * several}"
    few = head_dim <= 64
    return Kernel(
        name, mma._attend, PARAMETERS, stage.THREADS, 168 if few else 208 if head_dim <= 128 else 255,
        constants, blocks=3 if few else 2,
    )  # fmt: skip


def _plain_kernel(kind: CacheType, head_dim: int, several: bool) -> Kernel:
    groups = -(-head_dim // GROUP)
    constants = {
        "D": head_dim,
        "GROUPS": groups,
        "DP": GROUP * groups,
        "COLUMNS": attention_plain.COLUMNS,
        "AT_ONCE": max(1, 16 // groups) if groups > 4 else 4,
        "KEYS": kind.keys,
        "VALUES": kind.values,
        "HADAMARD": int(kind.keys in QUANTISED),
        "SEVERAL": int(several),
        "Q_transform": hadamard if kind.keys in QUANTISED else attention_plain.no_transform,
        **reading(Layout(KEYS, kind.keys, head_dim), "K_"),
        **reading(Layout(VALUES, kind.values, head_dim), "V_"),
    }
    name = f"attend_plain_{kind.keys}_{kind.values}_{head_dim}{'_runs' * several}"
    return Kernel(name, attention_plain._attend_plain, PARAMETERS, attention_plain.THREADS, 255, constants)


@cache
def combine_kernel(head_dim: int, transformed: bool, floats: bool, form: str) -> Kernel:
    """The kernel `combine._combine`. `form` is the form of packed activations, or "" for none."""
    groups = -(-head_dim // GROUP)
    # Whole blocks of packed activations, or whole vectors, for any head dimension.
    heads = math.lcm(head_dim, COLUMNS if form else 4) // head_dim
    constants = {
        "D": head_dim,
        "GROUPS": groups,
        "DP": GROUP * groups,
        "HEADS": heads,
        "ITEMS": heads * groups,
        "WIDTH": heads * head_dim,
        "HADAMARD": int(transformed),
        "FLOATS": int(floats),
        "FORM": form,
    }
    name = f"combine_{head_dim}{'_hadamard' * transformed}{'_floats' * floats}{'_' * bool(form)}{form}"
    min_capability = 80 if form == "bf16x2" else 75
    return Kernel(
        name,
        attention_combine._combine,
        "llllllll" + "iii",
        attention_combine.THREADS,
        80,
        constants,
        min_capability=min_capability,
    )


def attention_calls(
    kind: CacheType,
    addresses: tuple[int, int],
    q: Buffer,
    y: Buffer,
    packed: tuple[str, Buffer] | None,
    shape: AttentionShape,
    sinks: int,
    sm_count: int,
    floats: bool = True,
) -> tuple[Call, Call]:
    """Attention of q (T, H * D), at most `SMALL_BATCH` rows, over a layer's keys and values at `addresses`.

    The rows' own keys and values must be written. The result goes to y (T, H * D) float32 with `floats`, and
    to `packed`, a kind of packed activations and its buffer. `sinks` is the address of H float32, or 0.
    `sm_count` is the device's number of multiprocessors. The buffer between the two calls has
    `partial_numbers` float32 a row.
    """
    heads, groups, dim = shape.heads, shape.kv_heads, shape.head_dim
    ratio, splits = heads // groups, splits_for(groups, sm_count)
    partial = Buffer(partial_numbers(shape, sm_count), q.on_logit_rows, q.copies)
    columns = kernel_for(kind, dim).constants["COLUMNS"]
    row_shift = (-(-ratio // columns) - 1).bit_length()

    def attend(several: bool) -> Call:
        def blocks(rows: int) -> tuple[int, int, int]:
            return splits, groups, rows << row_shift if several else -(-rows * ratio // columns)

        given = (Runtime.POSITIONS, Runtime.PAGES, Runtime.RUNS, Runtime.ROWS)
        numbers = (ratio, shape.scale, shape.soft_cap, shape.window, row_shift)
        return Call(
            kernel_for(kind, dim, several),
            blocks,
            (*addresses, q, q.stride, partial, partial.stride, *given, *numbers),
            (q, *touched(addresses)),
            (partial,),
        )

    combine = combine_kernel(dim, kind.values in QUANTISED, floats, packed[0] if packed is not None else "")
    blocks = -(-heads // combine.constants["HEADS"])
    name, target = packed if packed is not None else ("none", None)
    targets, written = output_arguments(name, y if floats else None, target)
    arguments = (partial, partial.stride, *targets, sinks, Runtime.POSITIONS, heads, splits, shape.window)
    combined = Call(combine, lambda rows: (blocks, rows, 1), arguments, (partial,), written)
    return replace(attend(False), several=attend(True)), combined


def partial_numbers(shape: AttentionShape, sm_count: int) -> int:
    """float32 numbers of a row's partial results: an output of each head in each split."""
    return shape.heads * splits_for(shape.kv_heads, sm_count) * (-(-shape.head_dim // GROUP) * GROUP + HEAD)


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    for keys, values, dim in (
        ("fp16", "fp16", 64),
        ("fp16", "fp16", 128),
        ("fp16", "fp16", 256),
        ("q8", "q8", 128),
        ("q8", "q4", 128),
        ("q4", "q4", 128),
        ("fp8", "fp8", 80),
        ("fp32", "fp32", 128),
    ):
        for several in (False, True):
            yield kernel_for(CacheType(keys, values), dim, several)
    for dim, transformed, floats, form in (
        (64, False, True, ""),
        (128, False, False, "fp16"),
        (80, False, True, "bf16x2"),
        (128, True, True, "fp16"),
    ):
        yield combine_kernel(dim, transformed, floats, form)
