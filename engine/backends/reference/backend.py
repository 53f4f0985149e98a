"""The reference backend: plain torch in float32, one readable line for each formula.

The oracle of every kernel: nothing is fused, cached or approximated. `record` keeps the forward function and
`run` calls it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from engine.backends.base import Array, AttentionShape, Forward, KVCache, RotaryTable, Step, Weight
from engine.backends.indexer import Beside, IndexerShape
from engine.backends.indexer_keys import cached_keys
from engine.backends.kv_formats import WHOLE_KEYS
from engine.backends.kv_rounding import limited, rounded, rounded_keys
from engine.backends.main_memory import free_memory
from engine.backends.reference.cross import CrossOps
from engine.backends.reference.experts import ExpertOps
from engine.backends.reference.indexer import block_ends, chosen_positions
from engine.backends.reference.kv_cache import Kept, ReferenceCache
from engine.backends.reference.recurrent import RecurrentOps
from engine.backends.relative import RelativeBias
from engine.backends.runs import run_singly
from engine.backends.states import NO_STATES, States
from engine.backends.trim import give_memory_back
from engine.core import PAGE_TOKENS, Loading
from engine.tensors import Floats, Ints, RawTensor


class ReferenceBackend:
    """A `Backend` that dequantises weights to float32 when it loads them."""

    name = "reference"
    where = ""

    def free_memory(self) -> int:
        return free_memory()

    def trim(self) -> None:
        give_memory_back()

    def prepare(self, forward: Forward, cache_dtype: str) -> Iterator[Loading]:
        """Nothing to compile."""
        return iter(())

    def weight_spec(self, tensor: RawTensor) -> Weight:
        """Four bytes for each value."""
        return ReferenceWeightSpec(tensor.shape)

    def work_space(self, forward: Forward) -> tuple[int, int, int]:
        """Unknown, given as zeros: eager operations allocate and free their results as they run."""
        return 0, 0, 0

    def load_weight(self, tensor: RawTensor) -> Weight:
        """Dequantise to float32."""
        return ReferenceWeight(tensor)

    def new_cache(
        self, shapes: Sequence[AttentionShape], page_count: int, dtype: str, states: States = NO_STATES,
        numbers: Sequence[int] = (),
    ) -> KVCache:  # fmt: skip
        """ "auto" is fp32 here."""
        return ReferenceCache(shapes, page_count, dtype, states)

    def record(self, forward: Forward, cache: KVCache, max_rows: int) -> ReferenceProgram:
        assert isinstance(cache, ReferenceCache)
        return ReferenceProgram(forward, cache, max_rows)


class ReferenceWeightSpec:
    """The shape and size of a `ReferenceWeight`."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.nbytes = 4 * math.prod(shape)


class ReferenceWeight:
    """A matrix, float32 (N, K) in `values`."""

    def __init__(self, tensor: RawTensor) -> None:
        self.shape = tensor.shape
        self.values = torch.from_numpy(tensor.dequantise())
        self.nbytes = self.values.nbytes


class ReferenceProgram:
    """A `Program` that calls the forward function in each step."""

    def __init__(self, forward: Forward, cache: ReferenceCache, max_rows: int) -> None:
        self.max_rows = self.batch_rows = max_rows
        self._forward: Forward | None = forward
        self._cache = cache

    def run(self, step: Step) -> Floats:
        """Compute the logits, in a new array."""
        if step.runs:
            return run_singly(self.run, step)
        assert self._forward is not None, "the program is closed"
        assert 1 <= len(step.token_ids) <= self.max_rows
        with torch.inference_mode():
            logits: Floats = self._forward(ReferenceOps(step, self._cache)).numpy()
        return logits

    def close(self) -> None:
        """Forget the forward function."""
        self._forward = None


class ReferenceOps(CrossOps, RecurrentOps, ExpertOps):
    """`Ops` that computes each operation of one step immediately; arrays are float32 tensors (T, width)."""

    def __init__(self, step: Step, cache: Kept) -> None:
        self._cache: Kept = cache
        self._tokens, self._positions, self._pages = (
            torch.tensor(each, dtype=torch.long) for each in (step.token_ids, step.positions, step.pages)
        )
        ropes = step.positions if step.rope_positions is None else step.rope_positions
        self._rope_positions: Ints = np.array(ropes, np.int64)
        self._logit_rows, self._kept, self._cross = step.logit_rows, step.kept, step.cross
        self._states = step.states[0] if step.states else (-1, -1)

    def embed(self, table: Weight, scale: float = 1.0) -> Array:
        return self._looked_up(table, self._tokens) * scale

    def _looked_up(self, table: Weight, ids: torch.Tensor) -> torch.Tensor:
        """Rows of `table`."""
        assert isinstance(table, ReferenceWeight)
        return table.values[ids]

    def _times(self, x: torch.Tensor, weight: Weight) -> torch.Tensor:
        """x times a matrix transposed."""
        assert isinstance(weight, ReferenceWeight)
        return x @ weight.values.T

    def rms_norm(self, x: Array, weight: Floats, eps: float, heads: int = 1) -> Array:
        parts = x.reshape(len(x), heads, -1)
        y = parts / torch.sqrt((parts * parts).mean(dim=-1, keepdim=True) + eps)
        return (y * _shared(weight, parts)).reshape(x.shape)

    def layer_norm(self, x: Array, weight: Floats, bias: Floats | None, eps: float, heads: int = 1) -> Array:
        parts = x.reshape(len(x), heads, -1)
        centred = parts - parts.mean(dim=-1, keepdim=True)
        y = centred / torch.sqrt((centred * centred).mean(dim=-1, keepdim=True) + eps)
        y = y * _shared(weight, parts)
        return (y if bias is None else y + _shared(bias, parts)).reshape(x.shape)

    def linear(
        self, x: Array, weight: Weight, bias: Floats | None = None, residual: Array | None = None
    ) -> Array:
        y = self._times(x, weight)
        if bias is not None:
            y = y + torch.tensor(bias).to(y.device)
        return y if residual is None else y + residual.to(y.device)

    def head_linear(self, x: Array, weights: Sequence[Weight]) -> Array:
        parts = x.reshape(len(x), len(weights), -1)
        return torch.cat([self._times(parts[:, h], weight) for h, weight in enumerate(weights)], dim=1)

    def join(self, x: Array, y: Array, heads: int) -> Array:
        parts = [each.to(x.device).reshape(len(x), heads, -1) for each in (x, y)]
        return torch.cat(parts, dim=2).reshape(len(x), -1)

    def rope(self, x: Array, table: RotaryTable, heads: int) -> Array:
        rows = self._rope_positions
        # (T, 1, R / 2)
        cos, sin = (torch.from_numpy(part[rows])[:, None, :].to(x.device) for part in (table.cos, table.sin))
        half = table.cos.shape[1]
        out = x.reshape(len(x), heads, -1).clone()  # (T, heads, D)
        if table.interleaved:
            first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
        else:
            first, second = slice(0, half), slice(half, 2 * half)
        a, b = out[..., first].clone(), out[..., second].clone()
        out[..., first] = a * cos - b * sin
        out[..., second] = b * cos + a * sin
        return out.reshape(x.shape)

    def attention(
        self, layer: int, q: Array, k: Array | None, v: Array | None, shape: AttentionShape,
        sinks: Floats | None = None, distances: Floats | None = None, chosen: Array | None = None,
        beside: Beside | None = None, relative: RelativeBias | None = None,
    ) -> Array:  # fmt: skip
        rows, heads, dim = len(q), shape.heads, shape.head_dim
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        on = keys.device
        q = q.to(on)
        if k is not None:
            self._write(layer, q, k.to(on), None if v is None else v.to(on), shape)
        if shape.latent:
            values = keys[..., : shape.latent]
        length, positions = int(self._positions[-1]) + 1, self._positions.to(on)
        seen_keys, seen_values = self._seen(keys), self._seen(values)  # (S, G, D)
        places = torch.arange(length, device=on)[None, :]
        hidden = _unseen(positions, places, shape)[:, None]  # (T, lists, S)
        if beside is not None:
            self._write(beside.layer, q, beside.keys.to(on), None, shape)
            more = self._seen(self._cache.keys[beside.layer])
            seen_keys, seen_values = (torch.cat([each, more]) for each in (seen_keys, seen_values))
            looked_at = block_ends(positions, length, beside.block) if chosen is None else chosen.to(on)
            hidden = torch.cat([hidden, ~looked_at], 2)
        elif chosen is not None:
            hidden = hidden | ~chosen.to(on)
        out = torch.empty(rows, heads, shape.value_dim, device=on)
        for head in range(heads):
            group = head // (heads // shape.kv_heads)
            scores = q.reshape(rows, heads, dim)[:, head] @ seen_keys[:, group].T * shape.scale  # (T, S)
            if shape.soft_cap:
                scores = shape.soft_cap * torch.tanh(scores / shape.soft_cap)
            if shape.rounded_slopes:
                rounded_places = shape.slopes[head] * places.bfloat16().float()
                scores = scores + shape.rounded_slopes * rounded_places.bfloat16().float()
            elif shape.slopes:
                away = (places - positions[:, None]).float()
                scores = scores + shape.slopes[head] * (-away.abs() if shape.bidirectional else away)
            if distances is not None:
                most = distances.shape[1] // 2
                away = (places - positions[:, None]).clamp(-most, most) + most
                scores = scores + torch.from_numpy(distances[head]).to(on)[away]
            if relative is not None:
                scores = scores + _by_query(relative, head, heads, positions[:, None] - places)
            scores = scores.masked_fill(hidden[:, head * hidden.shape[1] // heads], -torch.inf)
            if sinks is not None:
                scores = torch.cat([scores, torch.full((rows, 1), float(sinks[head]), device=on)], dim=-1)
            if relative is not None and relative.sinks is not None:
                scores = torch.cat([scores, relative.sinks[:, head : head + 1].to(on)], dim=-1)
            weights = torch.softmax(scores, dim=-1)[:, : len(seen_values)]
            out[:, head] = weights @ seen_values[:, group]
        return out.reshape(rows, -1)

    def top_keys(self, layer: int, q: Array, k: Array, weights: Array | None, shape: IndexerShape) -> Array:
        kept = self._cache.keys[layer]
        q, k, own = (each.to(kept.device) for each in (q, k, self._positions))
        self._write(layer, q, k, None, cached_keys(shape))
        weights = None if weights is None else weights.to(kept.device)
        return chosen_positions(q, self._seen(kept)[:, 0], weights, own, shape)

    def _seen(self, kept: torch.Tensor) -> torch.Tensor:
        """The keys or values of a layer up to the last row's: (S, G, D) float32."""
        length = int(self._positions[-1]) + 1
        used = self._pages[: -(-length // PAGE_TOKENS)].to(kept.device)
        return kept[used].flatten(0, 1)[:length].float()

    def _write(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor | None, shape: AttentionShape
    ) -> None:
        """Write the step's keys and values."""
        rows, dim = len(q), shape.head_dim
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        pages, places = (
            part.to(keys.device)
            for part in (self._pages[self._positions // PAGE_TOKENS], self._positions % PAGE_TOKENS)
        )
        k, queries = k.reshape(rows, shape.kv_heads, dim), q.reshape(rows, shape.kv_heads, -1, dim)
        if self._cache.kind.keys == "q4":
            self._store_differences(keys, k, queries)
        elif self._cache.kind.keys == "q8":
            keys[pages, places] = rounded_keys(k, queries, torch.zeros_like(k[0]), "q8")
        else:
            keys[pages, places] = rounded(k, self._cache.kind.keys)
        if v is None:
            return
        v = v.reshape(rows, shape.kv_heads, dim)
        values[pages, places] = rounded(v, self._cache.kind.values)
        if self._cache.kind.values == "q4" and self._positions[0] == 0:
            values[self._pages[0], 0] = limited(v[0])

    def _store_differences(self, keys: torch.Tensor, k: torch.Tensor, q: torch.Tensor) -> None:
        """Write q4 keys as differences from a mean: none for the first 16 positions, that of positions 1 to
        15 for the rest of the first page, that of the previous page later on. The first key is not rounded.
        """
        first, t = int(self._positions[0]), 0
        while t < len(k):
            page, place = divmod(first + t, PAGE_TOKENS)
            whole = page == 0 and place < WHOLE_KEYS
            count = min(len(k) - t, (WHOLE_KEYS if whole else PAGE_TOKENS) - place)
            if whole:
                mean = torch.zeros_like(k[0])
            else:
                mean = (keys[self._pages[page - 1]] if page else keys[self._pages[0], 1:WHOLE_KEYS]).mean(0)
            part = slice(t, t + count)
            keys[self._pages[page], place : place + count] = rounded_keys(k[part], q[part], mean, "q4")
            if first + t == 0:
                keys[self._pages[0], 0] = limited(k[0])
            t += count

    def gated(self, gate: Array, up: Array, activation: str) -> Array:
        if activation == "smaller":
            up = up.to(gate.device)
            return torch.where(gate.abs() <= up.abs(), gate, up)
        if activation == "clamped_swiglu":
            gate, up = gate.clamp(max=7.0), up.to(gate.device).clamp(-7.0, 7.0)
            return (up + 1) * gate * torch.sigmoid(1.702 * gate)
        return self.activate(gate, activation) * up.to(gate.device)

    def activate(self, x: Array, activation: str) -> Array:
        if activation in ("silu", "sigmoid"):
            return torch.sigmoid(x) * (x if activation == "silu" else 1)
        if activation in ("softplus", "identity"):
            return torch.nn.functional.softplus(x) if activation == "softplus" else x
        if activation == "gelu":
            return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
        if activation == "gelu_tanh":
            return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        assert activation in ("relu", "relu2")
        return x.clamp(min=0) if activation == "relu" else x.clamp(min=0) ** 2

    def activate_with(self, x: Array, function: str, numbers: tuple[float, ...]) -> Array:
        if function == "clamp":
            return x.clamp(-numbers[0], numbers[0])
        if function == "between":
            return x.clamp(numbers[0], numbers[1])
        if function == "sigmoid":
            return numbers[0] * torch.sigmoid(x) + numbers[1]
        if function == "root":
            return x.abs().clamp(min=numbers[0]).sqrt() * x.sign()
        above, below, slope = numbers
        return torch.where(x > 0, above * x * x, below * (torch.expm1(x.clamp(max=0)) - x)) + slope * x

    def add(self, x: Array, y: Array, scale: float = 1.0) -> Array:
        return x + scale * y.to(x.device)

    def add_positions(self, x: Array, table: Floats) -> Array:
        return x + torch.from_numpy(table[self._positions.numpy()]).to(x.device)

    def columns(self, x: Array, start: int, width: int, heads: int = 1) -> Array:
        return x.reshape(len(x), heads, -1)[:, :, start : start + width].reshape(len(x), -1).contiguous()

    def soft_cap(self, x: Array, scale: float, cap: float) -> Array:
        return cap * torch.tanh(x * scale / cap) if cap else x * scale

    def mix(self, parts: Sequence[Array], weights: Array, first: int, residual: Array | None = None) -> Array:
        shares = weights[:, first : first + len(parts)]
        y = sum(part * shares[:, i : i + 1] for i, part in enumerate(parts))
        return y if residual is None else residual + y

    def balance(self, x: Array, size: int, rounds: int, eps: float, added: float | None = None) -> Array:
        y = torch.softmax(x.reshape(len(x), size, -1), dim=1) + (eps if added is None else added)
        if not rounds:
            return y.reshape(x.shape)
        y = y / (y.sum(2, keepdim=True) + eps)
        for _ in range(rounds - 1):
            y = y / (y.sum(1, keepdim=True) + eps)
            y = y / (y.sum(2, keepdim=True) + eps)
        return y.reshape(x.shape)

    def magnitude(self, x: Array, centred: bool = False) -> Array:
        x = x - x.mean(dim=-1, keepdim=True) if centred else x
        return torch.sqrt((x * x).mean(dim=-1, keepdim=True))

    def keep(self, x: Array, out: Floats) -> Array:
        out[self._kept : self._kept + len(x)] = x.cpu().numpy()
        return x

    def given(self, rows: Floats) -> Array:
        return torch.from_numpy(rows[: len(self._tokens)].copy())

    def last_rows(self, x: Array) -> Array:
        return x[len(x) - self._logit_rows :]


def _unseen(positions: torch.Tensor, places: torch.Tensor, shape: AttentionShape) -> torch.Tensor:
    """Which of the keys at `places` (1, S) the queries at `positions` (T,) do not see: (T, S)."""
    own, window = positions[:, None], shape.window or places.shape[1]
    if shape.bidirectional and shape.chunked:
        return places // window != own // window
    if shape.bidirectional and shape.backward_window:
        return places <= own - window
    if shape.bidirectional:
        return (places - own).abs() >= window
    first = own - own % window if shape.chunked else own - window + 1
    return (places > own) | (places < first)


def _by_query(relative: RelativeBias, head: int, heads: int, away: torch.Tensor) -> torch.Tensor:
    """What `relative` adds to the scores of a head, whose keys are `away` (T, S) positions before queries."""
    weights = relative.weights.to(away.device).reshape(len(away), heads, -1)[:, head]
    added = weights @ torch.from_numpy(relative.profiles).to(away.device)  # (T, extent)
    inside = (away >= 0) & (away < relative.extent)
    return torch.where(inside, added.gather(1, away.clamp(0, relative.extent - 1)), 0.0)


def _shared(weight: Floats, parts: torch.Tensor) -> torch.Tensor:
    """Factors for parts (T, heads, D): (D,) shared by all heads, or (heads, D)."""
    values = torch.tensor(weight).to(parts.device)
    return values if values.numel() == parts.shape[2] else values.reshape(parts.shape[1:])
