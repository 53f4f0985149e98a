"""What a model needs from a device.

A model is written once against `Ops`; it never asks where it runs. `Backend.record` calls the model's forward
function once and returns a `Program`; `Program.run` then executes a step of any number of rows up to
`max_rows`. The CPU and CUDA backends record nodes (`engine.backends.graph`) and lower them to kernel calls;
the reference backend keeps the function and runs it eagerly.

Row-shaped values (`Array`) are opaque to the model: shape (T, width) float32, T known only when a step runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from engine.backends.attention_shape import AttentionShape as AttentionShape
from engine.backends.cross import CrossKeys, CrossOps
from engine.backends.indexer import Beside, IndexerOps
from engine.backends.ngrams import NGramOps
from engine.backends.relative import RelativeBias
from engine.backends.routing import Routing
from engine.backends.states import NO_STATES, StateOps, States
from engine.core import Loading
from engine.lazy_dataclass import dataclass
from engine.tensors import Bytes, Floats, Ints, RawTensor

Array = Any
"""A row-shaped activation of a backend: a torch tensor, or a buffer of a recorded pass."""


class Weight(Protocol):
    """A matrix (N, K) as a backend stores it; one pass over it reads `nbytes` bytes."""

    shape: tuple[int, ...]
    nbytes: int


Routes = Any
"""The experts that each row goes to, and their weights, in a backend's own form."""


@dataclass(frozen=True)
class RotaryTable:
    """A table of rotary positions: `cos` and `sin` are (positions, rotary_dim / 2) float32.

    If `interleaved`, dimension 2 i is paired with 2 i + 1, as in GGUF's Llama files; otherwise i is paired
    with i + rotary_dim / 2, as in Hugging Face's files. Source: RoFormer, arXiv 2104.09864.
    If `given`, its numbers may change between two steps, each of which reads them as they are when it runs;
    they lie row after row, without gaps.
    """

    cos: Floats
    sin: Floats
    interleaved: bool
    given: bool = False


@dataclass(frozen=True)
class Step:
    """The input of one pass over one sequence, or over several at once.

    `token_ids` (T,) int32; `positions` (T,) int32, rising by one; `pages` int32, the sequence's block table:
    its page j holds positions 256 j .. 256 j + 255, and it has every page that the T rows touch. The rows'
    keys and values are written before attention reads them. Logits are computed for the last `logit_rows`
    rows only.

    `runs` is empty for one sequence. Otherwise it has (rows, pages) for each: the rows of the sequences
    follow one another in `token_ids` and `positions`, and so do their block tables in `pages`. Up to
    `Program.batch_rows` rows run together, more of them one sequence after the other. No sequence writes to a
    page that another one reads.
    """

    token_ids: Ints
    positions: Ints
    pages: Ints
    logit_rows: int = 1
    runs: Sequence[tuple[int, int]] = ()
    states: Sequence[tuple[int, int]] = ()
    """For a model with recurrent layers: of each sequence, the number of the state before its rows, or -1 for
    the beginning of a text, and of the state to write after them. They may be the same.
    """
    kept: int = 0
    """The row of `Ops.keep` that the first row goes to."""
    rope_positions: Ints | None = None
    """(T,) int32: the rows of rotary tables that `Ops.rope` takes; None: those of `positions`. They are below
    these after a picture, whose tokens count as fewer there (M-RoPE, arXiv 2409.12191).
    """
    cross: Sequence[CrossKeys] = ()
    """Of each sequence, for a pass with cross-attention."""


class KVCache(Protocol):
    """The paged key/value cache of one model: P pages of 256 positions in every layer.

    `dtype` is the canonical name of its type, `str(CacheType)`; `read_page` returns `page_bytes` bytes.
    `states` are what it holds for recurrent layers; their bytes are part of `nbytes`. `cross` is what passes
    over it read in cross-attention, a cache of the same backend.
    """

    states: States
    cross: KVCache | None

    page_count: int
    nbytes: int
    dtype: str
    page_bytes: int

    def close(self) -> None:
        """Release the memory; no program over this cache may run afterwards."""
        ...

    def copy_page(self, source: int, target: int) -> None:
        """Copy all layers' keys and values of one page onto another."""
        ...

    def read_page(self, page: int) -> Bytes:
        """A copy of one page's keys and values in all layers, uint8 (page_bytes,), in backend layout."""
        ...

    def write_page(self, page: int, data: Bytes) -> None:
        """Write a result of `read_page`, from a cache of the same backend, type and shape, to any page."""
        ...

    def read_state(self, number: int) -> Bytes:
        """A copy of one state, uint8 (states.state_bytes,), in backend layout."""
        ...

    def write_state(self, number: int, data: Bytes) -> None:
        """Write a result of `read_state`, from a cache of the same backend and states, to any state."""
        ...


class Ops(CrossOps, IndexerOps, NGramOps, StateOps, Protocol):
    """The operations that a model's forward function may use. Arrays are (T, width) float32."""

    def embed(self, table: Weight, scale: float = 1.0) -> Array:
        """Rows of `table` (V, E) for the step's token ids, times `scale`: (T, E)."""
        ...

    def rms_norm(self, x: Array, weight: Floats, eps: float, heads: int = 1) -> Array:
        """x / sqrt(mean(x^2) + eps) * weight for each of `heads` equal parts of a row.

        `weight` has the length of a part, and is then shared by all parts, or that of a row. Source: arXiv
        1910.07467.
        """
        ...

    def layer_norm(self, x: Array, weight: Floats, bias: Floats | None, eps: float, heads: int = 1) -> Array:
        """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias, with parts and weights as in `rms_norm`.

        Source: arXiv 1607.06450.
        """
        ...

    def linear(
        self, x: Array, weight: Weight, bias: Floats | None = None, residual: Array | None = None
    ) -> Array:
        """x (T, K) times weight (N, K) transposed, plus bias (N,), plus residual (T, N): (T, N)."""
        ...

    def head_linear(self, x: Array, weights: Sequence[Weight]) -> Array:
        """Each of H equal parts of a row of x (T, H * K) times its own matrix (N, K) transposed: (T, H * N).

        The matrices have one shape and type.
        """
        ...

    def join(self, x: Array, y: Array, heads: int) -> Array:
        """Part by part, the `heads` equal parts of rows of x (T, heads * A) and of y (T, heads * B): (T,
        heads * (A + B)).
        """
        ...

    def rope(self, x: Array, table: RotaryTable, heads: int) -> Array:
        """x (T, heads * D), each head rotated by the step's rope positions; dimensions past the table
        are kept.
        """
        ...

    def attention(
        self, layer: int, q: Array, k: Array | None, v: Array | None, shape: AttentionShape,
        sinks: Floats | None = None, distances: Floats | None = None, chosen: Array | None = None,
        beside: Beside | None = None, relative: RelativeBias | None = None,
    ) -> Array:  # fmt: skip
        """Write k and v (T, G * D) to the cache, then compute attention of q (T, H * D): (T, H * D).

        Without k, both are there already: written before in the pass, by a call with the same `layer`. If the
        shape is `latent`, there is no v, and the result is (T, H * latent).
        `sinks` (H,) are scores, one for each head, that take part in the softmax but have no value. Source:
        GPT-OSS's model card. `distances` (H, 2 M + 1) are added to scores: for keys from M positions before
        the query to M after it, and further ones as these (MPNet, arXiv 2004.09297). With `chosen`, a result
        of `top_keys`, rows attend to those positions alone. With `beside`, they attend to those of its keys,
        or of all whole blocks if there are none `chosen`, and to the window. `relative` is added to scores;
        only where keys and values are apart, and nothing is `beside`.
        """
        ...

    def gated(self, gate: Array, up: Array, activation: str) -> Array:
        """activation(gate) * up, both (T, F); see `GATES`."""
        ...

    def activate(self, x: Array, activation: str) -> Array:
        """activation(x), (T, F)."""
        ...

    def activate_with(self, x: Array, function: str, numbers: tuple[float, ...]) -> Array:
        """One of `SHAPED` with its numbers, (T, F)."""
        ...

    def add(self, x: Array, y: Array, scale: float = 1.0) -> Array:
        """x + scale * y, both (T, E)."""
        ...

    def add_positions(self, x: Array, table: Floats) -> Array:
        """x (T, E) plus the row of `table` (positions, E) at each row's position: learned positions."""
        ...

    def columns(self, x: Array, start: int, width: int, heads: int = 1) -> Array:
        """Columns start .. start + width - 1 of each of `heads` equal parts of rows: (T, heads * width)."""
        ...

    def soft_cap(self, x: Array, scale: float, cap: float) -> Array:
        """cap * tanh(scale * x / cap), or scale * x if `cap` is 0."""
        ...

    def mix(self, parts: Sequence[Array], weights: Array, first: int, residual: Array | None = None) -> Array:
        """residual plus the sum over i of parts[i] (T, E) times column first + i of weights: (T, E)."""
        ...

    def balance(self, x: Array, size: int, rounds: int, eps: float, added: float | None = None) -> Array:
        """Nearly doubly stochastic matrices (size, size) of the logits x (T, size * size), row by row: the
        softmax over the first index, plus `added` (None: `eps`); then rows are divided by their sums, and
        `rounds` - 1 times columns and rows, with `eps` added to sums (Sinkhorn and Knopp, 1967). With 0
        `rounds` only the softmax is taken, with what is added, and matrices may be (size, N).
        """
        ...

    def magnitude(self, x: Array, centred: bool = False) -> Array:
        """Each row's sqrt(mean(x^2)), or if `centred` sqrt(mean((x - mean(x))^2)): (T, 1)."""
        ...

    def route(
        self, logits: Array, routing: Routing, bias: Floats | None = None, scales: Floats | None = None,
        table: Ints | None = None,
    ) -> Routes:  # fmt: skip
        """The experts of each row and their weights, from the router's logits (T, X).

        `bias` (X,) is added to the scores for the choice alone. `scales` (X,) multiply the weights. With a
        `table` (V, used) the experts are those of the row's token in it.
        """
        ...

    def spread(self, x: Array, routes: Routes) -> Array:
        """A copy of each row of x (T, E) for each of its experts, in the backend's order: (T * used, E)."""
        ...

    def expert_linear(
        self, x: Array, weights: Sequence[Weight], routes: Routes, bias: Floats | None = None
    ) -> Array:
        """Spread rows (T * used, K) times their expert's matrix (N, K) transposed, plus the expert's row of
        `bias` (X, N): (T * used, N).
        """
        ...

    def gather(self, x: Array, routes: Routes, residual: Array | None = None) -> Array:
        """The weighted sum of each row's spread rows (T * used, E), plus residual (T, E): (T, E)."""
        ...

    def last_rows(self, x: Array) -> Array:
        """The step's last `logit_rows` rows of x."""
        ...

    def keep(self, x: Array, out: Floats) -> Array:
        """x (T, E), whose rows are copied to those of `out` (at least `max_rows`, E) from `Step.kept` on."""
        ...

    def given(self, rows: Floats) -> Array:
        """The first T of `rows` (at least `max_rows`, E), as they are when a step runs: (T, E)."""
        ...


Forward = Callable[[Ops], Array]
"""A model's forward function: builds the whole pass out of `Ops` and returns the logits (logit_rows, V)."""


class Program(Protocol):
    """A recorded forward pass. Not thread-safe: one thread runs it.

    In passes of up to `batch_rows` rows, a row's logits are the same, bit for bit, whatever rows run with it:
    only such a pass may be over several sequences.
    """

    max_rows: int
    batch_rows: int

    def run(self, step: Step) -> Floats:
        """Logits (logit_rows, V) float32; the next `run` may overwrite the array."""
        ...

    def close(self) -> None:
        """Release threads and buffers; the program cannot run again."""
        ...


class MemoryEstimator(Protocol):
    """What a backend, or a device not yet chosen, estimates from a model's headers alone."""

    @property
    def name(self) -> str:
        """The backend's name in `LoadSettings.backend`."""
        ...

    def weight_spec(self, tensor: RawTensor) -> Weight:
        """The shape and size of what `Backend.load_weight(tensor)` will hold; nothing is loaded."""
        ...

    def work_space(self, forward: Forward) -> tuple[int, int, int]:
        """Memory of a program of `forward`, whose weights may be specs: bytes for each row of `max_rows`,
        bytes for each position of the context, and other bytes.

        Memory that is reserved but not touched in replies does not count.
        """
        ...


class Backend(MemoryEstimator, Protocol):
    """Holds the weights and runs the programs of one loaded model on a device, or several.

    `where` is the name of its memory for messages, such as "NVIDIA H200"; empty for main memory.
    """

    where: str

    def free_memory(self) -> int:
        """Bytes that are free for weights, caches and programs."""
        ...

    def trim(self) -> None:
        """Return freed memory to the system, for example after a model is unloaded. Raises nothing."""
        ...

    def prepare(self, forward: Forward, cache_dtype: str) -> Iterator[Loading]:
        """Compile the kernels of `forward` over a cache of this type; yields progress if that takes time.

        `record` compiles what is missing, without progress. Raises `BadSetting` for an unknown type.
        """
        ...

    def load_weight(self, tensor: RawTensor) -> Weight:
        """Pack a matrix into this backend's layout."""
        ...

    def new_cache(
        self, shapes: Sequence[AttentionShape], page_count: int, dtype: str, states: States = NO_STATES,
        numbers: Sequence[int] = (),
    ) -> KVCache:  # fmt: skip
        """A zeroed paged cache for layers of these shapes, of which heads and dimensions count; `dtype` as in
        `engine.backends.kv_formats.cache_type`. `numbers` are theirs among all layers of the model, by
        default 0, 1 and so on.

        Raises `NotEnoughMemory`, and `BadSetting` for an unknown type.
        """
        ...

    def record(self, forward: Forward, cache: KVCache, max_rows: int) -> Program:
        """Record `forward` once; the program accepts steps of 1 .. max_rows rows."""
        ...
