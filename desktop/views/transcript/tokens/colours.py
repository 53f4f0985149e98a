"""Colours of tokens: a likely token has the background's colour, an unlikely or uncertain one a
strong tint.
"""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtGui import QColor

from desktop.store.conversations.token_trace import UNKNOWN, TokenTrace
from engine.lazy_dataclass import dataclass

__all__ = ["ENTROPY", "MOST_ENTROPY", "PROBABILITY", "TokenView", "ramp", "step_of", "strength", "tint"]

PROBABILITY, ENTROPY = "probability", "entropy"
MOST_ENTROPY = 4.0
"""Nats at which the tint is strongest: as uncertain as 55 equally likely tokens."""
_STEPS = 48
_RAMPS = {
    (PROBABILITY, False): ("#fbf9f6", "#f8e2a0", "#ee9374"), (PROBABILITY, True): ("#1f1c1a", "#5a4a1e",
    "#8d3c26"),
    (ENTROPY, False): ("#fbf9f6", "#cfe3ee", "#8fb7e8"), (ENTROPY, True): ("#1f1c1a", "#24434f", "#36568f"),
}  # fmt: skip
"""From the background over a middle to the strongest tint; each has a contrast of at least 4.5:1 with the
text of its scheme.
"""


@dataclass
class TokenView:
    """What all token rows share: how they are tinted, and the token under the pointer or the cursor as
    (message, index).
    """

    mode: str = PROBABILITY
    marked: tuple[int, int] = (0, -1)


def strength(mode: str, trace: TokenTrace, index: int) -> float:
    """How strongly a token is tinted, 0 to 1: the probability of all other tokens, or its entropy."""
    if trace.ids[index] == UNKNOWN:
        return 0.0
    value = 1 - trace.raw[index] if mode == PROBABILITY else trace.entropies[index] / MOST_ENTROPY
    return min(1.0, max(0.0, value))


def tint(mode: str, dark: bool, ground: QColor, amount: float) -> QColor:
    """The colour for an amount from 0 (the background, `ground`) to 1, one of 48."""
    return ramp(mode, dark, ground.name())[step_of(min(1.0, max(0.0, amount)))]


def step_of(amount: float) -> int:
    """The index in `ramp` of the colour for an amount from 0 to 1."""
    return round(amount * (_STEPS - 1))


@lru_cache(maxsize=16)
def ramp(mode: str, dark: bool, ground: str) -> tuple[QColor, ...]:
    """All 48 colours of a mode, from the background ("#rrggbb") to the strongest."""
    _, middle, end = _RAMPS[mode, dark]
    stops = [_oklab(QColor(name)) for name in (ground, middle, end)]
    made = []
    for step in range(_STEPS):
        place = 2 * step / (_STEPS - 1)
        first = min(1, int(place))
        share = place - first
        made.append(
            _colour([a + (b - a) * share for a, b in zip(stops[first], stops[first + 1], strict=True)])
        )
    return tuple(made)


def _oklab(colour: QColor) -> list[float]:
    """The colour in Oklab: lightness and two opponent colours in perceptually even steps.

    Source: https://bottosson.github.io/posts/oklab/
    """
    parts = (colour.redF(), colour.greenF(), colour.blueF())
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    middle = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return [
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    ]


def _colour(lab: list[float]) -> QColor:
    """The inverse of `_oklab`, clamped to sRGB."""
    light, a, b = lab
    long = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (light - 0.0894841775 * a - 1.2914855480 * b) ** 3
    parts = (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )
    bent = [
        12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055
        for c in (min(1.0, max(0.0, part)) for part in parts)
    ]
    return QColor.fromRgbF(bent[0], bent[1], bent[2])
