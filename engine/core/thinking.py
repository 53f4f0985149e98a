"""Which of a model's thinking levels stands for one that is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from engine.settings.thinking import AUTO, EFFORTS, OFF, ON

__all__ = ["nearest_level"]


def nearest_level(asked: str, levels: Sequence[str], default: str = "") -> str:
    """The one of `levels` for a value of `ThinkingSettings.thinking`, "" to leave the choice to the template.

    `default` is the level that the template takes by itself, "" if it is none of them. A model that cannot
    be switched off takes its weakest level instead; one that is only switched on or off thinks at every
    level above "minimal".
    """
    if asked == AUTO or not levels:
        return ""
    if asked in levels:
        return asked
    efforts = [level for level in levels if level in EFFORTS]
    if not efforts:
        return OFF if asked == "minimal" and OFF in levels else ON
    if asked == ON and default != OFF:
        return ""
    ranks = {level: place for place, level in enumerate((OFF, *EFFORTS))}
    ranks[ON] = ranks["high"]
    target = ranks[asked]
    able = [level for level in (*efforts, ON) if level in levels]
    return min(able, key=lambda level: (abs(ranks[level] - target), -ranks[level]))
