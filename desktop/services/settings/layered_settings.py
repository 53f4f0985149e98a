"""The one chain in which the value of a setting is looked up.

Lowest first: the engine's default, the saved default, what the model's authors recommend, what is kept for
the model, the folders (outermost first), the persona (by its sampler preset), and what the chat itself sets.
The highest layer that has a value wins. A preset that the user chooses is copied into the chat's own layer;
values that still equal it are attributed to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, TypeVar

from desktop.settings import CONVERSATION_SETTINGS, KEPT_FOR_MODELS, SAVED_SETTINGS, Behaviour
from desktop.store.conversations.inheritance import Layer
from desktop.store.settings.preferences import Preferences, checked_values
from desktop.store.settings.presets import Preset, find_preset
from engine.lazy_dataclass import dataclass
from engine.settings import SamplerSettings, Settings

__all__ = [
    "FROM_CHAT", "FROM_FOLDER", "FROM_PERSONA", "FROM_PRESET", "LayeredSettings", "ModelLayer", "SourceLayer",
    "folder_layer", "inherited_layers", "persona_layer",
]  # fmt: skip

FROM_CHAT = "conversation"
FROM_FOLDER, FROM_PERSONA, FROM_PRESET = "folder ", "persona ", "preset "
"""The source of a value that a folder, a persona or a preset sets; its name follows. The other sources are
"default", "saved default", "makers" and "model".
"""
_PRESET_KEY = "preset"
_MISSING = object()
S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class SourceLayer:
    """The values of one folder or persona, by settings class name. `preset` is the persona's, by name."""

    source: str
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    preset: str = ""

    def of(self, cls: type[Settings]) -> Mapping[str, Any]:
        """The values of one settings class."""
        return self.values.get(cls.__name__, {})


def folder_layer(
    name: str, settings: Mapping[str, Mapping[str, Any]], classes: Sequence[type[Settings]]
) -> tuple[SourceLayer, tuple[str, ...]]:
    """A folder's layer, and a sentence for each value that is not usable."""
    values: dict[str, Mapping[str, Any]] = {}
    problems: tuple[str, ...] = ()
    for cls in classes:
        values[cls.__name__], found = checked_values(cls, settings.get(cls.__name__))
        problems += found
    return SourceLayer(FROM_FOLDER + name, values), problems


def persona_layer(preferences: Preferences, name: str, preset: str) -> SourceLayer:
    """A persona's layer: the values of its sampler preset, if there is one of that name."""
    found = find_preset(preferences, preset) if preset else None
    if found is None:
        return SourceLayer(FROM_PERSONA + name)
    return SourceLayer(FROM_PERSONA + name, {SamplerSettings.__name__: _preset_values(found)}, preset)


def inherited_layers(
    layers: Sequence[Layer], preferences: Preferences
) -> tuple[tuple[SourceLayer, ...], tuple[str, ...]]:
    """The folders and the persona among `layers`, lowest first, and a sentence for each value that is not
    usable.
    """
    made: list[SourceLayer] = []
    problems: tuple[str, ...] = ()
    for layer in layers:
        if layer.source == "persona":
            made.append(persona_layer(preferences, layer.name, layer.preset))
        elif layer.source == "folder":
            folder, found = folder_layer(layer.name, layer.settings, CONVERSATION_SETTINGS)
            made.append(folder)
            problems += found
    return tuple(made), problems


class ModelLayer:
    """What the model's authors recommend and what is kept for it; shared by all chats."""

    def __init__(self, preferences: Preferences, path: str = "") -> None:
        self._preferences = preferences
        self.path = path
        self.recommended: dict[str, Any] = {}
        self.kept: dict[str, dict[str, Any]] = {}
        self._read()

    def enter(self, path: str, recommended: Mapping[str, Any] | None = None) -> tuple[type[Settings], ...]:
        """Switch to the model at `path` ("" for none), or read its values again; returns the classes whose
        values changed. `recommended` None: as before if it is the same model.
        """
        before, before_recommended = self.kept, self.recommended
        if recommended is not None:
            self.recommended = checked_values(SamplerSettings, recommended)[0]
        elif path != self.path:
            self.recommended = {}
        self.path = path
        self._read()
        changed = {name for name, values in self.kept.items() if before[name] != values}
        if before_recommended != self.recommended:
            changed.add(SamplerSettings.__name__)
        return tuple(cls for cls in KEPT_FOR_MODELS if cls.__name__ in changed)

    def keep(self, cls: type[Settings], values: dict[str, Any]) -> None:
        """Save these values of a class for the model."""
        self.kept[cls.__name__] = values
        self._preferences.keep(self.path, cls, values)

    def _read(self) -> None:
        self.kept = {
            cls.__name__: self._preferences.kept(self.path, cls) if self.path else {}
            for cls in KEPT_FOR_MODELS
        }


class _Values(NamedTuple):
    """The values of one class from one source. `fixed`: a reset does not remove them."""

    source: str
    values: Mapping[str, Any]
    fixed: bool = False


class LayeredSettings:
    """The settings of one chat, or of one folder while it is edited.

    Only `CONVERSATION_SETTINGS` have an own layer, and only `KEPT_FOR_MODELS` one of the model. `inherited`
    are the folders and the persona, lowest first.
    """

    def __init__(
        self,
        preferences: Preferences,
        model: ModelLayer | None = None,
        inherited: Sequence[SourceLayer] = (),
        own_source: str = FROM_CHAT,
    ) -> None:
        self._preferences = preferences
        self._model = model or ModelLayer(preferences)
        self.inherited = tuple(inherited)
        self._own_source = own_source
        self._own: dict[str, dict[str, Any]] = {}
        self._preset = ""
        self._preset_values: dict[str, Any] = {}

    def read_own(self, own: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take the own layer from its JSON form; returns a sentence for each value that is not usable."""
        problems: tuple[str, ...] = ()
        self._own = {}
        for cls in CONVERSATION_SETTINGS:
            self._own[cls.__name__], found = checked_values(cls, own.get(cls.__name__))
            problems += found
        chosen = own.get(_PRESET_KEY, {}).get("name")
        self._preset = chosen if isinstance(chosen, str) else ""
        self.read_preset()
        return problems

    def with_inherited(self, inherited: Sequence[SourceLayer]) -> LayeredSettings:
        """The same own layer over other folders or another persona."""
        made = LayeredSettings(self._preferences, self._model, inherited, self._own_source)
        made._own, made._preset, made._preset_values = self._own, self._preset, self._preset_values
        return made

    # -- looking up

    def settings(self, cls: type[S]) -> S:
        """The effective values."""
        return cls(**_merged(self._layers(cls)))

    def after_reset(self, cls: type[S]) -> S:
        """What each value would be after `reset`."""
        layers = self._layers(cls)
        return cls(**{name: _below(layers, name) for name in layers[0].values})

    def source_layers(self, cls: type[Settings]) -> dict[str, tuple[tuple[str, Any], ...]]:
        """For each value, every source that sets it, with what it sets, lowest first."""
        *lower, own = self._layers(cls)
        preset = self._preset_values if cls is SamplerSettings else {}
        from_preset = {
            name: value for name, value in own.values.items() if preset.get(name, _MISSING) == value
        }
        rest = {name: value for name, value in own.values.items() if name not in from_preset}
        layers = [*lower, _Values(own.source, rest), _Values(FROM_PRESET + self._preset, from_preset)]
        return {
            name: tuple((layer.source, layer.values[name]) for layer in layers if name in layer.values)
            for name in lower[0].values
        }

    def sources(self, cls: type[Settings]) -> dict[str, str]:
        """The source of each effective value."""
        return {name: layers[-1][0] for name, layers in self.source_layers(cls).items()}

    def source_of(self, cls: type[Settings], name: str) -> str:
        """The source of one effective value."""
        return self.sources(cls)[name]

    @property
    def own(self) -> dict[str, dict[str, Any]]:
        """The own layer, ready for JSON."""
        own = {name: dict(values) for name, values in self._own.items() if values}
        return {**own, _PRESET_KEY: {"name": self._preset}} if self._preset else own

    @property
    def preset(self) -> str:
        """The preset that was chosen last in the chat, else its persona's; "" for none."""
        return self._preset or next((layer.preset for layer in self.inherited if layer.preset), "")

    def inherits_differently(self, other: LayeredSettings) -> tuple[type[Settings], ...]:
        """The classes for which folders or persona set something else than in `other`."""

        def inherited(layers: LayeredSettings, cls: type[Settings]) -> list[tuple[str, Mapping[str, Any]]]:
            return [(layer.source, layer.of(cls)) for layer in layers.inherited]

        return tuple(cls for cls in CONVERSATION_SETTINGS if inherited(self, cls) != inherited(other, cls))

    # -- changing

    def put(self, settings: Settings) -> None:
        """Set these in the own layer if the class has one, else for the model or as saved defaults."""
        cls = type(settings)
        if cls not in CONVERSATION_SETTINGS:
            self._put_below(settings)
            return
        below, before = self._without_own(cls), self._own.get(cls.__name__, {})
        self._own[cls.__name__] = {
            name: value
            for name, value in settings.to_json().items()
            if value != below[name] or before.get(name, _MISSING) == value
        }

    def reset(self, cls: type[Settings], name: str) -> None:
        """Remove the topmost value of a setting that the user set.

        Folders and personas are shared with other chats: over theirs, the chat gets the value from below as
        its own. The authors' recommendation stays.
        """
        if self._own.get(cls.__name__, {}).pop(name, _MISSING) is not _MISSING:
            return
        if self._is_inherited(cls, name):
            self._own.setdefault(cls.__name__, {})[name] = _below(self._layers(cls), name)
            return
        kept = dict(self._model.kept.get(cls.__name__, {}))
        if kept.pop(name, _MISSING) is not _MISSING:
            self._model.keep(cls, kept)
        elif name not in self._recommended(cls):
            self._preferences.forget_setting(cls, name)

    def choose_preset(self, preset: Preset) -> None:
        """Copy the values of a preset into the own layer: those it names and those that differ below."""
        target = preset.over(self.settings(SamplerSettings)).to_json()
        below = self._without_own(SamplerSettings)
        kept = {"seed"} & self._own.get(SamplerSettings.__name__, {}).keys()
        self._own[SamplerSettings.__name__] = {
            name: value
            for name, value in target.items()
            if name in preset.settings or name in kept or value != below[name]
        }
        self._preset = preset.name
        self.read_preset()

    def rename_preset(self, old: str, new: str) -> None:
        """Follow the chosen preset to its new name."""
        if self._preset == old:
            self._preset = new
        self.read_preset()

    def read_preset(self) -> None:
        """Read the values of the chosen preset again; a deleted preset has none."""
        found = find_preset(self._preferences, self._preset) if self._preset else None
        self._preset_values = {} if found is None else found.over(SamplerSettings()).to_json()
        if found is not None and "seed" not in found.settings:
            del self._preset_values["seed"]

    def save_as_defaults(self) -> None:
        """Make the chat's values the saved defaults; its own layer keeps only what a folder or persona would
        hide. Servers of tools are off in one chat only.
        """
        for cls in CONVERSATION_SETTINGS:
            if cls not in SAVED_SETTINGS:
                continue
            own = self._own.get(cls.__name__, {})
            kept = self._model.kept.get(cls.__name__, {})
            hidden = own.keys() & (kept.keys() | self._recommended(cls).keys())
            if hidden:  # the model's own values would come back otherwise
                self._model.keep(cls, {**kept, **{name: own[name] for name in hidden}})
            self._preferences.save_settings(cls(**{**self._preferences.settings(cls).to_json(), **own}))
            self._own[cls.__name__] = {
                name: value for name, value in own.items() if self._is_inherited(cls, name)
            }

    # -- parts

    def _layers(self, cls: type[Settings]) -> list[_Values]:
        """All values of a class, lowest first, the own ones last."""
        saved = self._preferences.settings(cls).to_json()
        saved = {name: saved[name] for name in self._preferences.saved_names(cls)}
        shared = self._own_source != FROM_CHAT  # a folder does not override its outer folders by a reset
        return [
            _Values("default", cls().to_json(), True),
            _Values("saved default", saved, True),
            _Values("makers", self._recommended(cls), True),
            _Values("model", self._model.kept.get(cls.__name__, {})),
            *(_Values(layer.source, layer.of(cls), shared) for layer in self.inherited),
            _Values(self._own_source, self._own.get(cls.__name__, {})),
        ]

    def _without_own(self, cls: type[Settings]) -> dict[str, Any]:
        return cls(**_merged(self._layers(cls)[:-1])).to_json()

    def _recommended(self, cls: type[Settings]) -> dict[str, Any]:
        """The authors' recommendation, if the user wants it."""
        used = cls is SamplerSettings and self._preferences.settings(Behaviour).makers_advice
        return self._model.recommended if used else {}

    def _is_inherited(self, cls: type[Settings], name: str) -> bool:
        return any(name in layer.of(cls) for layer in self.inherited)

    def _put_below(self, settings: Settings) -> None:
        """Values kept for the model stay with it, or they would hide the new ones; the rest become saved
        defaults.
        """
        cls, values = type(settings), settings.to_json()
        saved, kept = self._preferences.settings(cls).to_json(), self._model.kept.get(cls.__name__, {})
        now = {name: values[name] for name in kept}
        if now != kept:
            self._model.keep(cls, now)
        self._preferences.save_settings(cls(**{**values, **{name: saved[name] for name in kept}}))


def _merged(layers: Sequence[_Values]) -> dict[str, Any]:
    return {name: value for layer in layers for name, value in layer.values.items()}


def _below(layers: Sequence[_Values], name: str) -> Any:
    """The value under the topmost one that is not fixed; the effective one if all are fixed."""
    places = [place for place, layer in enumerate(layers) if name in layer.values and not layer.fixed]
    return _merged(layers[: places[-1]] if places else layers)[name]


def _preset_values(preset: Preset) -> dict[str, Any]:
    """All values that a preset sets; the seed only if it names one."""
    values = checked_values(SamplerSettings, preset.over(SamplerSettings()).to_json())[0]
    return {name: value for name, value in values.items() if name != "seed" or name in preset.settings}
