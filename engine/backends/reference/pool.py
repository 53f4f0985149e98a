"""The reference backend's keys of blocks, position by position."""

from __future__ import annotations

import torch

from engine.backends.states import PoolShape

NOTHING = -1e30
"""Stands for the largest gate where there is none yet."""


def pooled(
    kept: torch.Tensor, rows: tuple[torch.Tensor, torch.Tensor], bias: torch.Tensor, first: int,
    shape: PoolShape,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """`Ops.pool` of rows from position `first` on, whose values and gates are (series, T, D): its result
    (T, D), and the sums (sets, 3, D) after them, from those `kept` before.
    """
    (values, gates), sums, out = rows, kept.clone(), []
    for t in range(values.shape[1]):
        place = (first + t) % shape.block
        if place == 0:
            if shape.overlapping:
                sums[2] = sums[1]
            sums[: shape.series] = nothing(shape.series, sums)
        for number in range(shape.series):
            own = torch.stack(
                [gates[number, t] + bias[number, place], torch.ones_like(values[0, t]), values[number, t]]
            )
            sums[number] = _together(sums[number], own)
        whole = _together(sums[0], sums[2]) if shape.overlapping else sums[0]
        out.append(whole[2] / whole[1])
    return torch.stack(out), sums


def nothing(sets: int, like: torch.Tensor) -> torch.Tensor:
    """Sets of sums (sets, 3, D) of no position."""
    empty = torch.zeros(sets, *like.shape[1:], device=like.device)
    empty[:, 0] = NOTHING
    return empty


def _together(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The sums of two sets of positions: the largest gate, the sum of weights, the weighted sum."""
    top = torch.maximum(one[0], other[0])
    rest = one[1:] * torch.exp(one[0] - top) + other[1:] * torch.exp(other[0] - top)
    return torch.cat([top[None], rest])
