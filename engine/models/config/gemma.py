"""What Gemma 3n and Gemma 4 have besides attention and feed-forward parts."""

from __future__ import annotations

from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PerLayer:
    """A second embedding of each token for every layer, `width` numbers each (Gemma 3n, Gemma 4).

    Its table has `vocab_size` rows; further tokens take the first.
    """

    width: int
    vocab_size: int


@dataclass(frozen=True, slots=True)
class AltUp:
    """Layers over `inputs` versions of each row (arXiv 2301.13310), of which the layer itself reads the
    `active` one; see `engine.models.layers.residual.altup`.
    """

    inputs: int
    active: int
    scaled: bool
    """Whether a weight multiplies the row that the second embedding's gate reads."""
    rank: int
    """Of the low-rank path beside attention (LAuReL, arXiv 2411.07501)."""
    deviations: tuple[float | None, ...]
    """For each layer, how many standard deviations above the mean a gate has to be to count; None: any."""


@dataclass(frozen=True, slots=True)
class AltUpNames:
    """The names of what AltUp and LAuReL add to a layer; `scale` is a full name."""

    router: str
    router_norm: str
    predict: str
    correct: str
    scale: str
    left: str
    right: str
    laurel_norm: str
