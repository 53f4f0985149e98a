"""The states of recurrent layers: what a cache holds of them for each sequence, besides pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from engine.lazy_dataclass import dataclass
from engine.tensors import Floats

MOST_KEY_DIM = 512
"""The largest dimension of keys that every backend takes."""
NO_WEIGHT = -1e38
"""The exponent of weights that sum up to nothing."""


@dataclass(frozen=True, slots=True)
class ConvolutionShape:
    """A causal convolution over time of each of C `channels` alone, of K `taps`: its state is the last K - 1
    inputs of a sequence.
    """

    channels: int
    taps: int

    @property
    def floats(self) -> int:
        """Numbers in a state: rows of whole vectors of 16. One of one tap has a row that nothing reads, so
        that the model has states as others of its kind do.
        """
        return max(1, self.taps - 1) * ((self.channels + 15) // 16 * 16)


@dataclass(frozen=True, slots=True)
class MeanShape:
    """The weighted means of C `channels`: their sums of values and of weights, and the weights' size."""

    channels: int

    @property
    def floats(self) -> int:
        """Numbers in a state: rows of whole vectors of 16."""
        return 3 * ((self.channels + 15) // 16 * 16)


@dataclass(frozen=True, slots=True)
class LinearAttentionShape:
    """One layer's linear attention: each of the H `value_heads` has a matrix S (Dk, Dv) as its state.

    Head h reads the keys and queries of head h // (H / G) of the G `key_heads`, or of h % G if `tiled`. With
    `delta`, v is replaced by its difference from what S says of k (the delta rule, arXiv 2412.06464);
    without, v is added as it is (Mamba-2, arXiv 2405.21060). What `decays` alone is each "head"; each of its
    keys, "key" (Kimi delta attention, arXiv 2510.26692, and `DeltaWeights`); or each number of the matrix,
    "value" (Mamba, arXiv 2312.00752). A `bound` c of keys that decay alone keeps what multiplies them above
    e^-c: it is exp(-c sigmoid(-rate (decay + shift))) (Ling 3); 0: there is none. With `unit`, where each
    number decays alone and Dk is 1, a step is sigmoid(decay + shift) and b is sqrt(1 - a^2), but 1 in a
    text's first row (RG-LRU, arXiv 2402.19427); there is no `skip` then.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    delta: bool
    tiled: bool = False
    decays: str = "head"
    bound: float = 0.0
    unit: bool = False

    @property
    def steps(self) -> int:
        """Numbers in a row of `decay`, the steps of `Ops.linear_attention`."""
        each = {"head": 1, "key": self.key_dim, "value": self.value_dim}
        return self.value_heads * each[self.decays]

    @property
    def rates(self) -> tuple[int, ...]:
        """The shape of its `rate`."""
        heads = self.value_heads
        return (self.key_dim, heads * self.value_dim) if self.decays == "value" else (heads,)

    @property
    def skips(self) -> int:
        """The size of its `skip`."""
        return self.value_heads * (self.value_dim if self.decays == "value" else 1)

    @property
    def floats(self) -> int:
        """Numbers in a state: its keys' dimension is padded to a multiple of 4, its values' to one of 32."""
        return self.value_heads * ((self.key_dim + 3) // 4 * 4) * ((self.value_dim + 31) // 32 * 32)


@dataclass(frozen=True, slots=True, eq=False)
class DeltaWeights:
    """RWKV-7's generalised delta rule (arXiv 2503.14456): H heads with a matrix S (Dk, Dv) each.

    From a head's r, k, `decay` and `rate` (Dk,) and v (Dv,) of `Ops.generalised_delta`, and its rows of
    `removal`, `mixing` and `bonus` (H, Dk), a row makes w = exp(-exp(-1/2) sigmoid(decay)),
    a = sigmoid(rate), n = k removal / max(|k removal|, 1e-12) and u = k (1 + (a - 1) mixing). Then

        S = diag(w) S - (a n) (S^T n)^T + u v^T

    The results are S^T r of all heads, and after them (sum over r u bonus) v of all heads.

    Without `removal` and `mixing`, w = exp(-exp(decay)), a = 0 and u = k, and the first results are those of
    S before the row (RWKV-6, arXiv 2404.05892). Without `bonus` either, u = k (1 - w), the results are those
    of S after the row, and 0 follows them (gated linear attention, arXiv 2312.06635). Head h of r has the
    keys and values of head h // (H / G) of the G `shape.key_heads`.
    """

    shape: LinearAttentionShape
    removal: Floats | None
    mixing: Floats | None
    bonus: Floats | None

    @property
    def rule(self) -> str:
        """ "delta", or one without it: "bonus" or "gated"."""
        return "delta" if self.removal is not None else "gated" if self.bonus is None else "bonus"


@dataclass(frozen=True, slots=True)
class PoolShape:
    """Keys of blocks of `block` neighbouring positions, of `dim` numbers each: the mean of the block's
    values, number by number, weighed by the softmax of its gates (DeepSeek V4). If `overlapping`, the mean is
    over the block before, too, which has values and gates of their own for the block after it.

    The state of each series of values is the largest gate, the sum of the weights and the weighted sum so
    far: of the block, and if `overlapping` of it and of the block before for the block after them.
    """

    dim: int
    block: int
    overlapping: bool = False

    @property
    def series(self) -> int:
        """Series of values and of gates."""
        return 2 if self.overlapping else 1

    @property
    def sums(self) -> int:
        """Sets of three sums in a state."""
        return 3 if self.overlapping else 1

    @property
    def floats(self) -> int:
        """Numbers in a state: rows of whole vectors of 16."""
        return 3 * self.sums * ((self.dim + 15) // 16 * 16)


StateShape = ConvolutionShape | LinearAttentionShape | MeanShape | PoolShape


@dataclass(frozen=True, slots=True)
class States:
    """What a cache holds besides pages: `count` states, each with a part of every shape, float32.

    A state says everything about a sequence's tokens before some position that recurrent layers know of it.
    `layers` has the number of each part's layer, for backends whose layers lie on several devices.
    """

    shapes: tuple[StateShape, ...] = ()
    count: int = 0
    layers: tuple[int, ...] = ()

    @property
    def state_bytes(self) -> int:
        """Bytes of one state."""
        return 4 * sum(shape.floats for shape in self.shapes)


NO_STATES = States()
"""What a cache of a model without recurrent layers holds."""


class StateOps(Protocol):
    """The operations of `engine.backends.base.Ops` that advance states."""

    def convolve(self, part: int, x: Any, weight: Floats, bias: Floats | None = None) -> Any:
        """y[t] = bias + sum over j of weight[j] * x[t - K + 1 + j], for x (T, C) and weight (K, C): (T, C).

        Rows before the step's first come from part number `part` of the sequence's state; before the text
        there are zeros.
        """
        ...

    def linear_attention(
        self, part: int, inputs: tuple[Any, Any, Any], decay: Any, beta: Any | None, rate: Floats,
        shift: Floats, shape: LinearAttentionShape, skip: Floats | None = None,
    ) -> Any:  # fmt: skip
        """Advance the matrices of each head by q (T, G * Dk), k (T, G * Dk), v (T, H * Dv), the `inputs`.

        With step = softplus(decay + shift) and a = exp(rate * step), from `decay` (T, H), `rate` (H,) and
        `shift` (H,): S = a S + k (b (v - p))^T, where b is sigmoid(beta), or step if there is no `beta`, and
        p is (a S)^T k with the delta rule, else 0. Returns S^T q + skip v (T, H * Dv), with `skip` (H,). The
        matrices are part number `part` of the sequence's state, zeros before the text. Sources: see
        `LinearAttentionShape`. If keys decay alone, `decay` and `shift` have H * Dk numbers, and a is
        diagonal. If values do, they have H * Dv as `skip` has, `rate` is (Dk, H * Dv), and a and b multiply
        number by number. Of keys that are `bound`, and of `unit`, see `LinearAttentionShape`.
        """
        ...

    def generalised_delta(
        self, part: int, inputs: tuple[Any, Any, Any], decay: Any, rate: Any, weights: DeltaWeights
    ) -> Any:
        """Advance part number `part` as `DeltaWeights` says: r, k, v are the `inputs`. (T, 2 * H * Dv)

        Without the delta rule nothing is read of `rate`.
        """
        ...

    def pool(
        self, part: int, values: Sequence[Any], gates: Sequence[Any], bias: Floats, shape: PoolShape
    ) -> Any:
        """The keys of blocks that `PoolShape` describes, (T, D): at the last position of a block its key, at
        others what it would be if the block ended there.

        `values` and `gates` are (T, D) of each series: the block's own, then those for the block after it.
        `bias` (series, block, D) is added to gates by their position in the block.
        """
        ...

    def weighted_mean(self, part: int, k: Any, v: Any, decay: Floats, first: Floats) -> Any:
        """The mean of the values v (T, C) so far, weighed by the keys k (T, C) (RWKV-4, arXiv 2305.13048).

        In row t the weight of an earlier row s is e^(k[s] + (t - 1 - s) decay), its own e^(k[t] + first);
        `decay` and `first` are (C,). Part number `part` of the sequence's state is a `MeanShape`. (T, C)
        """
        ...
