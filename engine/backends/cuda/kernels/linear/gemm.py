"""Products of more than eight rows: a few more use the eight-row kernels (`gemm_passes`), others torch.

torch multiplies in bf16, fp16 or float32 with float32 sums. Plain matrices are used in place;
others are first unpacked to fp16, a piece at a time, into shared scratch memory. x is rounded
to bf16, or to fp16 with rows scaled by a power of two only where necessary, so that results
rarely need scaling back, or stays float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels.linear.gemm_passes import (
    MOST_ROWS,
    multiply_in_passes,
    packed_scratch,
    passes_kernels,
    short_passes,
    write_packed,
)
from engine.backends.cuda.kernels.linear.gemm_rows import (
    after_kernel,
    before_kernel,
    expert_biases_kernel,
    fp16_rows_kernel,
    row_blocks,
)
from engine.backends.cuda.kernels.linear.interface import UNPACK_COLUMNS
from engine.backends.cuda.kernels.linear.linear import Part
from engine.backends.cuda.kernels.linear.variants import unpack_kernel
from engine.backends.cuda.kernels.packed_activations import padded
from engine.backends.cuda.layouts.layout import ROWS
from engine.backends.cuda.layouts.plain import Plain
from engine.backends.cuda.lowering.call import Argument, Blocks, Bound, Call, ScratchSize, TorchCall
from engine.backends.cuda.runtime.device import Device
from engine.backends.cuda.weight import CudaWeight, ExpertTable, WeightSpec
from engine.backends.graph.buffers import Buffer
from engine.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import torch

UNPACKED_BYTES = 512 << 20
"""Maximum size of the unpacked part of a matrix."""
_WEIGHT, _X, _FACTORS, _CHOSEN, _RESULT, _PACKED = range(6)
"""Places of scratch memory."""


def dense_type(weight: WeightSpec) -> str:
    """The type the matrix is multiplied in: "bf16", "fp16" or "fp32"."""
    return weight.weight_layout.name if isinstance(weight.weight_layout, Plain) else "fp16"


def _tiles_at_once(weight: WeightSpec) -> int:
    """Tiles of the matrix that are unpacked at once."""
    return max(1, min(weight.tiles, UNPACKED_BYTES // (2 * ROWS * padded(weight.shape[1]))))


def product_scratch(weight: WeightSpec) -> int:
    """Bytes of scratch memory that products of a large batch unpack this matrix into; 0 if plain."""
    return (
        0
        if isinstance(weight.weight_layout, Plain)
        else 2 * ROWS * padded(weight.shape[1]) * _tiles_at_once(weight)
    )


def _scratch_sizes(
    weights: Sequence[WeightSpec], copies: int, experts: bool = False
) -> dict[int, ScratchSize]:
    """Scratch memory for products of a large batch: unpacked matrices, and for each row x in another type and
    its factor; for experts also one expert's rows and results.
    """
    scratch_sizes = {
        _WEIGHT: ScratchSize(max(product_scratch(weight) for weight in weights)),
        _PACKED: packed_scratch(weights),
    }
    columns, kinds = padded(weights[0].shape[1]), {dense_type(weight) for weight in weights}
    if kinds != {"fp32"}:
        scratch_sizes[_X] = ScratchSize(row=copies * 2 * columns)
    if "fp16" in kinds:
        scratch_sizes[_FACTORS] = ScratchSize(row=copies * 4)
    if experts:
        short = 0 if kinds == {"fp32"} else MOST_ROWS * 4 * columns
        scratch_sizes[_CHOSEN] = ScratchSize(short, row=copies * columns * (4 if "fp32" in kinds else 2))
        scratch_sizes[_RESULT] = ScratchSize(row=copies * 4 * weights[0].shape[0])
    return scratch_sizes


def scratch_sizes(weights: Sequence[WeightSpec], width: int) -> dict[int, ScratchSize]:
    """Scratch memory for products of parts of rows that are `width` columns wide."""
    kind = dense_type(weights[0])
    sizes = {_WEIGHT: ScratchSize(max(product_scratch(weight) for weight in weights))}
    if kind != "fp32":
        sizes[_X] = ScratchSize(row=2 * padded(width))
    if kind == "fp16":
        sizes[_FACTORS] = ScratchSize(row=4)
    return sizes


def _dtype(kind: str) -> Any:
    import torch

    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[kind]


@dataclass(frozen=True)
class _Input:
    """Rows of x in the type `kind` of the matrices: `rows` (T, K).

    `factors` float32 (T,) are what the products are multiplied by, None if all are 1.
    """

    kind: str
    rows: torch.Tensor
    factors: torch.Tensor | None


def converted(bound: Bound, x: Buffer, kind: str, rows: int) -> _Input:
    """Convert x to `kind` in scratch memory."""
    import torch

    whole = padded(x.width)
    if kind == "fp32":
        with bound.device.torch_work():
            return _Input(kind, bound.tensor(x), None)
    scratch = bound.scratch(2 * whole * rows, _X)[: 2 * whole * rows]
    x_rows = scratch.view(_dtype(kind)).view(rows, whole)[:, : x.width]
    if kind == "bf16":
        with bound.device.torch_work():
            x_rows.copy_(bound.tensor(x))
        return _Input(kind, x_rows, None)
    factors = bound.scratch(4 * rows, _FACTORS)[: 4 * rows].view(torch.float32)
    arguments = (x, x.stride, scratch.data_ptr(), 2 * whole, factors.data_ptr(), x.width)
    bound.launch(Call(fp16_rows_kernel(), row_blocks(rows), arguments, (x,), ()))
    return _Input(kind, x_rows, factors)


def _multiply(device: Device, x: torch.Tensor, rows: torch.Tensor, y: torch.Tensor, add: bool) -> None:
    """y (T, n) float32 = x (T, K) times rows (n, K) transposed, with float32 sums; `add` adds to y."""
    import torch

    if device.torch_device.type != "cuda":
        product = x.float() @ rows.float().T
        y.copy_(y + product if add else product)
    elif x.dtype == torch.float32:
        torch.addmm(y, x, rows.T, out=y) if add else torch.mm(x, rows.T, out=y)
    elif add:
        torch.addmm(y, x, rows.T, out_dtype=torch.float32, out=y)
    else:
        torch.mm(x, rows.T, out_dtype=torch.float32, out=y)


def product(bound: Bound, weight: WeightSpec, x: torch.Tensor, y: torch.Tensor, add: bool) -> None:
    """y = x W^T, in pieces if the matrix is unpacked; `add` adds to y."""
    assert isinstance(weight, CudaWeight)
    n, k = weight.shape
    whole = padded(k)
    if isinstance(weight.weight_layout, Plain):
        with bound.device.torch_work():
            dense = (
                weight.data[: weight.nbytes].view(_dtype(weight.weight_layout.name)).view(-1, whole)[:n, :k]
            )
            _multiply(bound.device, x, dense, y, add)
        return
    unpack = unpack_kernel(weight.weight_layout)
    assert unpack is not None
    step = _tiles_at_once(weight)
    scratch = bound.scratch(product_scratch(weight), _WEIGHT)
    for first in range(0, weight.tiles, step):
        tiles = min(step, weight.tiles - first)
        chunks = -(-whole // UNPACK_COLUMNS)
        arguments = (weight.address, first, scratch.data_ptr(), 2 * whole, k)
        bound.launch(Call(unpack, _grid(chunks, tiles), arguments, (), ()))
        with bound.device.torch_work():
            dense = scratch[: product_scratch(weight)].view(_dtype("fp16")).view(-1, whole)
            last = min(n - first * ROWS, tiles * ROWS)
            _multiply(bound.device, x, dense[:last, :k], y[:, first * ROWS : first * ROWS + last], add)


def _kernels(weights: Sequence[WeightSpec], sm_count: int) -> list[Kernel]:
    """The kernels that unpack the weights, convert rows to fp16 for them, and multiply in passes."""
    unpacking = [unpack_kernel(w.weight_layout) for w in weights]
    conversions = [fp16_rows_kernel()] if any(dense_type(w) == "fp16" for w in weights) else []
    unique = dict.fromkeys(kernel for kernel in unpacking if kernel is not None)
    return [*conversions, *unique, *passes_kernels(weights, sm_count)]


def _grid(chunks: int, tiles: int) -> Blocks:
    """A grid that does not depend on the rows."""
    return lambda _: (chunks, tiles, 1)


def product_call(parts: Sequence[Part], x: Buffer, sm_count: int) -> TorchCall:
    """What `linear.linear_call` is for a small batch, for more than eight rows; x are float32 rows.

    Matrices may have different weight layouts.
    """

    def run(bound: Bound) -> None:
        inputs: dict[str, _Input] = {}
        packed: dict[str, tuple[Argument, int]] = {}
        long = []
        for part in parts:
            if not short_passes(part.weight, bound.rows):
                long.append(part)
                continue
            kind = part.weight.weight_layout.activations
            if kind not in packed:
                packed = {kind: write_packed(bound, kind, (x, x.stride), x.width, bound.rows, _PACKED)}
            residual = (0, 0) if part.residual is None else (part.residual, part.residual.stride)
            y = part.y, part.y.stride
            multiply_in_passes(bound, part.weight, packed[kind], bound.rows, y, part.bias_address, residual)
        for part in sorted(long, key=lambda part: dense_type(part.weight)):
            kind = dense_type(part.weight)
            if kind not in inputs:
                inputs = {kind: converted(bound, x, kind, bound.rows)}
            _part(bound, part, inputs[kind])

    residuals = [part.residual for part in parts if part.residual is not None]
    reads = (x, *residuals, *(part.weight for part in parts))
    weights = [part.weight for part in parts]
    scratch_sizes, writes = _scratch_sizes(weights, x.copies), tuple(part.y for part in parts)
    kernels = _kernels(weights, sm_count)
    kernels += (
        [before_kernel()] if any(part.bias_address or part.residual is not None for part in parts) else []
    )
    kernels += [after_kernel()] if fp16_rows_kernel() in kernels else []
    return TorchCall(run, reads, writes, tuple(kernels), x.on_logit_rows, x.copies, scratch_sizes)


def _part(bound: Bound, part: Part, x: _Input) -> None:
    rows, y = bound.rows, part.y
    add = bool(part.bias_address) or part.residual is not None
    factors = 0 if x.factors is None else x.factors.data_ptr()
    if add:
        # The residual and the bias are put into y before the product, divided by the row's factor, since the
        # result is multiplied by it.
        residual: tuple[Argument, Argument] = (
            (0, 0) if part.residual is None else (part.residual, part.residual.stride)
        )
        arguments = (y, y.stride, *residual, part.bias_address, factors, y.width)
        bound.launch(Call(before_kernel(), row_blocks(rows), arguments, (), (y,)))
    with bound.device.torch_work():
        target = bound.tensor(y)
    product(bound, part.weight, x.rows, target, add)
    if factors:
        bound.launch(Call(after_kernel(), row_blocks(rows), (y, y.stride, factors, y.width), (), (y,)))


def expert_product_call(
    table: ExpertTable,
    x: Buffer,
    ids: Buffer,
    y: Buffer,
    sm_count: int,
    bias_address: int = 0,
    bias_stride: int = 0,
) -> TorchCall:
    """What `linear.expert_call` is for a small batch, for more than eight rows.

    Row r of y = row r of x (`copies`: experts per row) times the matrix of the expert in ids (rows, used),
    int32, plus that expert's bias, float32 at an address, `bias_stride` bytes a row. Rows of experts with
    other weight layouts are not written. The ids are copied to the host, which waits for the device.
    """
    assert x.copies == y.copies == ids.width
    kind, weights = dense_type(table.first), table.weights

    def run(bound: Bound) -> None:
        import torch

        with bound.device.torch_work():
            shape = (bound.rows // ids.width, ids.width)
            chosen = bound.tensor(ids).view(torch.int32).reshape(shape).cpu().numpy().reshape(-1)
            order = np.argsort(chosen, kind="stable")
            places = torch.from_numpy(order).to(bound.device.torch_device)
        ends = np.searchsorted(chosen[order], np.arange(len(weights) + 1))
        rows: _Input | None = None
        for e, weight in enumerate(weights):
            count = int(ends[e + 1] - ends[e])
            if weight.weight_layout is not table.first.weight_layout or not count:
                continue
            own = places[int(ends[e]) : int(ends[e + 1])]
            if short_passes(weight, count):
                _expert_in_passes(bound, weight, x, own, y)
            else:
                rows = rows or converted(bound, x, kind, bound.rows)
                _expert(bound, weight, rows, own, y)
        if bias_address:
            arguments = (
                y,
                y.stride,
                ids,
                ids.stride,
                ids.width,
                bias_address,
                bias_stride,
                y.width,
                table.address,
            )
            bound.launch(Call(expert_biases_kernel(), row_blocks(bound.rows), arguments, (), (y,)))

    kernels = _kernels([table.first], sm_count) + ([expert_biases_kernel()] if bias_address else [])
    scratch_sizes = _scratch_sizes([table.first], x.copies, experts=True)
    return TorchCall(run, (x, ids, table), (y,), tuple(kernels), x.on_logit_rows, x.copies, scratch_sizes)


def _expert_in_passes(bound: Bound, weight: WeightSpec, x: Buffer, places: torch.Tensor, y: Buffer) -> None:
    """`_expert` for so few rows that `short_passes` is not 0; x are the float32 rows."""
    import torch

    count, width, stride = len(places), weight.shape[0], x.stride
    with bound.device.torch_work():
        rows = bound.tensor(x).as_strided((bound.rows, stride // 4), (stride // 4, 1))
        room = (
            bound.scratch(count * stride, _CHOSEN)[: count * stride]
            .view(torch.float32)
            .view(count, stride // 4)
        )
        torch.index_select(rows, 0, places, out=room)
    packed = write_packed(
        bound, weight.weight_layout.activations, (room.data_ptr(), stride), x.width, count, _PACKED
    )
    result = (
        bound.scratch(4 * count * width, _RESULT)[: 4 * count * width].view(torch.float32).view(count, width)
    )
    multiply_in_passes(bound, weight, packed, count, (result.data_ptr(), 4 * width))
    with bound.device.torch_work():
        bound.tensor(y).index_copy_(0, places, result)


def _expert(bound: Bound, weight: WeightSpec, x: _Input, places: torch.Tensor, y: Buffer) -> None:
    """The rows of y at `places` = the rows of x there times one expert's matrix."""
    import torch

    count, width = len(places), weight.shape[0]
    with bound.device.torch_work():
        columns, size = x.rows.shape[1], x.rows.element_size()
        room = bound.scratch(count * columns * size, _CHOSEN)[: count * columns * size]
        some = torch.index_select(x.rows, 0, places, out=room.view(x.rows.dtype).view(count, columns))
        result = (
            bound.scratch(4 * count * width, _RESULT)[: 4 * count * width]
            .view(torch.float32)
            .view(count, width)
        )
    product(bound, weight, some, result, False)
    with bound.device.torch_work():
        if x.factors is not None:
            result.mul_(x.factors.index_select(0, places)[:, None])
        bound.tensor(y).index_copy_(0, places, result)
