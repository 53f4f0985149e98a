"""What a model needs from a device.

A model is written once against `Ops`; it never asks where it runs. `Backend.record` calls the model's forward function one
time and returns a `Program`; `Program.run` then executes a step of any number of rows up to `max_rows`. The CPU backend
records a tape of kernel calls, a CUDA backend captures a graph, and the reference backend simply keeps the function and
runs it eagerly.

Row-shaped values (`Array`) are opaque to the model: shape (T, width) float32, T known only when a step runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from engine.core import Loading

Array = Any
"""A row-shaped activation of a backend: a torch tensor, or a buffer of a tape."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]


class RawTensor(Protocol):
    """A tensor as its file holds it.

    `type` is the GGUF type name ("F32", "F16", "BF16", "Q4_1", ...), also for safetensors; `shape` is (N, K) with K
    contiguous (or (N,) for vectors); `data` is the memory-mapped bytes, uint8, flat. `name` is for messages.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        ...

    def dequantise(self) -> Floats:
        """All values, float32, in `shape`."""
        ...


class Weight(Protocol):
    """A matrix (N, K) as a backend keeps it. `nbytes` is what one pass over it reads."""

    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Of one layer's attention: H query heads share G key/value heads; D is the head dimension."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float


@dataclass(frozen=True)
class RotaryTable:
    """Rotary position table: `cos` and `sin` are (positions, rotary_dim / 2) float32.

    `interleaved` pairs neighbours (2i, 2i+1), as GGUF's Llama files are laid out; otherwise dimension i is paired with
    i + rotary_dim / 2, as Hugging Face's are. Source: RoFormer, arXiv 2104.09864.
    """

    cos: Floats
    sin: Floats
    interleaved: bool


@dataclass(frozen=True)
class Step:
    """The input of one pass over one sequence.

    token_ids (T,) int32; positions (T,) int32, rising by one; pages: the sequence's block table, int32, page j holds
    positions 256 j .. 256 j + 255, every page that the T rows touch is there. The keys and values of the rows are
    written before attention reads. Logits are computed for the last `logit_rows` rows only.
    """

    token_ids: Ints
    positions: Ints
    pages: Ints
    logit_rows: int = 1


class KVCache(Protocol):
    """The paged key/value store of one model: P pages of 256 positions in every layer.

    `dtype` is the canonical name of its type, `str(CacheType)`; `page_bytes` is what `read_page` gives for one page.
    """

    page_count: int
    nbytes: int
    dtype: str
    page_bytes: int

    def copy_page(self, source: int, target: int) -> None:
        """Copy all layers' keys and values of one page onto another."""
        ...

    def read_page(self, page: int) -> Bytes:
        """A copy of all layers' keys and values of one page, uint8 (page_bytes,), in this backend's own layout."""
        ...

    def write_page(self, page: int, data: Bytes) -> None:
        """Put back what `read_page` of a cache of the same backend, type and shape gave, into any page."""
        ...


class Ops(Protocol):
    """The operations a model's forward function may use. Arrays are (T, width) float32."""

    def embed(self, table: Weight, scale: float = 1.0) -> Array:
        """Rows of `table` (V, E) for the step's token ids, times `scale`: (T, E)."""
        ...

    def rms_norm(self, x: Array, weight: Floats, eps: float) -> Array:
        """x / sqrt(mean(x^2) + eps) * weight. Source: arXiv 1910.07467."""
        ...

    def linear(self, x: Array, weight: Weight, bias: Floats | None = None, residual: Array | None = None) -> Array:
        """x (T, K) times weight (N, K) transposed, plus bias (N,), plus residual (T, N): (T, N)."""
        ...

    def rope(self, x: Array, table: RotaryTable, heads: int) -> Array:
        """x (T, heads * D) with each head turned by the step's positions; dimensions past the table's stay as they are."""
        ...

    def attention(self, layer: int, q: Array, k: Array, v: Array, shape: AttentionShape) -> Array:
        """Write k, v (T, G * D) into the cache, then causal attention of q (T, H * D): (T, H * D)."""
        ...

    def silu_mul(self, gate: Array, up: Array) -> Array:
        """silu(gate) * up, both (T, F)."""
        ...

    def last_rows(self, x: Array) -> Array:
        """The step's last `logit_rows` rows of x."""
        ...


Forward = Callable[[Ops], Array]
"""A model's forward function: builds the whole pass out of `Ops` and returns the logits (logit_rows, V)."""


class Program(Protocol):
    """A recorded forward pass. Not thread-safe: one thread runs it."""

    max_rows: int

    def run(self, step: Step) -> Floats:
        """Logits (logit_rows, V) float32; the array may be overwritten by the next `run`."""
        ...

    def close(self) -> None:
        """Release threads and buffers; the program cannot run again."""
        ...


class Backend(Protocol):
    """A device that can hold weights and run programs. Made once for each loaded model."""

    name: str

    def prepare(self, weight_types: frozenset[str], cache_dtype: str) -> Iterator[Loading]:
        """Get ready for these GGUF weight types, compiling kernels where needed; yields progress."""
        ...

    def weight_bytes(self, tensor: RawTensor) -> int:
        """Bytes that `load_weight(tensor)` will hold: known before anything is loaded."""
        ...

    def load_weight(self, tensor: RawTensor) -> Weight:
        """Bring a matrix into this backend's own layout."""
        ...

    def new_cache(self, layers: int, shape: AttentionShape, page_count: int, dtype: str) -> KVCache:
        """A zeroed paged cache; `dtype` is what `engine.backends.cache_types.cache_type` understands.

        Raises `NotEnoughMemory`, and `BadSetting` for an unknown type.
        """
        ...

    def record(self, forward: Forward, cache: KVCache, max_rows: int) -> Program:
        """Record `forward` once; the program accepts steps of 1 .. max_rows rows."""
        ...
