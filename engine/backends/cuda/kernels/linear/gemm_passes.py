"""Products of slightly more than eight rows: passes of the eight-row kernels, to move fewer bytes.

Unpacking a matrix reads it, writes two bytes for each number, and reads those again; a
pass of eight rows just reads it once.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels.linear.interface import PARTS
from engine.backends.cuda.kernels.linear.variants import linear_variant
from engine.backends.cuda.kernels.packed_activations import packed_buffer, padded
from engine.backends.cuda.kernels.packed_activations_write import chunks, pack_kernel
from engine.backends.cuda.layouts.layout import ROWS
from engine.backends.cuda.layouts.plain import Plain
from engine.backends.cuda.lowering.call import SMALL_BATCH, Argument, Blocks, Bound, Call, ScratchSize
from engine.backends.cuda.weight import WeightSpec
from engine.backends.graph.buffers import Buffer

MOST_ROWS = 64


def short_passes(weight: WeightSpec, rows: int) -> int:
    """The number of small-batch passes for these rows if they move fewer bytes than unpacking, else 0."""
    passes, dense = -(-rows // SMALL_BATCH), 2 * ROWS * weight.tiles * padded(weight.shape[1])
    fewer = passes * weight.nbytes < weight.nbytes + 2 * dense
    return passes if fewer and rows <= MOST_ROWS and _is_packed(weight) else 0


def _is_packed(weight: WeightSpec) -> bool:
    """Whether the matrix is packed, so that torch cannot multiply with it directly."""
    return not isinstance(weight.weight_layout, Plain)


def passes_kernels(weights: Sequence[WeightSpec], sm_count: int) -> tuple[Kernel, ...]:
    """The kernels that `multiply_in_passes` and `write_packed` launch."""
    packed = [weight for weight in weights if _is_packed(weight)]
    kernels = [linear_variant(w.weight_layout, w.tiles, w.shape[1], sm_count).kernel for w in packed]
    kinds = {weight.weight_layout.activations for weight in packed} - {"fp32"}
    return (*dict.fromkeys(kernels), *(pack_kernel(kind) for kind in sorted(kinds)))


def packed_scratch(weights: Sequence[WeightSpec]) -> ScratchSize:
    """Scratch memory for the packed activations of all passes."""
    width = weights[0].shape[1]
    kinds = {weight.weight_layout.activations for weight in weights if _is_packed(weight)}
    return ScratchSize(
        max((MOST_ROWS * packed_buffer(kind, Buffer(width)).stride for kind in kinds), default=0)
    )


def write_packed(
    bound: Bound, kind: str, x: tuple[Argument, int], width: int, rows: int, place: int
) -> tuple[Argument, int]:
    """Pack the rows of x into scratch memory; x and the result are an address and a stride in bytes."""
    if kind == "fp32":
        return x
    stride = packed_buffer(kind, Buffer(width)).stride
    room = bound.scratch(rows * stride, place)
    arguments = (*x, room.data_ptr(), stride, width)
    bound.launch(Call(pack_kernel(kind), _grid(rows, chunks(width)), arguments, (), ()))
    return room.data_ptr(), stride


def multiply_in_passes(
    bound: Bound,
    weight: WeightSpec,
    packed: tuple[Argument, int],
    rows: int,
    y: tuple[Argument, int],
    bias: int = 0,
    residual: tuple[Argument, int] = (0, 0),
) -> None:
    """y = x W^T + bias (an address, or 0) + residual, where `packed` holds the packed activations of x.

    `packed`, y and `residual` are addresses with strides in bytes; a residual of 0 means none.
    """
    variant = linear_variant(weight.weight_layout, weight.tiles, weight.shape[1], bound.device.sm_count)
    blocks = -(-weight.tiles // variant.tiles)
    rest = [0] * (7 * (PARTS - 1))
    for first in range(0, rows, SMALL_BATCH):
        own, more, given = (
            bound.address(start) + first * stride if start else 0 for start, stride in (y, residual, packed)
        )
        part = (weight.address, own, y[1], bias, more, residual[1], weight.shape[0])
        arguments = (*part, *rest, given, packed[1], min(SMALL_BATCH, rows - first), weight.shape[1])
        bound.launch(Call(variant.kernel, _grid(blocks), arguments, (), ()))


def _grid(x: int, y: int = 1) -> Blocks:
    return lambda _: (x, y, 1)
