"""Attention of a large batch in float32, piece by piece over the positions, in bounded scratch memory.

For each row it keeps the highest score so far, the sum of the exponentials relative to it, and the weighted
sum of values; a piece with a higher score scales both sums down. Source: Milakov and Gimelshein 2018, "Online
normalizer calculation for softmax", algorithm 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from engine.backends.base import AttentionShape
from engine.backends.cuda.lowering.call import ScratchSize

if TYPE_CHECKING:
    import torch

PIECE = 1024
"""Positions of a piece."""
ROWS_AT_ONCE = 512
"""Maximum number of rows whose scores over a piece are computed at once."""
SCORE_BYTES = 128 << 20
"""Maximum size of these scores; with many heads fewer rows are computed at once."""
_FLOOR = -1e30
"""The initial highest score of a row: below all scores, and finite, so that no difference is NaN."""
_SCORES, _HEADS, _STATE, _MASKS, _PLACES, _PROFILES, _BIASES = range(7)
PLACES = 7
"""Number of scratch places used, from 0 on."""
Bias = tuple["torch.Tensor", "torch.Tensor"]
"""The weights (T, H, R) and profiles (R, extent) of a `RelativeBias`."""


def _rows_at_once(shape: AttentionShape, biased: bool = False) -> int:
    """With biases, which take as much memory as scores, half as many."""
    return max(1, min(ROWS_AT_ONCE, SCORE_BYTES // (4 * shape.heads * PIECE)) // (2 if biased else 1))


def scratch_sizes(shape: AttentionShape, profiles: tuple[int, int] | None = None) -> dict[int, ScratchSize]:
    """Scratch memory for everything except the gathered pieces; `profiles` are the sizes of those of a
    `RelativeBias`.
    """
    rows = _rows_at_once(shape, profiles is not None)
    sizes = {
        _SCORES: ScratchSize(4 * shape.heads * rows * PIECE),
        _HEADS: ScratchSize(4 * shape.heads * rows * shape.head_dim),
        _STATE: ScratchSize(row=4 * 4 * shape.heads),
        _MASKS: ScratchSize(rows * PIECE),
    }
    if shape.slopes:
        sizes[_PLACES] = ScratchSize(4 * PIECE * (shape.heads if shape.rounded_slopes else rows))
    if profiles is not None:
        count, extent = profiles
        sizes[_PROFILES] = ScratchSize(4 * count * (extent + 2 * rows))
        sizes[_BIASES] = ScratchSize(4 * shape.heads * rows * (rows + PIECE))
    return sizes


class Softmax:
    """Attention of `query` (T, H, D) float32, at positions from `position` on, into `out` (T, H, Dv).

    `scratch` gives memory as `Bound.scratch` does, in the sizes of `scratch_sizes`. `sinks` are float32
    scores (1 or T, H) that the rows see and that have no value, or None, `slopes` H float32 of ALiBi, or
    None, and so is `bias`.
    """

    def __init__(
        self, query: torch.Tensor, out: torch.Tensor, shape: AttentionShape, position: int,
        scratch: Callable[[int, int], torch.Tensor], sinks: torch.Tensor | None,
        slopes: torch.Tensor | None = None, bias: Bias | None = None,
    ) -> None:  # fmt: skip
        import torch

        self._query, self._out, self._shape, self._position, self._scratch = (
            query,
            out,
            shape,
            position,
            scratch,
        )
        self._slopes, self._bias = slopes, bias
        self._at_once = _rows_at_once(shape, bias is not None)
        self._profiles = None if bias is None else self._padded(bias[1])
        rows, groups = len(query), shape.kv_heads
        size = 4 * 4 * shape.heads * rows
        state = scratch(size, _STATE)[:size].view(torch.float32).view(4, groups, -1, rows, 1)
        self._top, self._total, self._new, self._sum = state
        if sinks is None:
            self._top.fill_(_FLOOR)
        else:
            self._top.copy_(sinks.view(len(sinks), groups, -1).permute(1, 2, 0)[..., None])
        self._total.fill_(0 if sinks is None else 1)
        out.zero_()

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Yield the first position and the length of each piece that some row sees."""
        first, end = self._first(self._position), self._position + len(self._query)
        return ((start, min(PIECE, end - start)) for start in range(first, end, PIECE))

    def _first(self, own: int) -> int:
        """The first position that the row at this one sees."""
        window = self._shape.window
        if self._shape.chunked:
            return own - own % window
        return max(0, own - window + 1) if window else 0

    def _end(self, own: int) -> int:
        """The position after the last one that the row at this one sees."""
        shape, end = self._shape, self._position + len(self._query)
        if not shape.bidirectional:
            return own + 1
        return min(end, own + shape.window) if shape.window and not shape.backward_window else end

    def take(self, first: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Add a piece: keys (S, G, D) and values (S, G, Dv) float32 of positions from `first` on."""
        step = self._at_once
        for start in range(0, len(self._query), step):
            stop = min(start + step, len(self._query))
            low = max(first, self._first(self._position + start))
            high = min(first + len(keys), self._end(self._position + stop - 1))
            if low < high:
                self._rows(
                    start, stop, low, keys[low - first : high - first], values[low - first : high - first]
                )

    def _rows(self, start: int, stop: int, low: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Add positions from `low` on for the rows start .. stop - 1. Some rows may see only part of them."""
        import torch

        shape, rows, seen = self._shape, stop - start, len(keys)
        groups, dim, value_dim = shape.kv_heads, shape.head_dim, shape.value_dim
        each = shape.heads // groups
        heads = self._room((groups, each, rows, dim), _HEADS)
        torch.mul(
            self._query[start:stop].view(rows, groups, each, dim).permute(1, 2, 0, 3), shape.scale, out=heads
        )
        scores = self._room((groups, each * rows, seen), _SCORES)
        torch.bmm(heads.view(groups, -1, dim), keys.permute(1, 2, 0), out=scores)
        if shape.soft_cap:
            scores.div_(shape.soft_cap).tanh_().mul_(shape.soft_cap)
        scores = scores.view(groups, each, rows, seen)
        if self._slopes is not None:
            self._lean(scores, self._slopes.view(groups, each, 1, 1), self._position + start, low)
        if self._bias is not None:
            self._add_biases(scores, self._bias[0][start:stop], self._position + start, low)
        self._hide(scores, self._position + start, low)
        top, total, new, sums = (
            part[:, :, start:stop] for part in (self._top, self._total, self._new, self._sum)
        )
        torch.amax(scores, -1, keepdim=True, out=new)
        torch.maximum(top, new, out=new)
        scores.sub_(new).exp_()
        factor = top.sub_(new).exp_()
        torch.sum(scores, -1, keepdim=True, out=sums)
        total.mul_(factor).add_(sums)
        found = self._room((groups, each, rows, value_dim), _HEADS)
        torch.bmm(
            scores.view(groups, -1, seen), values.transpose(0, 1), out=found.view(groups, -1, value_dim)
        )
        out = self._out[start:stop].view(rows, groups, each, value_dim).permute(1, 2, 0, 3)
        out.mul_(factor).add_(found)
        top.copy_(new)

    def _lean(self, scores: torch.Tensor, slopes: torch.Tensor, position: int, low: int) -> None:
        """Add ALiBi's part; `position` is that of the first row, `low` that of the first score."""
        import torch

        rows, seen = scores.shape[2:]
        places = torch.arange(low, low + seen, device=scores.device)
        if self._shape.rounded_slopes:
            products = self._room((*slopes.shape[:3], seen), _PLACES)
            torch.mul(slopes, places.bfloat16().float(), out=products)
            scores.add_(products.bfloat16().float(), alpha=self._shape.rounded_slopes)
            return
        own = torch.arange(position, position + rows, device=scores.device)
        away = self._room((rows, seen), _PLACES)
        away.copy_(places[None] - own[:, None])
        torch.addcmul(scores, slopes, away, out=scores)

    def _padded(self, profiles: torch.Tensor) -> torch.Tensor:
        """The profiles from the furthest distance to 0, and as many zeros before and after as rows."""
        count, extent = profiles.shape
        room = self._room((count, extent + 2 * self._at_once), _PROFILES)
        room.zero_()[:, self._at_once : self._at_once + extent] = profiles.flip(1)
        return room

    def _add_biases(self, scores: torch.Tensor, weights: torch.Tensor, position: int, low: int) -> None:
        """Add biases of `weights` (T, H, R); `position` is that of the first row, `low` that of the first
        score.

        Row t of the products has the distances from that of the last row to the first place on, so its own
        begin rows - 1 - t further: the rows' own are a view whose rows are one number shorter.
        """
        import torch

        assert self._profiles is not None
        groups, each, rows, seen = scores.shape
        extent = self._profiles.shape[1] - 2 * self._at_once
        first, end = max(low, position - extent + 1), min(low + seen, position + rows)
        if first >= end:
            return
        width, furthest = rows - 1 + end - first, position + rows - 1 - first
        begin = self._at_once + extent - 1 - furthest
        made = self._room((rows, groups * each, width), _BIASES)
        torch.matmul(weights, self._profiles[:, begin : begin + width], out=made)
        own = made.as_strided(
            (groups, each, rows, end - first), (each * width, width, groups * each * width - 1, 1),
            made.storage_offset() + rows - 1,
        )  # fmt: skip
        scores[..., first - low : end - low].add_(own)

    def _hide(self, scores: torch.Tensor, position: int, low: int) -> None:
        """Set the scores of positions that a row does not see to minus infinity.

        `position` is that of the first row, `low` that of the first score.
        """
        import torch

        rows, seen = scores.shape[2:]
        after, before = low + seen > self._end(position), low < self._first(position + rows - 1)
        own = torch.arange(position, position + rows, device=scores.device)[:, None]
        places = torch.arange(low, low + seen, device=scores.device)[None]
        masks = self._scratch(rows * seen, _MASKS)[: rows * seen].view(torch.bool).view(rows, seen)
        window = self._shape.window
        if after:
            last = own + (window - 1) if self._shape.bidirectional else own
            scores.masked_fill_(torch.gt(places, last, out=masks), -torch.inf)
        if before:
            first = own - own % window if self._shape.chunked else own - (window - 1)
            scores.masked_fill_(torch.lt(places, first, out=masks), -torch.inf)

    def _room(self, sizes: tuple[int, ...], place: int) -> torch.Tensor:
        """float32 of this shape in scratch memory."""
        import torch

        size = 4 * math.prod(sizes)
        return self._scratch(size, place)[:size].view(torch.float32).view(sizes)

    def end(self) -> None:
        """Divide by the sums: `out` is now the attention."""
        rows, groups = len(self._query), self._shape.kv_heads
        self._out.view(rows, groups, -1, self._shape.value_dim).permute(1, 2, 0, 3).div_(self._total)
