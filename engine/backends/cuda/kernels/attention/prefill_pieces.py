"""Attention of many rows in float32, a piece of the positions after the other, in memory whose size no prompt
changes.

Each row keeps the highest score so far, the sum of exponentials below it, and the values' sum under them; a
piece with a higher score scales the two down. Source: Milakov and Gimelshein 2018, "Online normalizer
calculation for softmax", algorithm 3.
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
"""Rows whose scores over a piece are had at a time."""
SCORE_BYTES = 128 << 20
"""Of these scores at most; of models with many heads, scores of fewer rows are had at a time."""
_FLOOR = -1e30
"""Stands for the highest score of a row that has seen nothing: below all scores, and minus infinity less it
is no NaN."""
_SCORES, _HEADS, _STATE, _MASKS = range(4)
PLACES = 4
"""Places of scratch memory that are taken, from 0 on."""


def _rows_at_once(shape: AttentionShape) -> int:
    return max(1, min(ROWS_AT_ONCE, SCORE_BYTES // (4 * shape.heads * PIECE)))


def scratch_sizes(shape: AttentionShape) -> dict[int, ScratchSize]:
    """Scratch memory of all of it but for the gathered pieces."""
    rows = _rows_at_once(shape)
    return {
        _SCORES: ScratchSize(4 * shape.heads * rows * PIECE),
        _HEADS: ScratchSize(4 * shape.heads * rows * shape.head_dim),
        _STATE: ScratchSize(row=4 * 4 * shape.heads),
        _MASKS: ScratchSize(rows * PIECE),
    }


class Softmax:
    """The attention of `query` (T, H, D) float32, rows at positions from `position` on, into `out` of the
    same shape.

    `scratch` gives memory as `Bound.scratch` does, by the `scratch_sizes`; `sinks` are H float32, scores that
    all rows see and that have no value.
    """

    def __init__(
        self, query: torch.Tensor, out: torch.Tensor, shape: AttentionShape, position: int,
        scratch: Callable[[int, int], torch.Tensor], sinks: torch.Tensor | None,
    ) -> None:  # fmt: skip
        import torch

        self._query, self._out, self._shape, self._position, self._scratch = (
            query,
            out,
            shape,
            position,
            scratch,
        )
        rows, groups = len(query), shape.kv_heads
        size = 4 * 4 * shape.heads * rows
        state = scratch(size, _STATE)[:size].view(torch.float32).view(4, groups, -1, rows, 1)
        self._top, self._total, self._new, self._sum = state
        self._top.fill_(_FLOOR) if sinks is None else self._top.copy_(sinks.view(groups, -1, 1, 1))
        self._total.fill_(0 if sinks is None else 1)
        out.zero_()

    def pieces(self) -> Iterator[tuple[int, int]]:
        """First position and length of each piece that some row sees."""
        window, end = self._shape.window, self._position + len(self._query)
        first = max(0, self._position - window + 1) if window else 0
        return ((start, min(PIECE, end - start)) for start in range(first, end, PIECE))

    def take(self, first: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Go on with a piece: keys and values (S, G, D) float32 of positions from `first` on."""
        window, step = self._shape.window, _rows_at_once(self._shape)
        for start in range(0, len(self._query), step):
            stop = min(start + step, len(self._query))
            low = max(first, self._position + start - window + 1) if window else first
            high = min(first + len(keys), self._position + stop)
            if low < high:
                self._rows(
                    start, stop, low, keys[low - first : high - first], values[low - first : high - first]
                )

    def _rows(self, start: int, stop: int, low: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Some rows over positions from `low` on, of which each of the rows sees some, or later rows do."""
        import torch

        shape, rows, seen = self._shape, stop - start, len(keys)
        groups, dim = shape.kv_heads, shape.head_dim
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
        torch.bmm(scores.view(groups, -1, seen), values.transpose(0, 1), out=heads.view(groups, -1, dim))
        out = self._out[start:stop].view(rows, groups, each, dim).permute(1, 2, 0, 3)
        out.mul_(factor).add_(heads)
        top.copy_(new)

    def _hide(self, scores: torch.Tensor, position: int, low: int) -> None:
        """Minus infinity for positions from `low` on that rows from `position` on do not see."""
        import torch

        rows, seen = scores.shape[2:]
        window = self._shape.window
        after, before = low + seen - 1 > position, window > 0 and low <= position + rows - 1 - window
        own = torch.arange(position, position + rows, device=scores.device)[:, None]
        places = torch.arange(low, low + seen, device=scores.device)[None]
        masks = self._scratch(rows * seen, _MASKS)[: rows * seen].view(torch.bool).view(rows, seen)
        if after:
            scores.masked_fill_(torch.gt(places, own, out=masks), -torch.inf)
        if before:
            scores.masked_fill_(torch.le(places, own - window, out=masks), -torch.inf)

    def _room(self, sizes: tuple[int, ...], place: int) -> torch.Tensor:
        """float32 of these sizes in scratch memory."""
        import torch

        size = 4 * math.prod(sizes)
        return self._scratch(size, place)[:size].view(torch.float32).view(sizes)

    def end(self) -> None:
        """The values' sums become means: `out` is the attention."""
        rows, groups = len(self._query), self._shape.kv_heads
        self._out.view(rows, groups, -1, self._shape.head_dim).permute(1, 2, 0, 3).div_(self._total)
