"""What recurrent layers are, and the parts of a state that each has."""

from __future__ import annotations

from engine.backends.states import ConvolutionShape, LinearAttentionShape, MeanShape, StateShape
from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.models.config.convolved import ConvolvedHeads, ConvolvedKeys, GatedValues
from engine.models.config.relative import RelativeHeads
from engine.words import _


def _check_heads(key_heads: int, value_heads: int) -> None:
    if value_heads % key_heads:
        raise BadCheckpoint(
            _(
                "The model's linear attention has {value_heads} value heads and {key_heads} "
                "key heads; the first must be a multiple.",
                value_heads=value_heads,
                key_heads=key_heads,
            )
        )


@dataclass(frozen=True, slots=True)
class ShortConvolution:
    """A gated causal convolution of `taps` taps over all features (LFM2, arXiv 2511.23404)."""

    taps: int


@dataclass(frozen=True, slots=True)
class DeltaNet:
    """Linear attention by the gated delta rule (arXiv 2412.06464), its inputs convolved with `taps` taps."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    taps: int
    tiled: bool = False
    """As in `LinearAttentionShape`."""
    activation: str = "silu"
    """Of the gate of its result."""

    def __post_init__(self) -> None:
        _check_heads(self.key_heads, self.value_heads)


@dataclass(frozen=True, slots=True)
class Mamba:
    """A Mamba-2 mixer (arXiv 2405.21060): `heads` of `head_dim` values, `groups` of heads that share their
    `state` keys and queries, its inputs convolved with `taps` taps.
    """

    heads: int
    head_dim: int
    groups: int
    state: int
    taps: int
    norm_groups: int = 1
    """The parts of a row that are normed each alone."""
    norm: bool | None = True
    """Whether the result is normed; None: if the file has the norm."""
    norm_first: bool = False
    """Whether it is normed before it is gated."""
    least_step: float = 0.0
    """Shorter steps are made as long as this."""

    def __post_init__(self) -> None:
        if self.heads % self.groups:
            raise BadCheckpoint(
                _(
                    "The model's Mamba layers have {heads} heads and {groups} groups; the first "
                    "must be a multiple.",
                    heads=self.heads,
                    groups=self.groups,
                )
            )


@dataclass(frozen=True, slots=True)
class SeparateDelta:
    """A delta net whose queries, keys and values are made and convolved each alone (OLMo Hybrid, and Kimi
    delta attention, arXiv 2510.26692).
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    taps: int
    norm_eps: float
    activation: str
    """Of the gate that multiplies the result."""
    decays: str = "head"
    """As in `LinearAttentionShape`."""
    rank: int = 0
    """Numbers between the two matrices that make decay and gate; 0, or without a second name: one does."""
    doubled: bool = False
    """Whether strengths are from 0 to 2 instead of 1."""
    bound: float = 0.0
    """As in `LinearAttentionShape`."""

    def __post_init__(self) -> None:
        _check_heads(self.key_heads, self.value_heads)


@dataclass(frozen=True, slots=True)
class SelectiveScan:
    """A Mamba mixer (arXiv 2312.00752) of this many `channels`, each with `state` numbers, its inputs
    convolved with `taps` taps; steps come from `rank` numbers.
    """

    channels: int
    state: int
    taps: int
    rank: int
    norms: str = ""
    """The norms of these numbers, keys and queries: "", "weights" (Jamba) or "bare" (Falcon Mamba)."""
    norm_eps: float = 0.0
    heads: int = 0
    """Heads of channels that each decay as one (PLaMo 2); 0: each channel's numbers decay alone."""


@dataclass(frozen=True, slots=True)
class HeadedScan:
    """A Mamba mixer whose channels are `heads` of `dim`, each with matrices of its own for steps, keys and
    queries (Zamba); otherwise as `SelectiveScan`.
    """

    heads: int
    dim: int
    state: int
    taps: int
    rank: int


@dataclass(frozen=True, slots=True)
class GatedUnit:
    """A real-gated linear recurrent unit (RG-LRU, arXiv 2402.19427) of this many `channels`, convolved with
    `taps` taps, whose gates are made by matrices of `heads` parts.
    """

    channels: int
    heads: int
    taps: int


@dataclass(frozen=True, slots=True)
class Rwkv7:
    """RWKV-7 (arXiv 2503.14456): `heads` of `key_dim` keys and `value_dim` values. What is made of a row is
    made of a mixture with the row before it.
    """

    heads: int
    key_dim: int
    value_dim: int
    ranks: tuple[int, int, int, int]
    """Numbers between the two matrices that make decays, rates, the share of the first layer's values, and
    the gate; 0 for the last: there is none.
    """
    norm_eps: float
    """Of the norm of each head's result; 0: there is none."""
    mixes_channels: bool = True
    """Whether the feed-forward part's input is such a mixture, too."""


@dataclass(frozen=True, slots=True)
class Rwkv4:
    """RWKV-4 (arXiv 2305.13048): weighted means of this many `channels`. What is made of a row is made of a
    mixture with the row before it.
    """

    channels: int
    halved_every: int = 0
    """After this many layers the sum of what they made is halved, and what later ones make is; 0: never."""


@dataclass(frozen=True, slots=True)
class Rwkv6:
    """RWKV-6 (arXiv 2404.05892): `heads` of `dim` numbers, with keys and values of `groups` of them. What is
    made of a row is made of mixtures with the row before it, whose shares `rank` numbers make, and decays
    `decay_rank`.
    """

    heads: int
    groups: int
    dim: int
    rank: int
    decay_rank: int
    norm_eps: float
    """Of the norm of each head's result."""
    gated: bool = False
    """Whether keys take the place of what decays, results are not normed, and feed-forward parts are plain
    (attention that was converted, arXiv 2501.15570).
    """
    halved_every: int = 0
    """After this many layers the sum of what they made is halved; 0: never."""

    def __post_init__(self) -> None:
        if self.heads % self.groups:
            raise BadCheckpoint(
                _(
                    "The model has {heads} heads and {kv_heads} key/value heads; the first "
                    "must be a multiple.",
                    heads=self.heads,
                    kv_heads=self.groups,
                )
            )


@dataclass(frozen=True, slots=True)
class MatrixLstm:
    """An LSTM whose memory is a matrix (arXiv 2405.04517): `heads` of `key_dim` keys and `value_dim` values,
    with gates soft-capped at `cap`.
    """

    heads: int
    key_dim: int
    value_dim: int
    norm_eps: float
    """Of the layer norm of each head's result."""
    cap: float


@dataclass(frozen=True, slots=True)
class Lightning:
    """Lightning attention (arXiv 2501.08313): linear attention of `heads` heads of `dim` numbers, each with a
    decay of its own that is the same at each step.
    """

    heads: int
    dim: int
    norm_eps: float
    norm_groups: int = 1
    """The equal parts of a row of results that are normed apart."""
    rotated: bool = False
    """Whether queries and keys are normed and rotated, and queries scaled, as those of attention are
    (Ring-linear, arXiv 2510.19338); otherwise an activation changes them and the values.
    """


@dataclass(frozen=True, slots=True)
class SharedBlocks:
    """Attention and a feed-forward part before some layers, whose weights these share; both read the
    embeddings, too (Zamba, arXiv 2405.16712).
    """

    count: int
    """How many there are, used in turn."""
    rank: int = 0
    """Of what each layer adds to the matrix inside the feed-forward part; 0: nothing."""
    attention_rank: int = 0
    """The same of the matrices of queries, keys and values."""


Recurrent = (
    ConvolvedHeads
    | ConvolvedKeys
    | GatedValues
    | RelativeHeads
    | ShortConvolution
    | DeltaNet
    | Mamba
    | SeparateDelta
    | SelectiveScan
    | HeadedScan
    | GatedUnit
    | Rwkv7
    | Rwkv6
    | Rwkv4
    | MatrixLstm
    | Lightning
)


def state_parts(recurrent: Recurrent | None, width: int, layer: int = 0) -> tuple[StateShape, ...]:
    """The parts of a state that a recurrent layer of a model of this `width` has; all have as many."""
    match recurrent:
        case None:
            return ()
        case ConvolvedHeads() | GatedValues():
            return recurrent.parts
        case ConvolvedKeys():
            return recurrent.parts(layer)
        case RelativeHeads():
            return recurrent.parts(width, layer)
        case ShortConvolution(taps):
            return (ConvolutionShape(width, taps),)
        case DeltaNet(groups, heads, key_dim, value_dim, taps, tiled):
            channels = 2 * groups * key_dim + heads * value_dim
            shape = LinearAttentionShape(groups, heads, key_dim, value_dim, True, tiled)
            return ConvolutionShape(channels, taps), shape
        case Mamba(heads, head_dim, groups, state, taps):
            channels = heads * head_dim + 2 * groups * state
            return (
                ConvolutionShape(channels, taps),
                LinearAttentionShape(groups, heads, state, head_dim, False),
            )
        case SeparateDelta(groups, heads, key_dim, value_dim, taps):
            keys = ConvolutionShape(groups * key_dim, taps)
            values = ConvolutionShape(heads * value_dim, taps)
            return keys, keys, values, separate_delta_shape(recurrent)
        case SelectiveScan(channels, _, taps):
            return ConvolutionShape(channels, taps), scan_shape(recurrent)
        case HeadedScan(heads, dim, _, taps):
            return ConvolutionShape(heads * dim, taps), headed_scan_shape(recurrent)
        case GatedUnit(channels, _, taps):
            return ConvolutionShape(channels, taps), gated_unit_shape(recurrent)
        case MatrixLstm():
            return matrix_lstm_shapes(recurrent)
        case Lightning():
            return (lightning_shape(recurrent),)
        case Rwkv7():
            shifts = 5 + (recurrent.ranks[3] > 0) + recurrent.mixes_channels
            return rwkv_shape(recurrent), *(ConvolutionShape(width, 2),) * shifts
        case Rwkv4(channels):
            return MeanShape(channels), *(ConvolutionShape(width, 2),) * 5
        case Rwkv6():
            shifts = 2 if recurrent.gated else 4
            return rwkv_6_shape(recurrent), *(ConvolutionShape(width, 2),) * shifts


def scan_shape(kind: SelectiveScan) -> LinearAttentionShape:
    """The linear attention of a `SelectiveScan`: of its heads, or one whose numbers each decay alone."""
    if kind.heads:
        return LinearAttentionShape(1, kind.heads, kind.state, kind.channels // kind.heads, False)
    return LinearAttentionShape(1, 1, kind.state, kind.channels, False, decays="value")


def headed_scan_shape(kind: HeadedScan) -> LinearAttentionShape:
    """The linear attention of a `HeadedScan`."""
    return LinearAttentionShape(kind.heads, kind.heads, kind.state, kind.dim, False, decays="value")


def gated_unit_shape(kind: GatedUnit) -> LinearAttentionShape:
    """The linear attention of a `GatedUnit`."""
    return LinearAttentionShape(1, 1, 1, kind.channels, False, decays="value", unit=True)


def lightning_shape(kind: Lightning) -> LinearAttentionShape:
    """The linear attention of a `Lightning`."""
    return LinearAttentionShape(kind.heads, kind.heads, kind.dim, kind.dim, False)


def matrix_lstm_shapes(kind: MatrixLstm) -> tuple[LinearAttentionShape, LinearAttentionShape]:
    """The linear attention of a `MatrixLstm`: of its values, and of ones."""
    memory, sums = (
        LinearAttentionShape(kind.heads, kind.heads, kind.key_dim, values, False)
        for values in (kind.value_dim, 1)
    )
    return memory, sums


def rwkv_shape(kind: Rwkv7) -> LinearAttentionShape:
    """The matrices of an `Rwkv7`."""
    return LinearAttentionShape(kind.heads, kind.heads, kind.key_dim, kind.value_dim, True, decays="key")


def rwkv_6_shape(kind: Rwkv6) -> LinearAttentionShape:
    """The matrices of an `Rwkv6`."""
    return LinearAttentionShape(kind.groups, kind.heads, kind.dim, kind.dim, False, decays="key")


def separate_delta_shape(kind: SeparateDelta) -> LinearAttentionShape:
    """The linear attention of a `SeparateDelta`."""
    return LinearAttentionShape(
        kind.key_heads,
        kind.value_heads,
        kind.key_dim,
        kind.value_dim,
        True,
        decays=kind.decays,
        bound=kind.bound,
    )


@dataclass(frozen=True, slots=True)
class Multipliers:
    """What Falcon-H1 multiplies: inputs and outputs of attention and of Mamba-2, keys, the parts of what
    Mamba's input matrix makes (gate, values, keys, queries, steps), the gate and the output of feed-forward.
    """

    attention_input: float = 1.0
    attention_output: float = 1.0
    keys: float = 1.0
    mamba_input: float = 1.0
    mamba_output: float = 1.0
    mamba_parts: tuple[float, ...] = (1.0,) * 5
    mlp_gate: float = 1.0
    mlp_output: float = 1.0


PLAIN = Multipliers()
"""Nothing is multiplied."""
