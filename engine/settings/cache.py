"""The key/value cache."""

from __future__ import annotations

from dataclasses import dataclass

from engine.fields import Settings, setting, within


@dataclass(frozen=True)
class CacheSettings(Settings):
    """The key/value cache."""

    context_length: int = setting(
        0,
        "Context length",
        "Tokens the model can see at once; 0 takes the model's own length, at most 8192.",
        **within(0, 1 << 20, step=256, slider_high=32768),
        words=((0, "auto"),),
        unit="tokens",
    )
    dtype: str = setting(
        "auto",
        "Cache type",
        "How keys and values are stored: fewer bits hold more text in the same memory; automatic is FP16, "
        "on the reference FP32.",
        choices=(
            ("auto", "Automatic"),
            ("fp32", "FP32"),
            ("fp16", "FP16"),
            ("fp8", "FP8"),
            ("q8", "Q8"),
            ("q6", "Q6 (8-bit keys, 4-bit values)"),
            ("q4", "Q4"),
        ),
    )
    value_dtype: str = setting(
        "same",
        "Cache type of the values",
        "Another type for the values than for the keys.",
        advanced=True,
        choices=(
            ("same", "As the cache type"),
            ("fp32", "FP32"),
            ("fp16", "FP16"),
            ("fp8", "FP8"),
            ("q8", "Q8"),
            ("q4", "Q4"),
        ),
    )
    memory: int = setting(
        0,
        "Memory for conversations",
        "Room for the caches of several conversations, so that going back to one need not read it again; "
        "at least one context is always held, and 0 chooses by the free memory.",
        **within(0, 1 << 20, step=64, slider_high=16384),
        words=((0, "auto"),),
        unit="MiB",
    )
    keep_on_disk: bool = setting(
        False,
        "Keep caches on disk",
        "Save a conversation's cache when the model is closed and take it up again at the next start.",
        advanced=True,
    )
