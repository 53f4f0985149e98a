"""What is reported of each token, and how often."""

from __future__ import annotations

from engine.fields import Settings, setting, within
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True)
class OutputSettings(Settings):
    """What is reported about each token, and how often."""

    alternatives: int = setting(
        5,
        "Saved alternatives",
        "The number of most likely tokens to save at each position. They are shown with token colours.",
        **within(0, 50, step=1, slider_high=20),
        neutral=0,
    )
    stream_interval: int = setting(
        1,
        "Stream interval",
        "The number of tokens after which text is shown.",
        **within(1, 100, step=1, slider_high=20),
        unit="tokens",
        advanced=True,
    )
    show_special: bool = setting(
        False,
        "Show special tokens",
        "Show control tokens as text instead of hiding them.",
        neutral=False,
        advanced=True,
    )
