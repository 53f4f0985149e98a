"""Attention of few rows: which kernels take it, and the calls of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

from engine.backends.arena import Buffer
from engine.backends.base import AttentionShape
from engine.backends.cache_types import GROUP, QUANTISED, CacheType
from engine.backends.cuda import attention_combine, attention_mma
from engine.backends.cuda.attention_parts import HEAD
from engine.backends.cuda.attention_read import OCTET_BYTES, reading
from engine.backends.cuda.call import Call, Given
from engine.backends.cuda.kernel import Kernel
from engine.backends.cuda.records import COLUMNS
from engine.backends.cuda.store import KEYS, VALUES, Layout, touched

MOST_SPLITS = 64


def splits_for(kv_heads: int, processors: int) -> int:
    """Blocks that the positions of one key/value head are shared out to: a power of two, about two blocks a multiprocessor in all."""
    wanted, splits = 2 * processors // kv_heads, 1
    while 2 * splits <= min(wanted, MOST_SPLITS):
        splits *= 2
    return splits


def takes_mma(kind: CacheType, head_dim: int) -> bool:
    """Whether tensor cores read these formats: octets must lie where one load reaches them."""
    plain = any(name not in QUANTISED for name in (kind.keys, kind.values))
    return kind.keys in OCTET_BYTES and kind.values in OCTET_BYTES and (not plain or head_dim % 8 == 0)


@cache
def mma_kernel(kind: CacheType, head_dim: int) -> Kernel:
    """See `attention_mma._attend`."""
    groups = -(-head_dim // GROUP)
    width, blocks = GROUP * groups, -(-groups // 2)
    outputs = 4 * 8 * 64 * blocks
    turned = kind.keys in QUANTISED
    constants = {
        "D": head_dim,
        "GROUPS": groups,
        "DP": width,
        "TURNED": int(turned),
        "KEPT_FIRST": int("q4" in (kind.keys, kind.values)),
        "VBLOCKS": blocks,
        "KP": groups if groups <= 8 else -(-groups // (-(-groups // 8))),
        "VP": blocks if blocks <= 4 else -(-blocks // (-(-blocks // 4))),
        "FRAGMENTS": outputs,
        "STATE": outputs + 1024 * groups,
        "SHARED": outputs + 1024 * groups + 64 * attention_mma.WARPS,
        **reading(Layout(KEYS, kind.keys, head_dim), "K_"),
        **reading(Layout(VALUES, kind.values, head_dim), "V_"),
    }
    name = f"attend_{kind.keys}_{kind.values}_{head_dim}"
    few = head_dim <= 128
    return Kernel(
        name, attention_mma._attend, "llllllll" + "ii" + "ff" + "i", attention_mma.THREADS, 168 if few else 255, constants,
        blocks=3 if few else 2, model="attend",
    )  # fmt: skip


@cache
def combine_kernel(head_dim: int, turned: bool, floats: bool, record: str) -> Kernel:
    """See `attention_combine._combine`; `record` is "halves", "pairs" or "" for none."""
    groups = -(-head_dim // GROUP)
    # Whole blocks of a record, or whole vectors, whatever the head dimension.
    heads = math.lcm(head_dim, COLUMNS if record else 4) // head_dim
    constants = {
        "D": head_dim,
        "GROUPS": groups,
        "DP": GROUP * groups,
        "HEADS": heads,
        "ITEMS": heads * groups,
        "WIDTH": heads * head_dim,
        "TURNED": int(turned),
        "FLOATS": int(floats),
        "RECORD": record,
    }
    name = f"combine_{head_dim}{'_turned' * turned}{'_floats' * floats}{'_' * bool(record)}{record}"
    least = 80 if record == "pairs" else 75
    return Kernel(name, attention_combine._combine, "llllllll" + "iii", attention_combine.THREADS, 64, constants, least=least, model="combine")


def attention_calls(
    kind: CacheType,
    addresses: tuple[int, int],
    q: Buffer,
    y: Buffer,
    record: tuple[str, Buffer] | None,
    shape: AttentionShape,
    sinks: int,
    processors: int,
    floats: bool = True,
) -> tuple[Call, Call]:
    """Attention of q (T, H * D), at most `FEW_ROWS` rows, over a layer's keys and values, which lie at `addresses` (see `store`).

    The rows' own keys and values must be written. The result goes to y, where `floats`, and to `record`, a kind of `records` and its buffer.
    `sinks` is the address of H float32, or 0. `processors`: the device's; the same for all calls of a program. Between the two calls
    lies a buffer of about two outputs of a head for each multiprocessor and row.
    """
    heads, groups, dim = shape.heads, shape.kv_heads, shape.head_dim
    ratio, splits = heads // groups, splits_for(groups, processors)
    width = -(-dim // GROUP) * GROUP + HEAD
    partial = Buffer(heads * splits * width, q.on_logit_rows, q.copies)
    touches = touched(addresses)
    kernel = mma_kernel(kind, dim)
    columns = attention_mma.COLUMNS
    attend = Call(
        kernel,
        lambda rows: (splits, groups, -(-rows * ratio // columns)),
        (*addresses, q, q.stride, partial, partial.stride, Given.POSITION, Given.PAGES, Given.ROWS, ratio, shape.scale, shape.soft_cap, shape.window),
        (q, *touches),
        (partial,),
    )
    name, target = record if record is not None else ("", y)
    combine = combine_kernel(dim, kind.values in QUANTISED, floats, name)
    blocks = -(-heads // combine.constants["HEADS"])
    written = ((y,) if floats else ()) + ((target,) if record is not None else ())
    arguments = (partial, partial.stride, y, y.stride, target, target.stride, sinks, Given.POSITION, heads, splits, shape.window)
    return attend, Call(combine, lambda rows: (blocks, rows, 1), arguments, (partial,), written)
