"""The key/value cache."""

from __future__ import annotations

from engine.fields import Settings, setting, within
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True)
class CacheSettings(Settings):
    """The key/value cache."""

    context_length: int = setting(
        0,
        "Context length",
        "The number of tokens that the model can process at once. With 0 it is the model's own "
        "length, up to 8192.",
        **within(0, 1 << 20, step=256, slider_high=32768),
        words=((0, "auto"),),
        unit="tokens",
    )
    dtype: str = setting(
        "auto",
        "Cache type",
        "The number format of keys and values in the cache. Fewer bits hold more text in the same "
        "memory. Automatic is FP16 (FP32 on the reference device).",
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
        "Cache type of values",
        "A separate type for the values.",
        advanced=True,
        choices=(
            ("same", "Same as the cache type"),
            ("fp32", "FP32"),
            ("fp16", "FP16"),
            ("fp8", "FP8"),
            ("q8", "Q8"),
            ("q4", "Q4"),
        ),
    )
    memory: int = setting(
        0,
        "Memory for chats",
        "The memory for the caches of several chats, so that returning to a chat does not require "
        "reading it again. At least one context is always kept. With 0 it depends on the free memory.",
        **within(0, 1 << 20, step=64, slider_high=16384),
        words=((0, "auto"),),
        unit="MiB",
    )
    keep_on_disk: bool = setting(
        False,
        "Keep caches on disk",
        "Save the cache of a chat when the model is closed, and load it at the next start.",
        advanced=True,
    )
