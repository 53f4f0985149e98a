"""What a drafter reads of a model's pass besides its tokens (EAGLE-3, arXiv 2503.01840, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.layers.parts import Linear, Norm


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """One matrix times the hidden states (T, E) that come after this many `layers`, joined: (T, F).

    Of `norms` there is one for each state, or one for the joined ones, or none.
    """

    layers: tuple[int, ...]
    fusion: Linear
    norms: tuple[Norm, ...] = ()
    normed_apart: bool = False
    """Whether there is a norm for each state."""

    def __call__(self, ops: Ops, states: Mapping[int, Array]) -> Array:
        """The features of hidden states, by the number of layers before them."""
        parts = [states[layers] for layers in self.layers]
        if self.normed_apart:
            parts = [norm(ops, part) for norm, part in zip(self.norms, parts, strict=True)]
        x = parts[0]
        for part in parts[1:]:
            x = ops.join(x, part, 1)
        if self.norms and not self.normed_apart:
            x = self.norms[0](ops, x)
        return self.fusion(ops, x)

    @property
    def width(self) -> int:
        """F."""
        return self.fusion.weight.shape[0]
