"""Rotary position embedding of queries and keys in one launch, after the qk norm if the model has one.

A warp takes one head of a row. Each lane holds pairs of columns that are rotated together, and columns beyond
the table's, which stay unchanged. Sources: RoFormer, arXiv 2104.09864, equation 34; norms as in `qk_norm`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from engine.backends.base import RotaryTable
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    block_y,
    fma,
    ld_f32,
    ld_i32,
    ldg_f32,
    reciprocal,
    registers,
    sqrt,
    st_f32,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.common import warp_sum
from engine.backends.cuda.kernels.packed_activations_write import rows_first
from engine.backends.cuda.lowering.call import Argument, Call, Runtime
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.graph.attention import Rope, RopeGroup
from engine.backends.graph.buffers import Buffer
from engine.lazy_dataclass import dataclass

WARPS = 4
PAIRS = 2
"""Maximum number of pairs per lane."""
REST = 0
"""Maximum number of unrotated columns per lane."""
INTERLEAVED = False
NORM = "none"


@dataclass(frozen=True)
class HeadNorm:
    """The norm of each head, "rms" or "layer"; `weight` and `bias` are addresses of float32, bias 0 for none.

    They have the length of a head if all heads share them (`shared`), otherwise a vector for each head.
    """

    kind: str
    eps: float
    weight: int
    bias: int = 0
    shared: bool = True


class Rotated(NamedTuple):
    """Queries or keys: `heads` heads in x from column `first` on, and the output y (rows, heads * D)."""

    x: Buffer
    y: Buffer
    heads: int
    norm: HeadNorm | None = None
    first: int = 0


def _one(i: int, half: int) -> Any:
    """The first column of pair i."""
    return int32(2 * i) if INTERLEAVED else i


def _other(i: int, half: int) -> Any:
    """The second column of pair i."""
    return int32(2 * i + 1) if INTERLEAVED else int32(i + half)


def _normalised(
    one: Any,
    other: Any,
    rest: Any,
    w_one: Any,
    w_other: Any,
    w_rest: Any,
    lane: int,
    half: int,
    width: int,
    inverse: float,
    eps: float,
) -> None:
    """Normalise a head's numbers in place, including the weights but not the bias.

    Numbers of this lane: pairs (one, other) and unrotated columns (rest), with weights w_*. `half` pairs and
    `width` columns per head; `inverse` = 1 / width.
    """
    centre = float32(0.0)
    if NORM == "layer":
        total = float32(0.0)
        for k in static(range(PAIRS)):
            total = total + (one[k] + other[k])
        for k in static(range(REST)):
            total = total + rest[k]
        centre = warp_sum(total) * inverse
    squares = float32(0.0)
    for k in static(range(PAIRS)):
        if int32(lane + 32 * k) < half:
            one[k] = one[k] - centre
            other[k] = other[k] - centre
            squares = fma(other[k], other[k], fma(one[k], one[k], squares))
    for k in static(range(REST)):
        if int32(2 * half + lane + 32 * k) < width:
            rest[k] = rest[k] - centre
            squares = fma(rest[k], rest[k], squares)
    times = reciprocal(sqrt(fma(warp_sum(squares), inverse, eps)))
    for k in static(range(PAIRS)):
        one[k] = one[k] * times * w_one[k]
        other[k] = other[k] * times * w_other[k]
    for k in static(range(REST)):
        rest[k] = rest[k] * times * w_rest[k]


def _write_rotated(
    one: Any, other: Any, rest: Any, c: Any, s: Any, target: int, bias: int, lane: int, half: int, width: int
) -> None:  # fmt: skip
    """Add the norm's bias, rotate by the cosines c and sines s, and write a head's numbers to `target`."""
    for k in static(range(PAIRS)):
        i = int32(lane + 32 * k)
        if i < half:
            if NORM == "layer" and bias != 0:
                one[k] = one[k] + ldg_f32(bias + 4 * int64(_one(i, half)))
                other[k] = other[k] + ldg_f32(bias + 4 * int64(_other(i, half)))
            st_f32(target + 4 * int64(_one(i, half)), one[k] * c[k] - other[k] * s[k])
            st_f32(target + 4 * int64(_other(i, half)), other[k] * c[k] + one[k] * s[k])
    for k in static(range(REST)):
        column = int32(2 * half + lane + 32 * k)
        if column < width:
            if NORM == "layer" and bias != 0:
                rest[k] = rest[k] + ldg_f32(bias + 4 * int64(column))
            st_f32(target + 4 * int64(column), rest[k])


def _rope(
    x0: int, x_stride0: int, y0: int, y_stride0: int, weight0: int, bias0: int, first0: int, heads0: int,
    step0: int, eps0: float, x1: int, x_stride1: int, y1: int, y_stride1: int, weight1: int, bias1: int,
    first1: int, heads1: int, step1: int, eps1: float, cos: int, sin: int, positions: int, half: int,
    width: int, inverse: float,
) -> None:  # fmt: skip
    """Rotate the heads of two inputs: (a cos - b sin, b cos + a sin) for the first `half` pairs (a, b).

    Each input (0: queries, 1: keys): x and y with strides in bytes, norm weight and bias (0 for none),
    `first` column in x, number of heads, `step` bytes from a head's weights to the next head's, epsilon.
    Shared: cos, sin float32 (positions, half), address of the rows' rope positions, `half`, `width` columns
    per head, `inverse` = 1 / width. Grid (row, chunk of WARPS heads).
    """
    row, lane = int64(block_x()), int32(int32(thread()) & 31)
    head = int32(block_y() * WARPS + (int32(thread()) >> 5))
    if head < int32(heads0 + heads1):
        source, target, eps = x0 + row * x_stride0 + 4 * int64(first0), y0 + row * y_stride0, eps0
        weight, bias, step = weight0, bias0, int64(step0)
        if head >= heads0:
            head = int32(head - heads0)
            source, target, eps = x1 + row * x_stride1 + 4 * int64(first1), y1 + row * y_stride1, eps1
            weight, bias, step = weight1, bias1, int64(step1)
        begin = 4 * (int64(head) * int64(width))
        source, target, weight = source + begin, target + begin, weight + int64(head) * step
        bias = bias + int64(head) * step if bias != 0 else bias
        one = registers(float32(0.0), PAIRS)
        other = registers(float32(0.0), PAIRS)
        rest = registers(float32(0.0), REST)
        c = registers(float32(1.0), PAIRS)
        s = registers(float32(0.0), PAIRS)
        # Load everything before any of it is used, and the weights before the kernel that made the row has
        # ended.
        w_one = registers(float32(0.0), PAIRS)
        w_other = registers(float32(0.0), PAIRS)
        w_rest = registers(float32(0.0), REST)
        if NORM != "none":
            for k in static(range(PAIRS)):
                i = int32(lane + 32 * k)
                if i < half:
                    w_one[k] = ldg_f32(weight + 4 * int64(_one(i, half)))
                    w_other[k] = ldg_f32(weight + 4 * int64(_other(i, half)))
            for k in static(range(REST)):
                column = int32(2 * half + lane + 32 * k)
                if column < width:
                    w_rest[k] = ldg_f32(weight + 4 * int64(column))
        wait_for_others()
        place = int64(ld_i32(positions + 4 * row))
        for k in static(range(PAIRS)):
            i = int32(lane + 32 * k)
            if i < half:
                one[k] = ld_f32(source + 4 * int64(_one(i, half)))
                other[k] = ld_f32(source + 4 * int64(_other(i, half)))
                c[k] = ldg_f32(cos + 4 * (place * int64(half) + int64(i)))
                s[k] = ldg_f32(sin + 4 * (place * int64(half) + int64(i)))
        for k in static(range(REST)):
            column = int32(2 * half + lane + 32 * k)
            if column < width:
                rest[k] = ld_f32(source + 4 * int64(column))
        if NORM != "none":
            _normalised(one, other, rest, w_one, w_other, w_rest, lane, half, width, inverse, eps)
        _write_rotated(one, other, rest, c, s, target, bias, lane, half, width)


@cache
def rope_kernel(half: int, width: int, interleaved: bool, norm: str = "none") -> Kernel:
    """The kernel `_rope` for heads of `width` columns; `half` is the width of the tables.

    `norm` is "none", "rms" or "layer".
    """
    assert norm in ("none", "rms", "layer")
    assert 0 < 2 * half <= width
    pairs, rest = -(-half // 32), -(-(width - 2 * half) // 32)
    constants = {"WARPS": WARPS, "PAIRS": pairs, "REST": rest, "INTERLEAVED": interleaved, "NORM": norm}
    name = f"rope_{pairs}_{rest}{'_interleaved' if interleaved else ''}{'' if norm == 'none' else '_' + norm}"
    most = 28 + 5 * (2 * pairs + rest)
    return Kernel(name, _rope, "lllllliiif" * 2 + "llliif", 32 * WARPS, most, constants)


def rope_call(
    rotated: Sequence[Rotated | tuple[Buffer, Buffer, int]], table: RotaryTable, cos: int, sin: int
) -> Call:
    """Rotate the heads of one or two inputs, which must have the same head width and the same kind of norm.

    `cos` and `sin` are the device addresses of the table's numbers.
    """
    parts, half = [Rotated(*part) for part in rotated], table.cos.shape[1]
    assert 1 <= len(parts) <= 2
    ((width, kind),) = {
        (part.y.width // part.heads, part.norm.kind if part.norm else "none") for part in parts
    }
    arguments: list[Argument] = []
    for part in parts:
        assert part.y.width == part.heads * width
        assert 0 <= part.first <= part.x.width - part.y.width
        assert all((buffer.copies, buffer.on_logit_rows) == (1, False) for buffer in (part.x, part.y))
        norm = part.norm or HeadNorm("none", 0.0, 0)
        assert norm.kind == "layer" or not norm.bias
        arguments += [part.x, part.x.stride, part.y, part.y.stride, norm.weight, norm.bias]
        arguments += [part.first, part.heads, 0 if norm.shared else 4 * width, norm.eps]
    if len(parts) == 1:
        arguments += [0] * 9 + [0.0]
    arguments += [cos, sin, Runtime.ROPE_POSITIONS, half, width, 1.0 / width]
    blocks = rows_first(-(-sum(part.heads for part in parts) // WARPS))
    kernel = rope_kernel(half, width, table.interleaved, kind)
    return Call(
        kernel, blocks, tuple(arguments), tuple(part.x for part in parts), tuple(part.y for part in parts)
    )


def _head_norm(context: Context, node: Rope) -> HeadNorm | None:
    params, device = node.norm, node.device
    if params is None:
        return None
    weight, bias = context.vector(params.weight, device), context.vector(params.bias, device)
    shared_weight = params.weight.size == node.y.width // node.heads
    return HeadNorm(params.kind, params.eps, weight, bias, shared_weight)


def _rope_calls(context: Context, node: RopeGroup) -> Calls:
    table = node.parts[0].table
    parts = [
        Rotated(part.x, part.y, part.heads, _head_norm(context, part), part.first) for part in node.parts
    ]
    address = context.constants.given_table if table.given else context.constants.table
    cos, sin = (address(each, node.device) for each in (table.cos, table.sin))
    return (rope_call(parts, table, cos, sin),)


LOWER: Table = {RopeGroup: _rope_calls}


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists: heads of 64, 128 and 256 columns, and partly rotated heads."""
    for interleaved in (False, True):
        for half, width in ((32, 64), (64, 128), (128, 256), (32, 128)):
            yield rope_kernel(half, width, interleaved)
    for half in (32, 64, 128):
        yield rope_kernel(half, 2 * half, False, "rms")
    yield rope_kernel(64, 128, True, "layer")
