"""The reference backend: plain torch in float32, one readable line for each formula. The oracle of every kernel.

Nothing is fused, cached or approximated; `record` keeps the forward function and `run` calls it eagerly.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from engine.backends.base import Array, AttentionShape, Bytes, Floats, Forward, KVCache, RawTensor, RotaryTable, Step, Weight
from engine.backends.cache_rounding import limited, rounded, steered
from engine.backends.cache_types import WHOLE_KEYS, cache_type
from engine.core import PAGE_TOKENS, Loading


class ReferenceBackend:
    """See `engine.backends.base.Backend`. Weights are dequantised to float32 once, when they are loaded."""

    name = "reference"

    def prepare(self, weight_types: frozenset[str], cache_dtype: str) -> Iterator[Loading]:
        """Nothing to compile."""
        return iter(())

    def weight_bytes(self, tensor: RawTensor) -> int:
        """Four for each value."""
        return 4 * int(np.prod(tensor.shape, dtype=np.int64))

    def load_weight(self, tensor: RawTensor) -> Weight:
        """Dequantised to float32."""
        return ReferenceWeight(tensor)

    def new_cache(self, layers: int, shape: AttentionShape, page_count: int, dtype: str) -> KVCache:
        """See `Backend.new_cache`; "auto" is fp32 here."""
        return ReferenceCache(layers, shape, page_count, dtype)

    def record(self, forward: Forward, cache: KVCache, max_rows: int) -> ReferenceProgram:
        """See `Backend.record`."""
        assert isinstance(cache, ReferenceCache)
        return ReferenceProgram(forward, cache, max_rows)


class ReferenceWeight:
    """A matrix (N, K) float32 in `values`."""

    def __init__(self, tensor: RawTensor) -> None:
        self.shape = tensor.shape
        self.values = torch.from_numpy(tensor.dequantise())
        self.nbytes = self.values.nbytes


class ReferenceCache:
    """Keys and values: (L, P, 256, G, D) each, float16 for "fp16"; numbers of the other types lie as float32, already rounded."""

    def __init__(self, layers: int, shape: AttentionShape, page_count: int, dtype: str) -> None:
        self.kind = cache_type(dtype, automatic="fp32")
        self.dtype = str(self.kind)
        self.page_count = page_count
        size = (layers, page_count, PAGE_TOKENS, shape.kv_heads, shape.head_dim)
        self.keys, self.values = (  # by NumPy, whose zeros cost no memory before they are written
            torch.from_numpy(np.zeros(size, np.float16 if name == "fp16" else np.float32)) for name in (self.kind.keys, self.kind.values)
        )
        self.nbytes = self.keys.nbytes + self.values.nbytes
        self.page_bytes = self.nbytes // page_count

    def copy_page(self, source: int, target: int) -> None:
        """See `KVCache.copy_page`."""
        self.keys[:, target] = self.keys[:, source]
        self.values[:, target] = self.values[:, source]

    def read_page(self, page: int) -> Bytes:
        """See `KVCache.read_page`: keys of all layers, then values."""
        return np.concatenate([part[:, page].numpy().reshape(-1).view(np.uint8) for part in (self.keys, self.values)])

    def write_page(self, page: int, data: Bytes) -> None:
        """See `KVCache.write_page`."""
        first = self.keys[:, page].nbytes
        for part, half in ((self.keys, data[:first]), (self.values, data[first:])):
            numbers = np.frombuffer(half.tobytes(), np.float16 if part.dtype == torch.float16 else np.float32)
            part[:, page] = torch.from_numpy(numbers.reshape(part[:, page].shape).copy())


class ReferenceProgram:
    """See `engine.backends.base.Program`."""

    def __init__(self, forward: Forward, cache: ReferenceCache, max_rows: int) -> None:
        self.max_rows = max_rows
        self._forward: Forward | None = forward
        self._cache = cache

    def run(self, step: Step) -> Floats:
        """See `Program.run`; the array is the caller's own."""
        assert self._forward is not None, "the program is closed"
        assert 1 <= len(step.token_ids) <= self.max_rows
        with torch.inference_mode():
            logits: Floats = self._forward(ReferenceOps(step, self._cache)).numpy()
        return logits

    def close(self) -> None:
        """Forget the forward function."""
        self._forward = None


class ReferenceOps:
    """See `engine.backends.base.Ops`: one step's operations, carried out at once. Arrays are float32 tensors (T, width)."""

    def __init__(self, step: Step, cache: ReferenceCache) -> None:
        self._cache = cache
        self._tokens = torch.tensor(step.token_ids, dtype=torch.long)
        self._positions = torch.tensor(step.positions, dtype=torch.long)
        self._pages = torch.tensor(step.pages, dtype=torch.long)
        self._logit_rows = step.logit_rows

    def embed(self, table: Weight, scale: float = 1.0) -> Array:
        """See `Ops.embed`."""
        return _values(table)[self._tokens] * scale

    def rms_norm(self, x: Array, weight: Floats, eps: float) -> Array:
        """See `Ops.rms_norm`."""
        return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + eps) * torch.tensor(weight)

    def linear(self, x: Array, weight: Weight, bias: Floats | None = None, residual: Array | None = None) -> Array:
        """See `Ops.linear`."""
        y = x @ _values(weight).T
        if bias is not None:
            y = y + torch.tensor(bias)
        return y if residual is None else y + residual

    def rope(self, x: Array, table: RotaryTable, heads: int) -> Array:
        """See `Ops.rope`."""
        rows = self._positions.numpy()
        cos, sin = (torch.from_numpy(part[rows])[:, None, :] for part in (table.cos, table.sin))  # (T, 1, R / 2)
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

    def attention(self, layer: int, q: Array, k: Array, v: Array, shape: AttentionShape) -> Array:
        """See `Ops.attention`."""
        rows, heads, dim = len(q), shape.heads, shape.head_dim
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        pages, places = self._pages[self._positions // PAGE_TOKENS], self._positions % PAGE_TOKENS
        k = k.reshape(rows, shape.kv_heads, dim)
        if self._cache.kind.keys == "q4":
            self._store_steered(keys, k, q.reshape(rows, shape.kv_heads, -1, dim))
        else:
            keys[pages, places] = rounded(k, self._cache.kind.keys)
        v = v.reshape(rows, shape.kv_heads, dim)
        values[pages, places] = rounded(v, self._cache.kind.values)
        if self._cache.kind.values == "q4" and self._positions[0] == 0:
            values[self._pages[0], 0] = limited(v[0])

        length = int(self._positions[-1]) + 1
        used = self._pages[: -(-length // PAGE_TOKENS)]
        seen_keys = keys[used].reshape(-1, shape.kv_heads, dim)[:length].float()  # (S, G, D)
        seen_values = values[used].reshape(-1, shape.kv_heads, dim)[:length].float()
        future = torch.arange(length)[None, :] > self._positions[:, None]  # (T, S)
        out = torch.empty(rows, heads, dim)
        for head in range(heads):
            group = head // (heads // shape.kv_heads)
            scores = q.reshape(rows, heads, dim)[:, head] @ seen_keys[:, group].T * shape.scale  # (T, S)
            weights = torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1)
            out[:, head] = weights @ seen_values[:, group]
        return out.reshape(rows, heads * dim)

    def _store_steered(self, keys: torch.Tensor, k: torch.Tensor, q: torch.Tensor) -> None:
        """Write q4 keys: the first sixteen have no mean, the rest of the first page that of positions 1 .. 15, and each later
        page that of the page before. The very first key is kept as it is.
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
            keys[self._pages[page], place : place + count] = steered(k[part], q[part], mean)
            if first + t == 0:
                keys[self._pages[0], 0] = limited(k[0])
            t += count

    def silu_mul(self, gate: Array, up: Array) -> Array:
        """See `Ops.silu_mul`."""
        return gate * torch.sigmoid(gate) * up

    def last_rows(self, x: Array) -> Array:
        """See `Ops.last_rows`."""
        return x[len(x) - self._logit_rows :]


def _values(weight: Weight) -> torch.Tensor:
    assert isinstance(weight, ReferenceWeight)
    return weight.values
