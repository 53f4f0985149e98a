"""What hyper-connections and layers that run several times are, as read from a model's headers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HyperConnections:
    """Several streams of rows in place of one (arXiv 2409.19606): each half of a layer reads a weighted sum
    of them and adds its result, weighted, to each.
    """

    streams: int
    magnitude: float
    """Multiplies the sigmoids that weigh a result; those that weigh what a half reads stand alone."""
    eps: float
    """Added to all weights."""


@dataclass(frozen=True, slots=True)
class Cycles:
    """Two stacks of layers that run in turns; see `CyclicBlocks`."""

    layers: int
    """Of each stack."""
    slow: int
    """How often the second one runs."""
    fast: int
    """How often the first one runs before each run of the second."""


@dataclass(frozen=True, slots=True)
class GatedStreams:
    """Several streams of rows of which a half of a layer reads the mean of gated numbers (Qwen 4): gates are
    made by two matrices with `rank` numbers between them.
    """

    streams: int
    rank: int
