"""Sampler presets: named sets of sampling values, built in or the user's, and their JSON files."""

from __future__ import annotations

import json
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any

import resources
from desktop.store.database.database import StoreError
from desktop.store.settings.foreign_presets import foreign_settings
from desktop.store.settings.preferences import Preferences, checked_values
from engine.lazy_dataclass import dataclass
from engine.platform.regular_file import regular_file
from engine.platform.whole_file import write_whole
from engine.printable import json_text
from engine.settings import SamplerSettings
from engine.words import _

__all__ = [
    "FORMAT",
    "Preset",
    "all_presets",
    "built_in_presets",
    "find_preset",
    "free_name",
    "preset_of",
    "read_preset",
    "write_preset",
]

FORMAT, VERSION = "inglenook-sampler-preset", 1
MOST_BYTES = 1 << 20
"""A preset is a few hundred bytes; a larger file is something else."""
LONGEST_NAME = 60
_BUILT_IN = ("precise", "balanced", "creative", "long-stories", "steady", "deterministic")


@dataclass(frozen=True, slots=True)
class Preset:
    """`settings` is JSON of the sampling fields it sets. The others have their defaults, except that the seed
    is kept.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    built_in: bool = False

    def over(self, present: SamplerSettings) -> SamplerSettings:
        """The present settings with this preset applied. Raises `BadSetting` for values that no preset can
        have.
        """
        return SamplerSettings(**{"seed": present.seed, **self.settings})


def preset_of(name: str, settings: SamplerSettings) -> Preset:
    """All these values under a name, without the seed: a preset is a way to write, not one text."""
    return Preset(name, {key: value for key, value in settings.to_json().items() if key != "seed"})


@lru_cache(maxsize=1)
def built_in_presets() -> tuple[Preset, ...]:
    """The built-in presets, in the order they are shown."""
    return tuple(
        _parse(json.loads(resources.text(f"presets/{file}.json")), "", built_in=True)[0] for file in _BUILT_IN
    )


def all_presets(preferences: Preferences) -> tuple[Preset, ...]:
    """The built-in presets, then the user's by name; invalid values are left out."""
    own = sorted(preferences.presets.items(), key=lambda item: item[0].casefold())
    return (
        *built_in_presets(),
        *(Preset(name, _plain(checked_values(SamplerSettings, values)[0])) for name, values in own),
    )


def find_preset(preferences: Preferences, name: str) -> Preset | None:
    return next((preset for preset in all_presets(preferences) if preset.name == name), None)


def free_name(name: str, taken: frozenset[str]) -> str:
    """`name`, shortened, and with a number if it is taken (ignoring case)."""
    base = " ".join(name.split())[:LONGEST_NAME].strip() or _("Preset")
    lower = {other.casefold() for other in taken}
    found, count = base, 1
    while found.casefold() in lower:
        count += 1
        found = f"{base} {count}"
    return found


def write_preset(path: Path, preset: Preset) -> None:
    """Write one preset as a JSON file. Raises `StoreError`."""
    data = {"format": FORMAT, "version": VERSION, "name": preset.name, "settings": preset.settings}
    try:
        write_whole(path, json_text(json.dumps(data, indent=2, ensure_ascii=False)) + "\n")
    except OSError as error:
        raise StoreError(
            _(
                "The preset cannot be saved as {path} ({strerror}). Choose another place.",
                path=path,
                strerror=error.strerror,
            )
        ) from error


def read_preset(path: Path) -> tuple[Preset, tuple[str, ...]]:
    """Read a preset of this or another program from a JSON file; also returns the names in it that have no
    counterpart.

    Raises `StoreError` if the file cannot be read or is not a preset.
    """
    try:
        regular_file(path)
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise StoreError(
            _("The file {path} cannot be read ({strerror}).", path=path.name, strerror=error.strerror)
        ) from error
    try:
        data = json.loads(content.decode("utf-8-sig")) if len(content) <= MOST_BYTES else None
    except (ValueError, RecursionError):  # not JSON, or not UTF-8
        data = None
    if not isinstance(data, dict):
        raise StoreError(
            _("{path} is not a preset: it must be a JSON object of sampler settings.", path=path.name)
        )
    return _parse(data, path.stem)


def _parse(data: dict[str, Any], name: str, built_in: bool = False) -> tuple[Preset, tuple[str, ...]]:
    given = data.get("name")
    name = given if isinstance(given, str) and given.strip() else name
    if data.get("format") == FORMAT:
        version, settings = data.get("version"), data.get("settings")
        if not isinstance(version, int) or version > VERSION:
            raise StoreError(
                _(
                    "The preset {name} was saved by a newer version of Inglenook. Update "
                    "Inglenook, then import it again.",
                    name=name,
                )
            )
        if not isinstance(settings, dict):
            raise StoreError(_("The preset {name} is damaged: it has no settings.", name=name))
        good, _unused = checked_values(SamplerSettings, settings)
        return Preset(name, _plain(good), built_in), tuple(key for key in settings if key not in good)
    values, unknown = foreign_settings(data)
    if not values:
        raise StoreError(_("{name} is not a preset: it contains no sampler settings.", name=name))
    return Preset(name, _plain(values), built_in), unknown


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
