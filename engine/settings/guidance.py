"""Classifier-free guidance."""

from __future__ import annotations

from engine.fields import Settings, setting, within
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True)
class GuidanceSettings(Settings):
    """Classifier-free guidance: away from what a negative system prompt would give.

    Each token costs two passes.
    """

    negative_prompt: str = setting(
        "",
        "Negative system prompt",
        "Describes what the reply should not be like.",
        neutral="",
        multiline=True,
    )
    cfg_scale: float = setting(
        1.0,
        "Guidance scale",
        "How strongly the reply is pushed away from the negative prompt. 1 is off.",
        **within(0.0, 20.0, step=0.1, slider_high=5.0),
        neutral=1.0,
    )
