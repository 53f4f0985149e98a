"""When a reply ends."""

from __future__ import annotations

from engine.fields import Settings, setting, within
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True)
class StopSettings(Settings):
    """When a reply ends. The model's own end-of-turn tokens always end it."""

    max_tokens: int = setting(
        2048,
        "Max tokens",
        "The maximum length of a reply in tokens. With 0 it can continue until the context is full.",
        **within(0, 1 << 20, step=64, slider_high=8192),
        neutral=0,
        unit="tokens",
    )
    min_tokens: int = setting(
        0,
        "Min tokens",
        "The number of tokens before which the model's end-of-turn tokens cannot be sampled.",
        **within(0, 1 << 20, step=1, slider_high=1024),
        neutral=0,
        unit="tokens",
        advanced=True,
    )
    stop_strings: tuple[str, ...] = setting(
        (), "Stop strings", "End the reply before any of these texts.", multiline=True
    )
    stop_regex: str = setting(
        "", "Stop expression", "End the reply where this regular expression first matches.", neutral=""
    )
    stop_token_ids: tuple[int, ...] = setting(
        (), "Stop token ids", "End the reply at any of these token ids.", low=0, advanced=True
    )
    keep_stop: bool = setting(
        False, "Keep the stop text", "Keep the text that ended the reply.", neutral=False
    )
    time_limit: float = setting(
        0.0,
        "Time limit",
        "The maximum time for a reply, counted from its first token.",
        **within(0.0, 86400.0, step=1.0, slider_high=600.0),
        neutral=0.0,
        unit="seconds",
    )
    loop_window: int = setting(
        0,
        "Loop window",
        "The number of last tokens to check for one passage repeated over and over, which ends the reply.",
        **within(0, 1 << 16, step=8, slider_high=512),
        neutral=0,
        unit="tokens",
    )
    loop_repeats: int = setting(
        4,
        "Loop repeats",
        "The minimum number of times that the passage must occur in the loop window.",
        **within(2, 1000, step=1, slider_high=20),
        advanced=True,
    )
    when_full: str = setting(
        "drop_oldest",
        "When the context is full",
        "What to do when the chat and the reply no longer fit in the context.",
        choices=(("drop_oldest", "Drop the oldest messages"), ("stop", "Stop the reply")),
    )
