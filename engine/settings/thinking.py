"""How much a model thinks before it answers."""

from __future__ import annotations

from engine.fields import Settings, setting
from engine.lazy_dataclass import dataclass

AUTO, OFF, ON = "auto", "off", "on"

EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""The levels that chat templates have, weakest first."""


@dataclass(frozen=True)
class ThinkingSettings(Settings):
    """Whether the model thinks before it answers, and how much."""

    thinking: str = setting(
        AUTO,
        "Thinking",
        "How much the model thinks before it answers, if its chat template has a switch for this. A model "
        "that lacks the chosen level takes the nearest one; automatic is what its authors chose.",
        choices=(
            (AUTO, "Automatic"), (OFF, "Off"), (ON, "On"), ("minimal", "Minimal"), ("low", "Low"),
            ("medium", "Medium"), ("high", "High"), ("xhigh", "Very high"), ("max", "Maximum"),
        ),
        neutral=AUTO,
    )  # fmt: skip
