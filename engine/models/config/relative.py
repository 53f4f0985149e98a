"""What attention with a bias that queries make is, and the parts of a state that its convolutions have."""

from __future__ import annotations

import numpy as np

from engine.backends.states import ConvolutionShape
from engine.lazy_dataclass import dataclass
from engine.tensors import Floats


@dataclass(frozen=True, slots=True)
class RelativeHeads:
    """Attention with a `RelativeBias`, and short convolutions of keys, of values, and of what each half of a
    layer adds (Inkling).

    Each query head weighs `rank` profiles; `extents` are those of each layer, `keys` the width of its keys,
    which is that of its values. The layers `tempered` multiply scores and biases by `factors` of the query's
    position.
    """

    rank: int
    extents: tuple[int, ...]
    keys: tuple[int, ...]
    taps: int
    tempered: frozenset[int] = frozenset()
    floor: int = 0
    growth: float = 0.0

    def parts(self, width: int, layer: int) -> tuple[ConvolutionShape, ...]:
        """The parts of a layer's state: keys, values, and the results of both halves."""
        widths = self.keys[layer], self.keys[layer], width, width
        return tuple(ConvolutionShape(each, self.taps) for each in widths)

    def factors(self, positions: int) -> Floats | None:
        """1 + growth * ln(max((p + 1) / floor, 1)) at positions p, (positions, 1); None: no layer has any."""
        if not self.tempered:
            return None
        shares = np.arange(1, positions + 1, dtype=np.float64) / self.floor
        return (1 + self.growth * np.log(np.maximum(shares, 1))).astype(np.float32)[:, None]


@dataclass(frozen=True, slots=True)
class ClippedHeads(RelativeHeads):
    """The attention of Inkling 2, whose layers read a softmax over sums of earlier layers.

    `order` are the layers of the file as they run. In those of them that are `dynamic`, each row makes taps
    of its own for keys and values. A head of queries or keys is no longer than `clip`, its weights of
    profiles than `profile_clip`. Every `block` layers the sum of what they made is kept. The `passes` of the
    layers from `first` to before `last` of the file follow one another; each hands messages to the next,
    with gates of `gate_rank` numbers. `caps` are the soft caps of the experts' gates, and of what these
    multiply.
    """

    order: tuple[int, ...] = ()
    dynamic: frozenset[int] = frozenset()
    clip: float = 1.0
    profile_clip: float = 1.0
    block: int = 1
    first: int = 0
    last: int = 0
    passes: int = 1
    gate_rank: int = 0
    caps: tuple[float, float] = (1.0, 1.0)

    def parts(self, width: int, layer: int) -> tuple[ConvolutionShape, ...]:
        """As of `RelativeHeads`; dynamic taps need a copy of keys and of values for each tap."""
        wide = self.keys[layer] * (self.taps if layer in self.dynamic else 1)
        return tuple(ConvolutionShape(each, self.taps) for each in (wide, wide, width, width))
