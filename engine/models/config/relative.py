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
