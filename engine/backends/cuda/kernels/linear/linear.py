"""Products of one to eight rows as recorded calls: y = x W^T (+ bias) (+ residual), with up to three matrices
at once, or one for each row.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.cuda.kernels.linear.interface import PARTS
from engine.backends.cuda.kernels.linear.variants import embed_kernel, experts_variant, linear_variant
from engine.backends.cuda.lowering.call import Argument, Call, Runtime
from engine.backends.cuda.weight import ExpertTable, WeightSpec
from engine.backends.graph.buffers import Buffer
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Part:
    """One matrix of a launch: y = x W^T + bias + residual.

    `bias_address` is that of float32 (N,) on the device, 0 for none. y may be the residual.
    """

    weight: WeightSpec
    y: Buffer
    bias_address: int = 0
    residual: Buffer | None = None


def linear_call(parts: Sequence[Part], x_packed: Buffer, sm_count: int) -> Call:
    """One launch for one to three matrices of one weight layout that share x.

    `x_packed` holds the packed activations of x, of the kind `weight_layout.activations`.
    """
    first = parts[0].weight
    assert 1 <= len(parts) <= PARTS
    assert all(
        p.weight.weight_layout is first.weight_layout and p.weight.shape[1] == first.shape[1] for p in parts
    )
    assert x_packed.copies == 1
    variant = linear_variant(
        first.weight_layout, sum(p.weight.tiles for p in parts), first.shape[1], sm_count
    )
    arguments: list[Argument] = []
    for part in parts:
        assert part.y.width == part.weight.shape[0]
        residual: tuple[Argument, Argument] = (
            (0, 0) if part.residual is None else (part.residual, part.residual.stride)
        )
        arguments += [
            part.weight.address,
            part.y,
            part.y.stride,
            part.bias_address,
            *residual,
            part.weight.shape[0],
        ]
    arguments += [0] * (7 * (PARTS - len(parts)))
    arguments += [x_packed, x_packed.stride, Runtime.ROWS, first.shape[1]]
    blocks = sum(-(-p.weight.tiles // variant.tiles) for p in parts)
    residuals = [p.residual for p in parts if p.residual is not None]
    return Call(
        variant.kernel, lambda rows: (blocks, 1, 1), tuple(arguments),
        (x_packed, *residuals, *(p.weight for p in parts)), tuple(p.y for p in parts), x_packed.on_logit_rows,
    )  # fmt: skip


def expert_call(
    table: ExpertTable,
    x_packed: Buffer,
    ids: Buffer,
    y: Buffer,
    sm_count: int,
    bias_address: int = 0,
    bias_stride: int = 0,
) -> Call:
    """Each row of `x_packed` (`copies`: the experts per row) times its expert's matrix.

    Only experts of the table's weight layout are computed. `ids` are int32 (rows, used); y has as many copies
    as `x_packed`. `bias_address`: float32 (experts, N) on the device, 0 for none, `bias_stride` bytes a row.
    """
    first, used = table.first, ids.width
    assert x_packed.copies == y.copies == used
    assert y.width == first.shape[0]
    variant = experts_variant(first.weight_layout, first.tiles * used, first.shape[1], sm_count)
    arguments = (
        table.address, first.shape[0], y, y.stride, bias_address, bias_stride, ids, ids.stride, used,
        x_packed, x_packed.stride, first.shape[1],
    )  # fmt: skip
    blocks = -(-first.tiles // variant.tiles)
    return Call(
        variant.kernel,
        lambda rows: (blocks, rows, 1),
        arguments,
        (x_packed, ids, table),
        (y,),
        x_packed.on_logit_rows,
        x_packed.copies,
    )


def embed_call(weight: WeightSpec, y: Buffer, scale: float) -> Call:
    """y (rows, K) = scale times the matrix's rows of the step's token ids."""
    arguments = (weight.address, Runtime.TOKENS, y, y.stride, scale, weight.shape[1])
    return Call(embed_kernel(weight.weight_layout), lambda rows: (1, rows, 1), arguments, (weight,), (y,))
