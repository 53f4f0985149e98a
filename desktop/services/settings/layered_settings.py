"""Where a setting's value comes from: built-in and saved defaults, the makers' advice, the model, folders, a
persona, the conversation.

A sampler preset puts its values into the conversation's layer; the layer remembers its name as long as the
conversation goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from desktop.services.settings.levels import Around, Level, below, levels_with, merged, source_of
from desktop.settings import CONVERSATION_SETTINGS, KEPT_FOR_MODELS, Behaviour
from desktop.store.settings.preferences import Preferences, checked_values
from desktop.store.settings.presets import Preset, find_preset
from engine.settings import SamplerSettings, Settings

__all__ = ["FROM_PRESET", "SOURCES", "SettingsLayers"]

SOURCES = ("default", "saved default", "makers", "model", "conversation")
"""What `source_of` can be, besides `FROM_PRESET`, `FROM_FOLDER` and `FROM_PERSONA` with a name behind it."""
FROM_PRESET = "preset "
_PRESET_KEY = "preset"
S = TypeVar("S", bound=Settings)


class SettingsLayers:
    """The settings in force.

    Only `CONVERSATION_SETTINGS` have a conversation layer, and only `KEPT_FOR_MODELS` one of the model.
    """

    def __init__(self, preferences: Preferences) -> None:
        self._preferences = preferences
        self._own: dict[str, dict[str, Any]] = {}
        self._model = ""
        self._kept: dict[str, dict[str, Any]] = {}
        self._advised: dict[str, Any] = {}
        self._preset = ""
        self._preset_values: dict[str, Any] = {}
        self._around: tuple[Around, ...] = ()

    @property
    def model(self) -> str:
        """The path of the model whose layer is in force; empty for none."""
        return self._model

    @property
    def advised(self) -> bool:
        """Whether the makers of the model in force advise anything."""
        return bool(self._advised)

    def enter_model(self, path: str, advised: Mapping[str, Any] | None = None) -> tuple[type[Settings], ...]:
        """Put what is kept for the model at `path` in force ("": nothing is); returns the classes whose
        layers changed.

        `advised` are the sampler settings its makers advise; None: as before, where it is the same model.
        """
        before = {**self._kept, "advised": self._advised}
        if advised is not None:
            self._advised = checked_values(SamplerSettings, advised)[0]
        elif path != self._model:
            self._advised = {}
        self._model = path
        self._kept = {
            cls.__name__: self._preferences.kept(path, cls) if path else {} for cls in KEPT_FOR_MODELS
        }
        changed = {cls for cls in KEPT_FOR_MODELS if before.get(cls.__name__, {}) != self._kept[cls.__name__]}
        if before["advised"] != self._advised:
            changed.add(SamplerSettings)
        return tuple(cls for cls in KEPT_FOR_MODELS if cls in changed)

    @property
    def own(self) -> dict[str, dict[str, Any]]:
        """The conversation's layer, ready for JSON."""
        own = {name: dict(values) for name, values in self._own.items() if values}
        return {**own, _PRESET_KEY: {"name": self._preset}} if self._preset else own

    @property
    def preset(self) -> str:
        """The name of the preset that was chosen last in the conversation, else of its persona's; empty
        when there is none.
        """
        return self._preset or next((around.preset for around in self._around if around.preset), "")

    @property
    def around(self) -> tuple[Around, ...]:
        """The folders and the persona that values are taken from now."""
        return self._around

    def surround(self, around: Sequence[Around]) -> tuple[type[Settings], ...]:
        """The folders, outermost first, and the persona that the conversation takes values from now;
        returns the classes that changed.
        """
        before, self._around = self._around, tuple(around)
        return tuple(cls for cls in CONVERSATION_SETTINGS if _said(before, cls) != _said(self._around, cls))

    def enter(self, own: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take the layer of another conversation; returns a sentence for each value that is not usable."""
        problems: tuple[str, ...] = ()
        self._own = {}
        for cls in CONVERSATION_SETTINGS:
            self._own[cls.__name__], found = checked_values(cls, own.get(cls.__name__))
            problems += found
        chosen = own.get(_PRESET_KEY, {}).get("name")
        self._preset = chosen if isinstance(chosen, str) else ""
        self.look_up_preset()
        return problems

    def standing(self) -> tuple[Any, ...]:
        """The layers of the conversation that is open now, for `stand`."""
        return self._own, self._preset, self._preset_values, self._around

    def stand(self, standing: tuple[Any, ...]) -> None:
        """Go back to the layers of a conversation that was open before; nothing is read for that."""
        self._own, self._preset, self._preset_values, self._around = standing

    def choose_preset(self, preset: Preset) -> None:
        """Put the values of a preset into the conversation's layer: those it names and those that differ
        below.
        """
        wanted = preset.over(self.settings(SamplerSettings)).to_json()
        below = self._under(SamplerSettings)
        own = self._own.get(SamplerSettings.__name__, {})
        kept = {"seed"} & own.keys()
        self._own[SamplerSettings.__name__] = {
            name: value
            for name, value in wanted.items()
            if name in preset.settings or name in kept or value != below[name]
        }
        self._preset = preset.name
        self.look_up_preset()

    def rename_preset(self, old: str, new: str) -> None:
        """The preset the conversation took its values from has another name."""
        if self._preset == old:
            self._preset = new
        self.look_up_preset()

    def look_up_preset(self) -> None:
        """Read the chosen preset's values again; a preset that is gone has none."""
        found = find_preset(self._preferences, self._preset) if self._preset else None
        self._preset_values = {} if found is None else found.over(SamplerSettings()).to_json()
        if found is not None and "seed" not in found.settings:
            del self._preset_values["seed"]

    def settings(self, cls: type[S]) -> S:
        """The values in force."""
        return cls(**merged(self._levels(cls)))

    def below(self, cls: type[S]) -> S:
        """What each value would be after `reset`; a saved default and the makers' advice count as they
        are.
        """
        levels = self._levels(cls)
        return cls(**{name: below(levels, name) for name in cls().to_json()})

    def origins(self, cls: type[Settings]) -> dict[str, tuple[tuple[str, Any], ...]]:
        """For each value, every source that says something about it, with what it says, lowest first."""
        *lower, own = self._levels(cls)
        from_preset = {name for name, value in own.values.items() if self._is_preset_s(cls, name, value)}
        parts = (
            replace(
                own, values={name: value for name, value in own.values.items() if name not in from_preset}
            ),
            Level(FROM_PRESET + self._preset, {name: own.values[name] for name in from_preset}),
        )
        return {name: levels_with([*lower, *parts], name) for name in lower[0].values}

    def _is_preset_s(self, cls: type[Settings], name: str, value: Any) -> bool:
        """Whether an own value is the one that the chosen preset has."""
        return cls is SamplerSettings and value == self._preset_values.get(name, _MISSING)

    def _levels(self, cls: type[Settings]) -> list[Level]:
        """Everything that is said about the values of a class, lowest first, the conversation's own last."""
        saved = self._preferences.settings(cls).to_json()
        name = cls.__name__
        return [
            Level("default", cls().to_json(), fixed=True),
            Level(
                "saved default", {key: saved[key] for key in self._preferences.saved_names(cls)}, fixed=True
            ),
            Level("makers", self._advice(cls), fixed=True),
            Level("model", self._kept.get(name, {})),
            *(Level(around.source, around.values.get(name, {})) for around in self._around),
            Level("conversation", self._own.get(name, {})),
        ]

    def _under(self, cls: type[Settings]) -> dict[str, Any]:
        """The values in force without the conversation's own."""
        return cls(**merged(self._levels(cls)[:-1])).to_json()

    def _advice(self, cls: type[Settings]) -> dict[str, Any]:
        """What the makers advise, as long as the user wants that."""
        wanted = cls is SamplerSettings and self._preferences.settings(Behaviour).makers_advice
        return self._advised if wanted else {}

    def source_of(self, cls: type[Settings], name: str) -> str:
        """One of `SOURCES`, or the beginning of one with a name."""
        own = self._own.get(cls.__name__, {})
        if name in own and self._is_preset_s(cls, name, own[name]):
            return FROM_PRESET + self._preset
        return source_of(self._levels(cls), name)

    def put(self, settings: Settings) -> None:
        """Put these in force: in the conversation's layer where there is one, else with the model or as
        saved defaults.
        """
        cls = type(settings)
        if cls not in CONVERSATION_SETTINGS:
            self._put_below(settings)
            return
        below = self._under(cls)
        before = self._own.get(cls.__name__, {})
        self._own[cls.__name__] = {
            name: value
            for name, value in settings.to_json().items()
            if value != below[name] or before.get(name, _MISSING) == value
        }

    def reset(self, cls: type[Settings], name: str) -> None:
        """Take the topmost layer off one value; the makers' advice stays, and so does what is below it.

        Folders and personas are shared with other conversations: over theirs, the conversation gets the value
        from below as its own.
        """
        if self._own.get(cls.__name__, {}).pop(name, _MISSING) is not _MISSING:
            return
        if any(name in around.values.get(cls.__name__, {}) for around in self._around):
            self._own.setdefault(cls.__name__, {})[name] = below(self._levels(cls), name)
            return
        kept = self._kept.get(cls.__name__, {})
        if kept.pop(name, _MISSING) is not _MISSING:
            self._preferences.keep(self._model, cls, kept)
        elif name not in self._advice(cls):
            self._preferences.forget_setting(cls, name)

    def _put_below(self, settings: Settings) -> None:
        """What is kept for the model stays with it, or a new value would be hidden by the old one; the
        rest are saved defaults.
        """
        cls, values = type(settings), settings.to_json()
        saved, kept = self._preferences.settings(cls).to_json(), self._kept.get(cls.__name__, {})
        now = {name: values[name] for name in kept}
        if now != kept:
            self._kept[cls.__name__] = now
            self._preferences.keep(self._model, cls, now)
        self._preferences.save_settings(cls(**{**values, **{name: saved[name] for name in kept}}))

    def save_as_defaults(self) -> None:
        """Make the conversation's values the saved defaults; its own layer has only what a folder or
        persona would hide.
        """
        for cls in CONVERSATION_SETTINGS:
            saved, own = self._preferences.settings(cls).to_json(), self._own.get(cls.__name__, {})
            kept = self._kept.get(cls.__name__, {})
            hidden = own.keys() & (kept.keys() | self._advice(cls).keys())
            if hidden:  # else what is kept for the model, or what its makers advise, would come back
                self._kept[cls.__name__] = {**kept, **{name: own[name] for name in hidden}}
                self._preferences.keep(self._model, cls, self._kept[cls.__name__])
            self._preferences.save_settings(cls(**{**saved, **own}))
            self._own[cls.__name__] = {
                name: value
                for name, value in own.items()
                if any(name in around.values.get(cls.__name__, {}) for around in self._around)
            }


def _said(around: Sequence[Around], cls: type[Settings]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(each.source, each.values.get(cls.__name__, {})) for each in around]


_MISSING = object()
