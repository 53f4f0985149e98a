"""The recurrent operations of the reference backend, token by token."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize, softplus

from engine.backends.base import Array, Weight
from engine.backends.ngrams import NGrams
from engine.backends.reference.ngrams import hashed_rows
from engine.backends.reference.pool import nothing, pooled
from engine.backends.states import NO_WEIGHT, DeltaWeights, LinearAttentionShape, PoolShape
from engine.tensors import Floats


class RecurrentOps:
    """The operations of `StateOps` over the states of a cache."""

    _cache: Any
    """A cache whose `state_parts` are (states, numbers) float32."""
    _states: tuple[int, int]
    """The state before the step's rows, or -1, and the one after them."""
    _positions: torch.Tensor
    """Of the step's rows."""

    _tokens: torch.Tensor
    """The step's token ids, int64 (T,)."""
    _looked_up: Callable[[Any, torch.Tensor], torch.Tensor]
    """From a table and ids (N,): its rows (N, D)."""

    def embed_ngrams(self, part: int, tables: Sequence[Weight], ngrams: NGrams) -> list[Array]:
        numbers = (self._tokens[:, None] + 1).float().repeat(1, ngrams.size)
        latest_first = np.ascontiguousarray(np.eye(ngrams.size, dtype=np.float32)[::-1])
        last = self.convolve(part, numbers, latest_first).long() - 1
        rows = hashed_rows(last, ngrams).chunk(len(tables), 1)
        found = (self._looked_up(table, own.flatten()) for table, own in zip(tables, rows, strict=True))
        return [own.reshape(len(last), -1) for own in found]

    def convolve(self, part: int, x: Array, weight: Floats, bias: Floats | None = None) -> Array:
        factors = torch.from_numpy(weight).to(x.device)  # (K, C)
        taps, channels = factors.shape
        before = self._state(part, (taps - 1) * channels, x.device).reshape(taps - 1, channels)
        rows = torch.cat([before, x])  # (K - 1 + T, C)
        y = sum(factors[j] * rows[j : j + len(x)] for j in range(taps))
        self._keep(part, rows[len(x) :])
        return y if bias is None else y + torch.from_numpy(bias).to(x.device)

    def linear_attention(
        self,
        part: int,
        inputs: tuple[Array, Array, Array],
        decay: Array,
        beta: Array | None,
        rate: Floats,
        shift: Floats,
        shape: LinearAttentionShape,
        skip: Floats | None = None,
    ) -> Array:
        heads, groups, dk, dv = shape.value_heads, shape.key_heads, shape.key_dim, shape.value_dim
        v, on = inputs[2].reshape(-1, heads, dv), inputs[2].device
        q, k = (each.to(on).reshape(-1, groups, dk)[:, _groups(shape)] for each in inputs[:2])  # (T, H, Dk)
        rates = torch.from_numpy(rate).to(on)
        steps = (decay.to(on) + torch.from_numpy(shift).to(on)).reshape(len(v), heads, -1)
        steps = torch.sigmoid(steps) if shape.unit else steps if shape.bound else softplus(steps)
        b = steps if beta is None else torch.sigmoid(beta.to(on))[:, :, None]  # (T, H, 1 or Dv)
        if shape.unit:
            b = torch.sqrt(-torch.expm1(2 * rates.reshape(heads, dv) * steps))
            b[: self._states[0] < 0] = 1.0
        state = self._state(part, heads * dk * dv, on).reshape(heads, dk, dv)
        y = torch.empty_like(v)
        for t in range(len(v)):
            state = state * _decay(steps[t], rates, shape)
            said = torch.einsum("hkv,hk->hv", state, k[t]) if shape.delta else 0.0
            state = state + k[t, :, :, None] * ((v[t] - said) * b[t])[:, None, :]
            y[t] = torch.einsum("hkv,hk->hv", state, q[t])
        self._keep(part, state)
        if skip is not None:
            y = y + torch.from_numpy(skip).to(on).reshape(heads, -1) * v
        return y.reshape(len(y), heads * dv)

    def generalised_delta(
        self, part: int, inputs: tuple[Array, Array, Array], decay: Array, rate: Array, weights: DeltaWeights
    ) -> Array:
        shape, on = weights.shape, inputs[2].device
        heads, groups, dk, dv = shape.value_heads, shape.key_heads, shape.key_dim, shape.value_dim
        k, v = (x.to(on).reshape(len(x), groups, -1)[:, _groups(shape)] for x in inputs[1:])
        r, decays, rates = (each.to(on).reshape(-1, heads, dk) for each in (inputs[0], decay, rate))
        w, taken, along = torch.exp(-torch.exp(decays)), torch.zeros_like(k), torch.zeros_like(k)
        u = k * (1 - w) if weights.rule == "gated" else k
        if weights.removal is not None and weights.mixing is not None:
            w, a = torch.exp(-math.exp(-0.5) * torch.sigmoid(decays)), torch.sigmoid(rates)
            taken = normalize(k * torch.from_numpy(weights.removal).to(on), dim=2, eps=1e-12)
            along, u = a * taken, k * (1 + (a - 1) * torch.from_numpy(weights.mixing).to(on))
        state = self._state(part, heads * dk * dv, on).reshape(heads, dk, dv)
        y = torch.empty_like(v)
        for t in range(len(v)):
            before = state
            said = torch.einsum("hkv,hk->hv", state, taken[t])
            state = w[t, :, :, None] * state - along[t][:, :, None] * said[:, None]
            state = state + u[t, :, :, None] * v[t][:, None, :]
            y[t] = torch.einsum("hkv,hk->hv", before if weights.rule == "bonus" else state, r[t])
        self._keep(part, state)
        own = torch.zeros_like(v)
        if weights.bonus is not None:
            own = (r * u * torch.from_numpy(weights.bonus).to(on)).sum(2, keepdim=True) * v
        return torch.cat([y.reshape(len(y), -1), own.reshape(len(y), -1)], 1)

    def pool(
        self, part: int, values: Sequence[Array], gates: Sequence[Array], bias: Floats, shape: PoolShape
    ) -> Array:
        on = values[0].device
        given, weighed = (torch.stack([one.to(on) for one in each]) for each in (values, gates))
        size = 3 * shape.sums * shape.dim
        before = self._state(part, size, on).reshape(shape.sums, 3, shape.dim)
        if self._states[0] < 0:
            before = nothing(shape.sums, before)
        rows = (given, weighed)
        y, after = pooled(before, rows, torch.from_numpy(bias).to(on), int(self._positions[0]), shape)
        self._keep(part, after)
        return y

    def weighted_mean(self, part: int, k: Array, v: Array, decay: Floats, first: Floats) -> Array:
        fall, own = (torch.from_numpy(each).to(v.device) for each in (decay, first))
        channels, k = v.shape[1], k.to(v.device)
        total, weight, most = self._state(part, 3 * channels, v.device).reshape(3, channels)
        most = torch.full_like(most, NO_WEIGHT) if self._states[0] < 0 else most
        y = torch.empty_like(v)
        for t in range(len(v)):
            above, below, _unused = _joined(total, weight, most, k[t] + own, v[t])
            y[t] = above / below
            total, weight, most = _joined(total, weight, most + fall, k[t], v[t])
        self._keep(part, torch.stack([total, weight, most]))
        return y

    def _state(self, part: int, size: int, device: torch.device) -> torch.Tensor:
        """The first `size` numbers of a part before the rows, as a copy."""
        if self._states[0] < 0:
            return torch.zeros(size, device=device)
        kept: torch.Tensor = self._cache.state_parts[part]
        return kept[self._states[0], :size].to(device, copy=True)

    def _keep(self, part: int, values: torch.Tensor) -> None:
        """Write a part after the rows."""
        self._cache.state_parts[part][self._states[1], : values.numel()] = values.reshape(-1)


def _joined(
    total: torch.Tensor, weight: torch.Tensor, old: torch.Tensor, new: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The sums with weights e^old and e^new, as shares of the larger, and its exponent."""
    top = torch.maximum(old, new)
    kept, added = torch.exp(old - top), torch.exp(new - top)
    return kept * total + added * value, kept * weight + added, top


def _groups(shape: LinearAttentionShape) -> torch.Tensor:
    """The head of keys and queries of each head of values."""
    heads = torch.arange(shape.value_heads)
    if shape.tiled:
        return heads % shape.key_heads
    return heads // (shape.value_heads // shape.key_heads)


def _decay(steps: torch.Tensor, rates: torch.Tensor, shape: LinearAttentionShape) -> torch.Tensor:
    """What multiplies the matrices (H, Dk, Dv) at one row with these `steps` (H, 1, Dk or Dv)."""
    if shape.bound:
        return torch.exp(-shape.bound * torch.sigmoid(-rates[:, None] * steps))[:, :, None]
    if shape.decays == "value":
        by_head = rates.reshape(shape.key_dim, shape.value_heads, shape.value_dim).transpose(0, 1)
        return torch.exp(by_head * steps[:, None])
    return torch.exp(rates[:, None, None] * steps[:, :, None])
