"""The levels a setting's value goes through, lowest first: which one has the last word, and what lies
below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from desktop.store.conversations.inheritance import Layer
from desktop.store.settings.preferences import checked_values
from desktop.store.settings.presets import Preset
from engine.settings import SamplerSettings, Settings

__all__ = [
    "FROM_FOLDER",
    "FROM_PERSONA",
    "Around",
    "Level",
    "around_of",
    "below",
    "levels_with",
    "merged",
    "source_of",
]

FROM_FOLDER, FROM_PERSONA = "folder ", "persona "
"""How the source of a value begins that comes from a folder or a persona; its name follows."""


@dataclass(frozen=True, slots=True)
class Level:
    """Values of one settings class and where they come from.

    A `fixed` level stays as it is when a value is reset.
    """

    source: str
    values: Mapping[str, Any]
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Around:
    """A folder or persona that a conversation takes values from, by settings class name."""

    source: str
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    preset: str = ""


def merged(levels: Sequence[Level]) -> dict[str, Any]:
    """The values in force."""
    return {name: value for level in levels for name, value in level.values.items()}


def source_of(levels: Sequence[Level], name: str) -> str:
    """Where the value in force comes from. Raises `StopIteration` for a name that no level has."""
    return next(level.source for level in reversed(levels) if name in level.values)


def below(levels: Sequence[Level], name: str) -> Any:
    """The value under the topmost level that has one and is not fixed; without such a level, the value in
    force.
    """
    places = [place for place, level in enumerate(levels) if name in level.values and not level.fixed]
    lower = levels[: places[-1]] if places else levels
    return next(level.values[name] for level in reversed(lower) if name in level.values)


def levels_with(levels: Sequence[Level], name: str) -> tuple[tuple[str, Any], ...]:
    """Each source that says something about `name`, with its value, lowest first."""
    return tuple((level.source, level.values[name]) for level in levels if name in level.values)


def around_of(
    layers: Sequence[Layer], classes: Sequence[type[Settings]], find: Callable[[str], Preset | None]
) -> tuple[tuple[Around, ...], tuple[str, ...]]:
    """What the folders and the persona among `layers` say, outermost first, and a sentence for each value
    that is not usable.

    A persona says what the preset says that `find` gives for its name.
    """
    made: list[Around] = []
    problems: tuple[str, ...] = ()
    for layer in layers:
        if layer.source == "persona":
            preset = find(layer.preset) if layer.preset else None
            values = {SamplerSettings.__name__: _preset_values(preset)} if preset is not None else {}
            made.append(Around(FROM_PERSONA + layer.name, values, layer.preset if preset is not None else ""))
        elif layer.source == "folder":
            own: dict[str, Mapping[str, Any]] = {}
            for cls in classes:
                own[cls.__name__], found = checked_values(cls, layer.settings.get(cls.__name__))
                problems += found
            made.append(Around(FROM_FOLDER + layer.name, own))
    return tuple(made), problems


def _preset_values(preset: Preset) -> dict[str, Any]:
    """All values that a preset makes; the seed only where it says one."""
    values = checked_values(SamplerSettings, preset.over(SamplerSettings()).to_json())[0]
    return {name: value for name, value in values.items() if name != "seed" or name in preset.settings}
