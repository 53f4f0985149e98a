"""What convolutions of keys and values are, and the parts of a state that they have."""

from __future__ import annotations

from engine.backends.states import ConvolutionShape
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ConvolvedHeads:
    """Convolutions of the queries of `heads` and the keys of `groups`, each of `dim` numbers (arXiv
    2510.04476). `taps` are those of each channel, and those of matrices after them. Half of the values are
    those of the row before.
    """

    heads: int
    groups: int
    dim: int
    taps: tuple[int, int]

    @property
    def queries(self) -> int:
        """The channels of queries."""
        return self.heads * self.dim

    @property
    def channels(self) -> int:
        """Those of queries and keys."""
        return self.queries + self.groups * self.dim

    @property
    def parts(self) -> tuple[ConvolutionShape, ...]:
        """The parts of a layer's state: the rows that each tap of the matrices needs, and values."""
        first, second = self.taps
        taps = (max(2, first + second - 1 - tap) for tap in range(second))
        both = [ConvolutionShape(self.channels, each) for each in taps]
        return *both, ConvolutionShape(self.groups * self.dim // 2, 2)


@dataclass(frozen=True, slots=True)
class GatedValues:
    """What stands in place of attention (Gear): values of `groups` heads of `dim` numbers, convolved with
    `taps` taps, with gates made of queries of `heads` and of keys that are convolved, too.
    """

    heads: int
    groups: int
    dim: int
    taps: int

    @property
    def parts(self) -> tuple[ConvolutionShape, ...]:
        """The parts of a layer's state: keys and values."""
        return (ConvolutionShape(self.groups * self.dim, self.taps),) * 2


@dataclass(frozen=True, slots=True)
class ConvolvedKeys:
    """Convolutions of the keys and the values of attention, before rope (Baichuan M1). `widths` are the
    numbers of a row's keys in each layer.
    """

    widths: tuple[int, ...]
    taps: int

    def parts(self, layer: int) -> tuple[ConvolutionShape, ...]:
        """The parts of a layer's state: keys and values."""
        return (ConvolutionShape(self.widths[layer], self.taps),) * 2
