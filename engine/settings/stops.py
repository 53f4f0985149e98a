"""When a reply ends."""

from __future__ import annotations

from dataclasses import dataclass

from engine.fields import Settings, setting, within


@dataclass(frozen=True)
class StopSettings(Settings):
    """When a reply ends. The model's own end-of-turn tokens always end it."""

    max_tokens: int = setting(
        2048,
        "Max tokens",
        "The longest reply in tokens; 0 goes on until the context is full.",
        **within(0, 1 << 20, step=64, slider_high=8192),
        neutral=0,
        unit="tokens",
    )
    min_tokens: int = setting(
        0,
        "Min tokens",
        "The model's own end-of-turn tokens cannot be sampled before this many tokens.",
        **within(0, 1 << 20, step=1, slider_high=1024),
        neutral=0,
        unit="tokens",
        advanced=True,
    )
    stop_strings: tuple[str, ...] = setting(
        (), "Stop strings", "The reply ends before any of these texts.", multiline=True
    )
    stop_regex: str = setting(
        "", "Stop expression", "The reply ends where this regular expression first matches.", neutral=""
    )
    stop_token_ids: tuple[int, ...] = setting(
        (), "Stop token ids", "The reply ends at any of these token ids.", low=0, advanced=True
    )
    keep_stop: bool = setting(
        False, "Keep the stop text", "The text that ended the reply stays at its end.", neutral=False
    )
    time_limit: float = setting(
        0.0,
        "Time limit",
        "The longest time a reply may take, counted from its first token.",
        **within(0.0, 86400.0, step=1.0, slider_high=600.0),
        neutral=0.0,
        unit="seconds",
    )
    loop_window: int = setting(
        0,
        "Loop window",
        "The reply ends when its last this many tokens repeat one passage over and over.",
        **within(0, 1 << 16, step=8, slider_high=512),
        neutral=0,
        unit="tokens",
    )
    loop_repeats: int = setting(
        4,
        "Loop repeats",
        "How often at least the passage must fill the loop window.",
        **within(2, 1000, step=1, slider_high=20),
        advanced=True,
    )
    when_full: str = setting(
        "drop_oldest",
        "When the context is full",
        "What happens when conversation and reply no longer fit.",
        choices=(("drop_oldest", "Drop the oldest turns"), ("stop", "Stop and say so")),
    )
