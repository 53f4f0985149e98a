"""Attention of a large batch: gathers the visible keys and values as plain numbers and multiplies with torch.

Layers without soft cap, sinks, slopes, biases, a latent, an effective window or a float32 cache use torch's
flash attention in fp16 if the device supports it for their heads. All others use `prefill_pieces`: torch's
float32 attention would hold the scores of all positions at once, gigabytes for long prompts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.backends.base import AttentionShape
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels.attention import prefill_pieces
from engine.backends.cuda.kernels.kv_write.gather import gather_call, gather_kernel
from engine.backends.cuda.kernels.rows import THREADS as COPY_THREADS
from engine.backends.cuda.kernels.rows import columns_kernel
from engine.backends.cuda.kv_cache import KEYS, VALUES, touched
from engine.backends.cuda.lowering.call import Bound, Call, ScratchSize, TorchCall
from engine.backends.graph.buffers import Buffer
from engine.backends.kv_formats import CacheType
from engine.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import torch

_SINKS = prefill_pieces.PLACES
_KEYS, _VALUES, _QUERIES, _SLOPES, _PROFILES = range(_SINKS + 1, _SINKS + 6)
"""Places of scratch memory."""
Gather = Callable[[Bound, int, int, bool], tuple["torch.Tensor", "torch.Tensor"]]


@dataclass(frozen=True)
class Bias:
    """A `RelativeBias` on a device: `weights` (T, H * count), and the address of profiles (count, extent)."""

    weights: Buffer
    profiles: int
    count: int
    extent: int


def prefill_attention(
    kind: CacheType,
    addresses: tuple[int, int],
    q: Buffer,
    y: Buffer,
    shape: AttentionShape,
    sinks: int | Buffer,
    flash: bool,
    slopes: int = 0,
    bias: Bias | None = None,
) -> TorchCall:
    """y = attention of q (T, H * D) over a layer's keys and values at `addresses`, for any number of rows.

    The rows' own keys and values must be written. `sinks` is the address of H float32, or 0, or those of each
    row (T, H); `slopes` is the address of `attention.slope_pairs`; `flash` says whether the device
    `has_flash` for this shape.
    """
    fp16 = flash and "fp32" not in (kind.keys, kind.values) and not (shape.soft_cap or sinks or bias)
    gather = _gatherer(kind, addresses, shape)

    def run(bound: Bound) -> None:
        count = bound.position + bound.rows
        whole = fp16 and not 0 < shape.window < count
        sink = _sinks(bound, sinks, shape.heads)
        lean = _copied(bound, slopes, 2 * shape.heads, _SLOPES)[::2] if slopes else None
        made = _bias(bound, bias, shape) if bias else None
        if whole:
            keys, values = gather(bound, 0, count, True)
        with bound.device.torch_work():
            query = bound.tensor(q).view(-1, shape.heads, shape.head_dim)
            out = bound.tensor(y).view(-1, shape.heads, shape.value_dim)
            if whole:
                room = bound.scratch(2 * query.numel(), _QUERIES)[: 2 * query.numel()]
                out.copy_(fused(query, keys, values, shape.scale, room, causal=not shape.bidirectional))
                return
            work = prefill_pieces.Softmax(query, out, shape, bound.position, bound.scratch, sink, lean, made)
        for first, size in work.pieces():
            keys, values = gather(bound, first, size, False)
            with bound.device.torch_work():
                work.take(first, keys, values)
        with bound.device.torch_work():
            work.end()

    own = (sinks,) if isinstance(sinks, Buffer) else ()
    kernels, scratch_sizes = _needs(kind, shape, fp16, bool(sinks) and not own, bool(slopes), bias)
    reads = (q, *touched(addresses), *((bias.weights,) if bias else ()), *own)
    return TorchCall(run, reads, (y,), tuple(kernels), q.on_logit_rows, q.copies, scratch_sizes)


def _sinks(bound: Bound, sinks: int | Buffer, heads: int) -> torch.Tensor | None:
    """Sinks (1, H) or (T, H), or none."""
    if isinstance(sinks, Buffer):
        with bound.device.torch_work():
            return bound.tensor(sinks)
    return _copied(bound, sinks, heads, _SINKS)[None] if sinks else None


def _bias(bound: Bound, bias: Bias, shape: AttentionShape) -> prefill_pieces.Bias:
    """The weights (T, H, R) and profiles (R, extent) of a step."""
    profiles = _copied(bound, bias.profiles, bias.count * bias.extent, _PROFILES)
    with bound.device.torch_work():
        weights = bound.tensor(bias.weights).view(-1, shape.heads, bias.count)
    return weights, profiles.view(bias.count, bias.extent)


def _needs(
    kind: CacheType, shape: AttentionShape, fp16: bool, sinks: bool, slopes: bool, bias: Bias | None
) -> tuple[list[Kernel], dict[int, ScratchSize]]:
    """A call's kernels and scratch memory; `fp16` says whether it may use flash attention."""
    variants = [fp16] if fp16 and not shape.window else [False, fp16] if fp16 else [False]
    sides = ((KEYS, kind.keys), *(() if shape.latent else ((VALUES, kind.values),)))
    kernels = [gather_kernel(side, name, shape.head_dim, form) for side, name in sides for form in variants]
    scratch_sizes: dict[int, ScratchSize] = {}
    if sinks or slopes or bias:
        kernels.append(columns_kernel())
    if sinks:
        scratch_sizes[_SINKS] = ScratchSize(4 * shape.heads)
    if slopes:
        scratch_sizes[_SLOPES] = ScratchSize(8 * shape.heads)
    if bias:
        scratch_sizes[_PROFILES] = ScratchSize(4 * bias.count * bias.extent)
    if False in variants:
        sizes = (bias.count, bias.extent) if bias else None
        scratch_sizes |= prefill_pieces.scratch_sizes(shape, sizes)
    if fp16:
        scratch_sizes[_QUERIES] = ScratchSize(row=2 * shape.heads * shape.head_dim)
    number = shape.kv_heads * shape.head_dim
    for place in (_KEYS,) if shape.latent else (_KEYS, _VALUES):
        scratch_sizes[place] = ScratchSize(4 * number * prefill_pieces.PIECE)
        if fp16:
            most = 2 * number
            scratch_sizes[place] = (
                ScratchSize(max(scratch_sizes[place].fixed, most * shape.window))
                if shape.window
                else ScratchSize(position=most)
            )
    return kernels, scratch_sizes


def _gatherer(kind: CacheType, addresses: tuple[int, int], shape: AttentionShape) -> Gather:
    """A function that gathers a layer's keys and values."""

    def gather(bound: Bound, first: int, count: int, fp16: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values (count, G, D) of the positions from `first` on, in fp16 or float32."""
        import torch

        def side(side: str, name: str, address: int, place: int) -> torch.Tensor:
            room = bound.scratch(count * shape.kv_heads * shape.head_dim * (2 if fp16 else 4), place)
            bound.launch(gather_call(side, name, address, room.data_ptr(), shape, first, count, fp16=fp16))
            return room.view(torch.float16 if fp16 else torch.float32).view(
                count, shape.kv_heads, shape.head_dim
            )

        keys = side(KEYS, kind.keys, addresses[0], _KEYS)
        if shape.latent:
            return keys, keys[:, :, : shape.latent]
        return keys, side(VALUES, kind.values, addresses[1], _VALUES)

    return gather


def _copied(bound: Bound, address: int, count: int, place: int) -> torch.Tensor:
    """The `count` float32 at an address, copied into a tensor."""
    import torch

    room = bound.scratch(4 * count, place)
    arguments = (address, 0, 0, room.data_ptr(), 0, count)
    bound.launch(Call(columns_kernel(), lambda _: (1, -(-count // COPY_THREADS), 1), arguments, (), ()))
    return room.view(torch.float32)


def fused(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float, room: torch.Tensor,
    causal: bool = True,
) -> torch.Tensor:  # fmt: skip
    """Attention (T, H, D) with torch's fused kernel: query (T, H, D) float32, keys and values (S, G, D) fp16.

    The last T keys are the rows' own. `room` is memory for the queries in fp16. Unless it is `causal`, all
    rows see all keys.
    """
    import torch

    # Scaled before rounding: queries are large where scores are, and fp16 ends at 65504.
    short = torch.mul(query, scale, out=room.view(keys.dtype).view(query.shape))
    q, k, v = (part.transpose(0, 1)[None] for part in (short, keys, values))
    out: torch.Tensor
    if (len(query) < len(keys) or not causal) and query.device.type == "cuda":
        # What `causal_lower_right` ends in, without the checks that `has_flash` has made.
        out = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, is_causal=causal, scale=1.0)[0]
    else:
        from torch.nn.attention.bias import causal_lower_right

        bias = causal_lower_right(len(query), len(keys)) if causal else None
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, scale=1.0, enable_gqa=query.shape[1] > keys.shape[1]
        )
    return out[0].transpose(0, 1)
