"""Attention of many rows: keys and values that they see, gathered as dense numbers, and torch's products over them.

Layers that see everything before them go through torch's fused attention in fp16. Soft caps, sinks and windows that cut, and stores of
float32, take chunks of rows one after the other, in float32, with at most `SCORE_BYTES` of scores at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.backends.arena import Buffer
from engine.backends.base import AttentionShape
from engine.backends.cache_types import CacheType
from engine.backends.cuda.append_gather import gather_call, gather_kernel
from engine.backends.cuda.call import Bound, Call, TorchCall
from engine.backends.cuda.rows import THREADS as COPY_THREADS
from engine.backends.cuda.rows import columns_kernel
from engine.backends.cuda.store import KEYS, VALUES, touched

if TYPE_CHECKING:
    import torch

SCORE_BYTES = 128 << 20
"""Of scores in float32; their masks and exponentials take as much again."""
KEYS_PLACE, VALUES_PLACE, SINKS_PLACE = 0, 1, 2
"""Places of scratch memory."""


def prefill_attention(kind: CacheType, addresses: tuple[int, int], q: Buffer, y: Buffer, shape: AttentionShape, sinks: int) -> TorchCall:
    """y = attention of q (T, H * D) over a layer's keys and values at `addresses`, the rows' own among them; any number of rows.

    `sinks` is the address of H float32, or 0.
    """
    halves = "fp32" not in (kind.keys, kind.values)
    kernels = [gather_kernel(side, name, shape.head_dim, halves) for side, name in ((KEYS, kind.keys), (VALUES, kind.values))]

    def run(bound: Bound) -> None:
        first = max(0, bound.position - shape.window + 1) if shape.window else 0
        count = bound.position + bound.rows - first
        seen = []
        for side, name, address, place in ((KEYS, kind.keys, addresses[0], KEYS_PLACE), (VALUES, kind.values, addresses[1], VALUES_PLACE)):
            room = bound.scratch(count * shape.kv_heads * shape.head_dim * (2 if halves else 4), place)
            bound.launch(gather_call(side, name, address, room.data_ptr(), shape, first, count, halves=halves))
            seen.append(room)
        sink = _sinks(bound, sinks, shape.heads) if sinks else None
        with bound.device.torch_work():
            _attend(bound.tensor(q), bound.tensor(y), seen, halves, sink, shape)

    return TorchCall(run, (q, *touched(addresses)), (y,), (*kernels, columns_kernel()), q.on_logit_rows, q.copies)


def _sinks(bound: Bound, address: int, heads: int) -> torch.Tensor:
    """uint8: what lies at an address, as a tensor."""
    room = bound.scratch(4 * heads, SINKS_PLACE)
    arguments = (address, 0, 0, room.data_ptr(), 0, heads)
    bound.launch(Call(columns_kernel(), lambda _: (1, -(-heads // COPY_THREADS), 1), arguments, (), ()))
    return room


def _attend(
    q: torch.Tensor, y: torch.Tensor, seen: list[torch.Tensor], halves: bool, sinks: torch.Tensor | None, shape: AttentionShape
) -> None:
    """The products, by the way that the layer allows."""
    import torch

    number = torch.float16 if halves else torch.float32
    keys, values = (part.view(number).view(-1, shape.kv_heads, shape.head_dim) for part in seen)
    query = q.view(len(q), shape.heads, shape.head_dim)
    out = y.view(len(y), shape.heads, shape.head_dim)
    cut = shape.window and len(keys) > shape.window
    if halves and not (cut or shape.soft_cap or sinks is not None):
        out.copy_(fused(query, keys, values, shape.scale))
    else:
        chunked(query, keys, values, out, shape, None if sinks is None else sinks.view(torch.float32))


def fused(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
    """(T, H, D) by torch's fused attention: query (T, H, D) float32, keys and values (S, G, D) fp16, the last of them the rows' own."""
    import torch
    from torch.nn.attention.bias import causal_lower_right

    # Times the scale before they are rounded: queries are large where scores are, and fp16 ends at 65504.
    short = (query * scale).to(keys.dtype)
    q, k, v = (part.transpose(0, 1)[None] for part in (short, keys, values))
    ratio = query.shape[1] // keys.shape[1]
    bias = causal_lower_right(len(query), len(keys))
    out: torch.Tensor = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0, enable_gqa=ratio > 1)
    return out[0].transpose(0, 1)


def chunked(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor, shape: AttentionShape, sinks: torch.Tensor | None
) -> None:
    """The same into `out` in float32, with everything that `Ops.attention` knows."""
    import torch

    rows, heads, dim = query.shape
    groups, before = keys.shape[1], len(keys) - rows
    at = 0
    while at < rows:
        reach = len(keys) if not shape.window else shape.window
        count = max(1, min(rows - at, SCORE_BYTES // (4 * heads * min(len(keys), reach + 512)), 512 if shape.window else rows))
        low = max(0, before + at - shape.window + 1) if shape.window else 0
        high = before + at + count
        k, v = (part[low:high].transpose(0, 1).float() for part in (keys, values))  # (G, S, D)
        part = (query[at : at + count] * shape.scale).view(count, groups, -1, dim).permute(1, 2, 0, 3)  # (G, R, t, D)
        scores = (part.reshape(groups, -1, dim) @ k.transpose(1, 2)).view(groups, -1, count, high - low)
        if shape.soft_cap:
            scores = scores.div_(shape.soft_cap).tanh_().mul_(shape.soft_cap)
        own = torch.arange(before + at, high, device=query.device)[:, None]
        places = torch.arange(low, high, device=query.device)[None]
        unseen = places > own
        if shape.window:
            unseen |= places <= own - shape.window
        scores.masked_fill_(unseen, -torch.inf)
        top = scores.amax(-1, keepdim=True)
        sink = None if sinks is None else sinks.view(groups, -1, 1, 1)
        top = top if sink is None else torch.maximum(top, sink)
        weights = scores.sub_(top).exp_()
        total = weights.sum(-1, keepdim=True)
        total = total if sink is None else total + (sink - top).exp()
        result = (weights.view(groups, -1, high - low) @ v).view(groups, -1, count, dim) / total
        out[at : at + count] = result.permute(2, 0, 1, 3).reshape(count, heads, dim)
        at += count


