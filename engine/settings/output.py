"""What is reported of each token, and how often."""

from __future__ import annotations

from dataclasses import dataclass

from engine.fields import Settings, setting, within


@dataclass(frozen=True)
class OutputSettings(Settings):
    """What is reported about each token, and how often."""

    alternatives: int = setting(
        5,
        "Alternatives kept",
        "How many likely tokens are kept for each place, for the token inspector.",
        **within(0, 50, step=1, slider_high=20),
        neutral=0,
    )
    stream_interval: int = setting(
        1,
        "Stream interval",
        "Text is shown every this many tokens.",
        **within(1, 100, step=1, slider_high=20),
        unit="tokens",
        advanced=True,
    )
    show_special: bool = setting(
        False,
        "Show special tokens",
        "Control tokens appear as text instead of being hidden.",
        neutral=False,
        advanced=True,
    )
