"""What a model needs from a device.

A model is written once against `Ops`; it never asks where it runs. `Backend.record` calls the model's forward
function one time and returns a `Program`; `Program.run` then executes a step of any number of rows up to
`max_rows`. The CPU backend records a tape of kernel calls, a CUDA backend captures a graph, and the reference
backend simply keeps the function and runs it eagerly.

Row-shaped values (`Array`) are opaque to the model: shape (T, width) float32, T known only when a step runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from engine.core import Loading
from engine.tensors import Bytes, Floats, Ints, RawTensor

if TYPE_CHECKING:
    from engine.sampling.sampler import Sampled

Array = Any
"""A row-shaped activation of a backend: a torch tensor, or a buffer of a tape."""


class Weight(Protocol):
    """A matrix (N, K) as a backend keeps it. `nbytes` is what one pass over it reads."""

    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Of one layer's attention: H query heads share G key/value heads; D is the head dimension.

    `window`: a token sees so many latest tokens, itself included (arXiv 2004.05150), 0 all before it.
    `soft_cap`: a scaled score s becomes cap tanh(s / cap), 0 leaves it (Gemma 2, arXiv 2408.00118).
    """

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int = 0
    soft_cap: float = 0.0


ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu", "relu2", "clamped_swiglu")
"""Of `Ops.gated` and, but for the last, `Ops.activate`. "gelu" is x Phi(x) by the error function, "gelu_tanh"
its usual approximation (arXiv 1606.08415), "relu2" the square of relu. "clamped_swiglu" (GPT-OSS's model card
and reference code): with gate at most 7 and up within -7 .. 7, (up + 1) gate sigmoid(1.702 gate).
"""


@dataclass(frozen=True, slots=True)
class Routing:
    """How tokens choose among `experts`: softmax of the router's logits, the `used` likeliest (of equal ones
    the first), and, with `normalise`, their probabilities divided by their sum. Source: Mixtral, arXiv
    2401.04088.
    """

    experts: int
    used: int
    normalise: bool = True


Routes = Any
"""A backend's record of which expert each row goes to, and with what weight."""


@dataclass(frozen=True)
class RotaryTable:
    """Rotary position table: `cos` and `sin` are (positions, rotary_dim / 2) float32.

    `interleaved` pairs neighbours (2i, 2i+1), as GGUF's Llama files are laid out; otherwise dimension i is
    paired with i + rotary_dim / 2, as Hugging Face's are. Source: RoFormer, arXiv 2104.09864.
    """

    cos: Floats
    sin: Floats
    interleaved: bool


@dataclass(frozen=True)
class Step:
    """The input of one pass over one sequence.

    token_ids (T,) int32; positions (T,) int32, rising by one; pages: the sequence's block table, int32, page
    j holds positions 256 j .. 256 j + 255, every page that the T rows touch is there. The keys and values of
    the rows are written before attention reads. Logits are computed for the last `logit_rows` rows only.
    """

    token_ids: Ints
    positions: Ints
    pages: Ints
    logit_rows: int = 1


class KVCache(Protocol):
    """The paged key/value store of one model: P pages of 256 positions in every layer.

    `dtype` is the canonical name of its type, `str(CacheType)`; `page_bytes` is what `read_page` gives for
    one page.
    """

    page_count: int
    nbytes: int
    dtype: str
    page_bytes: int

    def close(self) -> None:
        """Release the memory, once no program over this cache runs any more; nothing can be read or
        written afterwards.
        """
        ...

    def copy_page(self, source: int, target: int) -> None:
        """Copy all layers' keys and values of one page onto another."""
        ...

    def read_page(self, page: int) -> Bytes:
        """A copy of all layers' keys and values of one page, uint8 (page_bytes,), in this backend's own
        layout.
        """
        ...

    def write_page(self, page: int, data: Bytes) -> None:
        """Put back what `read_page` of a cache of the same backend, type and shape gave, into any page."""
        ...


class Ops(Protocol):
    """The operations a model's forward function may use. Arrays are (T, width) float32."""

    def embed(self, table: Weight, scale: float = 1.0) -> Array:
        """Rows of `table` (V, E) for the step's token ids, times `scale`: (T, E)."""
        ...

    def rms_norm(self, x: Array, weight: Floats, eps: float, heads: int = 1) -> Array:
        """x / sqrt(mean(x^2) + eps) * weight, for each of `heads` equal parts of a row alone.

        Source: arXiv 1910.07467.

        `weight` has the length of a part and serves all, or that of a row.
        """
        ...

    def layer_norm(self, x: Array, weight: Floats, bias: Floats | None, eps: float, heads: int = 1) -> Array:
        """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias, otherwise as `rms_norm`.

        Source: arXiv 1607.06450.
        """
        ...

    def linear(
        self, x: Array, weight: Weight, bias: Floats | None = None, residual: Array | None = None
    ) -> Array:
        """x (T, K) times weight (N, K) transposed, plus bias (N,), plus residual (T, N): (T, N)."""
        ...

    def rope(self, x: Array, table: RotaryTable, heads: int) -> Array:
        """x (T, heads * D) with each head turned by the step's positions; dimensions past the table's stay
        as they are.
        """
        ...

    def attention(
        self, layer: int, q: Array, k: Array, v: Array, shape: AttentionShape, sinks: Floats | None = None
    ) -> Array:
        """Write k, v (T, G * D) into the cache, then causal attention of q (T, H * D): (T, H * D).

        `sinks` (H,): a score of each head that takes its part of the softmax and carries no value (GPT-OSS's
        model card).
        """
        ...

    def gated(self, gate: Array, up: Array, activation: str) -> Array:
        """activation(gate) * up, both (T, F); see `ACTIVATIONS`."""
        ...

    def activate(self, x: Array, activation: str) -> Array:
        """activation(x), (T, F)."""
        ...

    def add(self, x: Array, y: Array, scale: float = 1.0) -> Array:
        """x + scale * y, both (T, E)."""
        ...

    def add_positions(self, x: Array, table: Floats) -> Array:
        """x (T, E) plus the row of `table` (positions, E) at each row's position: learned positions."""
        ...

    def columns(self, x: Array, start: int, width: int) -> Array:
        """Columns start .. start + width - 1 of x: (T, width)."""
        ...

    def soft_cap(self, x: Array, scale: float, cap: float) -> Array:
        """scale * x, then, unless `cap` is 0, cap tanh(scale x / cap)."""
        ...

    def route(self, logits: Array, routing: Routing) -> Routes:
        """The experts of each row, from the router's logits (T, X)."""
        ...

    def spread(self, x: Array, routes: Routes) -> Array:
        """Each row of x (T, E) once for each of its experts, in an order of the backend's own: (T * used,
        E).
        """
        ...

    def expert_linear(
        self, x: Array, weights: Sequence[Weight], routes: Routes, bias: Floats | None = None
    ) -> Array:
        """Spread rows (T * used, K) times their expert's matrix, of X ones (N, K), plus its row of `bias`
        (X, N): (T * used, N).
        """
        ...

    def gather(self, x: Array, routes: Routes, residual: Array) -> Array:
        """residual (T, E) plus the sum of each row's spread rows (T * used, E), times their weights: (T,
        E).
        """
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


KEPT_LOGITS = 16
"""Of so many latest steps a decode loop keeps the logits."""


@dataclass(frozen=True, slots=True, eq=False)
class SamplingPlan:
    """How a device draws by itself, as `engine.sampling` would: the bias, then the penalties, then `steps` in
    their order, then the draw.

    Ids from `vocabulary` on are never drawn. `bias` (V,) float32 is added to the logits, -inf for what may
    not be drawn; None for none. `repetition`, `presence` and `frequency` are the penalties of
    `engine.sampling.penalties` over the last `reach` tokens (-1 all) and, fading, `fade` more;
    `repetition_first` is their order. `steps` are (code, number) of `engine.sampling.passes`; `greedy` takes
    the likeliest. `top` and `alternatives` ask for what `Sampled` tells.
    """

    vocabulary: int
    steps: tuple[tuple[int, float], ...] = ()
    greedy: bool = False
    bias: Floats | None = None
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    reach: int = -1
    fade: int = 0
    repetition_first: bool = True
    top: int = 0
    alternatives: int = 0

    @property
    def penalises(self) -> bool:
        """Whether tokens that occurred get other scores."""
        return self.reach != 0 and (self.repetition != 1.0 or self.presence != 0.0 or self.frequency != 0.0)


class DecodeLoop(Protocol):
    """Whole steps on the device, the draw included, one ahead of the host: while it reads token n, the device
    works on n + 1.

    Between `start` and `close` the program runs nothing else. A step that was begun and is not wanted needs
    nothing: what it wrote lies behind the text, where later steps write first.
    """

    def start(self, ids: Sequence[int], pages: Ints, uniform: Callable[[int], float]) -> None:
        """Begin a step with the last of `ids`, the whole text so far, of which all others are in the cache.

        May be called again.

        `pages` is the block table; `uniform(place)` the random number in [0, 1) of the token at a place.
        """
        ...

    def set_pages(self, pages: Ints) -> None:
        """Another block table, for the steps that begin from now on."""
        ...

    def next(self, further: bool) -> Sampled | None:
        """The next token, once it is drawn; before it waits, it begins the step after it if `further`.

        The cache must have room for every step that begins. None: the device cannot tell this token, because
        its logits are no numbers, or nothing is allowed, or too many tokens stay in the running; it is to be
        drawn from `logits`.
        """
        ...

    def logits(self, place: int) -> Floats:
        """A copy of the logits (V,) from which the token at `place` was or is drawn, one of the latest
        `KEPT_LOGITS` that began.
        """
        ...

    def close(self) -> None:
        """The decode loop is over; a step that is still under way is forgotten."""
        ...


@runtime_checkable
class HasDecodeLoop(Protocol):
    """A program that may have a decode loop; others lack this."""

    def decode_loop(self, plan: SamplingPlan) -> DecodeLoop | None:
        """A decode loop, one at a time; None where the device does not take this plan."""
        ...


class Backend(Protocol):
    """A device that can hold weights and run programs. Made once for each loaded model.

    `name` is the backend's in `LoadSettings.backend`; `where` names for people what memory it has, such as
    "NVIDIA H200", and is empty where that is the machine's own.
    """

    name: str
    where: str

    def free_memory(self) -> int:
        """Bytes that weights, caches and passes can still have on this device."""
        ...

    def trim(self) -> None:
        """Give back to the system what was freed and is kept for later use, as when a model has gone.

        Raises nothing.
        """
        ...

    def prepare(self, forward: Forward, cache_dtype: str) -> Iterator[Loading]:
        """Get ready to record `forward` over a cache of this type, compiling what it needs; yields progress
        if that takes time.

        `record` does the same for what was not prepared, in silence. Raises `BadSetting` for an unknown type.
        """
        ...

    def weight_spec(self, tensor: RawTensor) -> Weight:
        """The shape and size of what `load_weight(tensor)` will hold, known before anything is loaded."""
        ...

    def work_space(self, forward: Forward) -> tuple[int, int, int]:
        """Memory of a program of `forward`, whose weights may be specs: bytes for each row of `max_rows`, for
        each position of the context, and besides.

        Memory that is reserved but not touched in replies does not count.
        """
        ...

    def load_weight(self, tensor: RawTensor) -> Weight:
        """Bring a matrix into this backend's own layout."""
        ...

    def new_cache(self, layers: int, shape: AttentionShape, page_count: int, dtype: str) -> KVCache:
        """A zeroed paged cache; `dtype` is what `engine.backends.kv_formats.cache_type` understands.

        Raises `NotEnoughMemory`, and `BadSetting` for an unknown type.
        """
        ...

    def record(self, forward: Forward, cache: KVCache, max_rows: int) -> Program:
        """Record `forward` once; the program accepts steps of 1 .. max_rows rows."""
        ...
