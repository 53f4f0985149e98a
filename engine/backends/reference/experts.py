"""Mixtures of experts on the reference backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import softplus

from engine.backends.base import Array, Routes, Weight
from engine.backends.routing import ROOT, SMALLEST_SUM, Routing
from engine.tensors import Floats, Ints


class ExpertOps:
    """`Ops.route` and the operations on rows of experts."""

    _tokens: torch.Tensor
    """The step's token ids."""
    _times: Any
    """Rows times a matrix transposed."""

    def route(
        self, logits: Array, routing: Routing, bias: Floats | None = None, scales: Floats | None = None,
        table: Ints | None = None,
    ) -> Routes:  # fmt: skip
        """Experts and weights, both (T, used)."""
        shares = _scores(logits, routing.scores)
        if table is None:
            experts = _chosen(logits, shares, routing, bias)
        else:
            experts = torch.from_numpy(table).long()[self._tokens].to(logits.device)
        weights = torch.gather(shares, 1, experts)
        if routing.nearness >= 0:
            weights = _near_shares(logits, experts, routing.nearness)
        elif routing.normalise:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + SMALLEST_SUM)
        if scales is not None:
            weights = weights * torch.from_numpy(scales).to(logits.device)[experts]
        return experts, weights * routing.scale

    def spread(self, x: Array, routes: Routes) -> Array:
        """Row t * used + j is row t for its expert j."""
        return x.repeat_interleave(routes[0].shape[1], dim=0)

    def expert_linear(
        self, x: Array, weights: Sequence[Weight], routes: Routes, bias: Floats | None = None
    ) -> Array:
        rows = []
        for row, expert in zip(x, routes[0].reshape(-1).tolist(), strict=True):
            y = self._times(row[None], weights[expert])[0]
            rows.append(y if bias is None else y + torch.from_numpy(bias[expert]))
        return torch.stack(rows)

    def gather(self, x: Array, routes: Routes, residual: Array | None = None) -> Array:
        weights = routes[1].to(x.device)
        y = (x.reshape(*weights.shape, -1) * weights[:, :, None]).sum(dim=1)
        return y if residual is None else residual.to(x.device) + y


def _scores(logits: torch.Tensor, kind: str) -> torch.Tensor:
    """The scores of experts (T, X), by `Routing.scores`."""
    if kind == "softmax":
        return torch.softmax(logits, dim=-1)
    return torch.sqrt(softplus(logits)) if kind == ROOT else torch.sigmoid(logits)


def _chosen(
    logits: torch.Tensor, shares: torch.Tensor, routing: Routing, bias: Floats | None
) -> torch.Tensor:
    """The experts of each row (T, used), from logits and scores (T, X)."""
    choice = logits if routing.by_logit else shares
    choice = choice if bias is None else choice + torch.from_numpy(bias).to(logits.device)
    if bias is None and routing.groups == 1:
        choice = logits  # which order them as their scores do, but are less often equal
    elif routing.groups > 1:
        parts = choice.reshape(len(choice), routing.groups, -1)
        best = parts.sort(dim=-1, descending=True).values[:, :, : routing.group_best].sum(dim=-1)
        groups = best.sort(dim=-1, descending=True, stable=True).indices[:, : routing.used_groups]
        closed = torch.ones_like(best, dtype=torch.bool).scatter(1, groups, False)
        choice = parts.masked_fill(closed[:, :, None], -torch.inf).reshape(choice.shape)
    return choice.sort(dim=-1, descending=True, stable=True).indices[:, : routing.used]


def _near_shares(logits: torch.Tensor, experts: torch.Tensor, nearness: float) -> torch.Tensor:
    """The weights (T, used) of `Routing.nearness`."""
    left, weights = logits, []
    for chosen in torch.split(experts, 1, dim=1):
        top = torch.gather(logits, 1, chosen)
        far = top - logits > 2 * nearness * torch.maximum(logits.abs(), top)
        weights.append(1 / torch.exp(left.masked_fill(far, -torch.inf) - top).sum(dim=1, keepdim=True))
        left = left.scatter(1, chosen, -torch.inf)
    return torch.cat(weights, dim=1)
