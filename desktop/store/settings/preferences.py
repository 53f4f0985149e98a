"""Saved defaults and recent models, in one small JSON file that is replaced as a whole, so never half
written.

It contains only values that the user changed, so that better defaults of a later version reach everyone else.
Keys that this version does not know are kept.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from desktop.settings import SAVED_SETTINGS
from desktop.store.database.database import StoreError, set_aside
from engine.errors import BadSetting
from engine.platform.regular_file import regular_file
from engine.platform.whole_file import write_whole
from engine.printable import json_text
from engine.settings import Settings, check_value
from engine.words import _

__all__ = ["Preferences", "checked_values", "without_defaults"]

log = logging.getLogger(__name__)

RECENT_MODELS = 10
RECENT_EMOJI = 24
RECENT_CHOICES = 20
S = TypeVar("S", bound=Settings)


class Preferences:
    """Saved defaults by settings class, settings of single models, recent models, model folders, and so on.

    `notices` holds sentences about what had to be replaced on reading; it is usually empty. Every change is
    written at once. If `write_soon` is set, it is called instead, and its owner calls `save` soon; `unsaved`
    says whether there is something to save.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write_soon: Callable[[], object] | None = None
        self.unsaved = False
        self.notices: tuple[str, ...] = ()
        self._data = self._read()
        saved = self._data.get("settings")
        self._saved: dict[str, dict[str, Any]] = {}
        for cls in SAVED_SETTINGS:
            values, problems = checked_values(
                cls, saved.get(cls.__name__) if isinstance(saved, dict) else None
            )
            self._saved[cls.__name__] = values
            self.notices += tuple(
                _("A saved default was reset: {problem}", problem=problem) for problem in problems
            )
        saved_keys = self._data.get("shortcuts") or {}
        broken = (
            [name for name, its in saved_keys.items() if _keys(its) is None]
            if isinstance(saved_keys, dict)
            else ["all"]
        )
        self.notices += tuple(
            _("The saved keys for “{name}” cannot be read. The default keys are used.", name=name)
            for name in broken
        )

    def settings(self, cls: type[S]) -> S:
        """The saved defaults of a settings class, over the built-in ones."""
        return cls(**self._saved.get(cls.__name__, {}))

    def saved_names(self, cls: type[Settings]) -> frozenset[str]:
        """The fields whose defaults the user changed."""
        return frozenset(self._saved.get(cls.__name__, {}))

    def save_settings(self, settings: Settings) -> None:
        """Make these the defaults."""
        self._saved[type(settings).__name__] = without_defaults(settings)
        self._changed()

    def forget_setting(self, cls: type[Settings], name: str) -> None:
        """Restore the built-in default of one field."""
        if name in self._saved[cls.__name__]:
            del self._saved[cls.__name__][name]
            self._changed()

    @property
    def presets(self) -> dict[str, dict[str, Any]]:
        """The user's sampler presets: the values of each by name, ready for JSON."""
        saved = self._data.get("presets")
        return (
            {name: dict(values) for name, values in saved.items() if isinstance(values, dict)}
            if isinstance(saved, dict)
            else {}
        )

    def save_preset(self, name: str, values: Mapping[str, Any], instead_of: str = "") -> None:
        """Save a preset as `name`, replacing one of that name and the one called `instead_of`."""
        kept = {other: its for other, its in self.presets.items() if other not in (name, instead_of)}
        self._data["presets"] = {**kept, name: dict(values)}
        self._changed()

    def remove_preset(self, name: str) -> None:
        """Delete a preset; conversations keep the values they took from it."""
        self._data["presets"] = {other: values for other, values in self.presets.items() if other != name}
        self._changed()

    @property
    def shortcuts(self) -> dict[str, tuple[str, ...]]:
        """The keys that the user gave to commands, by the name of the command; anything but a list of texts
        is left out.
        """
        saved = self._data.get("shortcuts")
        read = {name: _keys(its) for name, its in saved.items()} if isinstance(saved, dict) else {}
        return {name: keys for name, keys in read.items() if keys is not None}

    def save_shortcuts(self, keys: Mapping[str, Sequence[str]]) -> None:
        """Replace all keys of commands."""
        self._data["shortcuts"] = {name: list(its) for name, its in keys.items()}
        self._changed()

    @property
    def recent_choices(self) -> tuple[str, ...]:
        """Recent choices in the command palette, latest first."""
        return self._texts("recent_choices")

    def remember_choice(self, key: str) -> None:
        """Record a choice in the command palette."""
        self._data["recent_choices"] = [key, *(each for each in self.recent_choices if each != key)][
            :RECENT_CHOICES
        ]
        self._changed()

    @property
    def last_model(self) -> str:
        """The path of the model that was loaded last; empty if there was none."""
        return self._text("last_model")

    @property
    def recent_models(self) -> tuple[str, ...]:
        """Paths of the models loaded before, latest first."""
        return self._texts("recent_models")

    @property
    def recent_emoji(self) -> tuple[str, ...]:
        """The emoji that were inserted last, latest first."""
        return self._texts("recent_emoji")

    def remember_emoji(self, text: str) -> None:
        """Record an emoji that was just inserted."""
        others = [recent for recent in self.recent_emoji if recent != text]
        self._data["recent_emoji"] = [text, *others][:RECENT_EMOJI]
        self._changed()

    @property
    def unread_files(self) -> dict[int, tuple[str, ...]]:
        """The paths of files that are being read for the next message of each chat."""
        saved = self._data.get("unread_files")
        read = {name: _keys(its) for name, its in saved.items()} if isinstance(saved, dict) else {}
        return {int(name): its for name, its in read.items() if its and name.isdecimal()}

    def note_unread_files(self, files: Mapping[int, Sequence[str]]) -> None:
        """Replace them."""
        self._data["unread_files"] = {str(number): list(paths) for number, paths in files.items()}
        self._changed()

    @property
    def model_folders(self) -> tuple[str, ...]:
        """Folders the user added to search for models."""
        return self._texts("model_folders")

    @property
    def last_conversation(self) -> int:
        """The conversation that was open last; 0 if there was none."""
        value = self._data.get("last_conversation")
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    def remember_model(self, path: str) -> None:
        """Record a model that was just loaded; it is no longer hidden."""
        if path in self.hidden_models:
            self._data["hidden_models"] = [each for each in self.hidden_models if each != path]
        others = [recent for recent in self.recent_models if recent != path]
        self._data["last_model"] = path
        self._data["recent_models"] = [path, *others][:RECENT_MODELS]
        self._changed()

    def forget_model(self, path: str) -> None:
        """Remove a model from the recent ones, for example because its file is gone."""
        self._data["recent_models"] = [recent for recent in self.recent_models if recent != path]
        if self.last_model == path:
            self._data["last_model"] = ""
        self._changed()

    def add_model_folder(self, path: str) -> None:
        """Search this folder for models too."""
        if path not in self.model_folders:
            self._data["model_folders"] = [*self.model_folders, path]
            self._changed()

    def remove_model_folder(self, path: str) -> None:
        """No longer search this folder; nothing on disk changes."""
        self._data["model_folders"] = [folder for folder in self.model_folders if folder != path]
        self._changed()

    @property
    def hidden_models(self) -> tuple[str, ...]:
        """Paths of models that the user removed from the library; their files stay."""
        return self._texts("hidden_models")

    def hide_model(self, path: str) -> None:
        """Remove a model from the library and from the recent ones."""
        self._data["hidden_models"] = [*(each for each in self.hidden_models if each != path), path]
        self.forget_model(path)

    def show_hidden_models(self) -> None:
        """Show all hidden models in the library again."""
        if self.hidden_models:
            self._data["hidden_models"] = []
            self._changed()

    @property
    def servers(self) -> object:
        """The servers that run models, as `save_servers` kept them."""
        return self._data.get("servers")

    def save_servers(self, servers: Sequence[Mapping[str, Any]]) -> None:
        """Replace all servers, ready for JSON; their keys are never among the values."""
        if (kept := [dict(server) for server in servers]) != self._data.get("servers", []):
            self._data["servers"] = kept
            self._changed()

    @property
    def updates_checked_at(self) -> float:
        """When the list of updates was last read, in seconds since 1970; 0 if it never was."""
        value = self._data.get("updates_checked_at")
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0

    def note_update_check(self, now: float) -> None:
        """Record that the list of updates has just been read."""
        self._data["updates_checked_at"] = now
        self._changed()

    @property
    def offline(self) -> bool:
        """Whether the user allows no connection to the model hub."""
        return self._data.get("offline") is True

    def set_offline(self, on: bool) -> None:
        """Allow or forbid connections to the model hub."""
        if on != self.offline:
            self._data["offline"] = on
            self._changed()

    @property
    def passage_model(self) -> str:
        """The path of the embedding model that finds passages of files; "words" for none, "" for any."""
        return self._text("passage_model")

    def set_passage_model(self, choice: str) -> None:
        """Choose the embedding model that finds passages of files."""
        if choice != self.passage_model:
            self._data["passage_model"] = choice
            self._changed()

    def kept(self, path: str, cls: type[Settings]) -> dict[str, Any]:
        """The valid values of a settings class that are saved for the model at `path`."""
        models = self._data.get("models")
        own = models.get(path) if isinstance(models, dict) else None
        return checked_values(cls, own.get(cls.__name__) if isinstance(own, dict) else None)[0]

    @property
    def models_with_settings(self) -> frozenset[str]:
        """The paths of the models that have settings of their own."""
        models = self._data.get("models")
        return frozenset(models) if isinstance(models, dict) else frozenset()

    def keep(self, path: str, cls: type[Settings], values: Mapping[str, Any]) -> None:
        """Replace the values of this class saved for the model at `path`; there they take precedence over the
        defaults.
        """
        models = self._data.get("models")
        models = dict(models) if isinstance(models, dict) else {}
        before = models.get(path)
        own = {**(before if isinstance(before, dict) else {}), cls.__name__: dict(values)}
        models[path] = {name: its for name, its in own.items() if its}
        self._data["models"] = {each: its for each, its in models.items() if its}
        self._changed()

    def remember_conversation(self, conversation_id: int) -> None:
        """Record which conversation is open."""
        if conversation_id != self.last_conversation:
            self._data["last_conversation"] = conversation_id
            self._changed()

    def _text(self, key: str) -> str:
        value = self._data.get(key)
        return value if isinstance(value, str) else ""

    def _texts(self, key: str) -> tuple[str, ...]:
        value = self._data.get(key)
        return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()

    def _read(self) -> dict[str, Any]:
        try:
            regular_file(self.path)
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(
                _(
                    "The preferences in {path} cannot be read ({strerror}). Check the file's permissions.",
                    path=self.path,
                    strerror=error.strerror,
                )
            ) from error
        except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested without an end
            data = None
        if isinstance(data, dict):
            return data
        target = set_aside(self.path)
        self.notices = (
            _(
                "The preferences file was damaged. It is kept as {target}, and all settings were reset.",
                target=target.name,
            ),
        )
        return {}

    def save(self) -> None:
        """Write what has changed since the last time, if anything.

        Raises `StoreError`; the next `save` then tries again.
        """
        if self.unsaved:
            self._write()
            self.unsaved = False

    def _changed(self) -> None:
        self.unsaved = True
        if self.write_soon is not None:
            self.write_soon()
        else:
            self.save()

    def _write(self) -> None:
        """Write a new file and put it in place of the old one."""
        unknown = self._data.get("settings")
        kept: dict[str, Any] = dict(unknown) if isinstance(unknown, dict) else {}
        for cls in SAVED_SETTINGS:
            own = cls().to_json()
            before = kept.get(cls.__name__)
            foreign = (
                {key: value for key, value in before.items() if key not in own}
                if isinstance(before, dict)
                else {}
            )
            kept[cls.__name__] = {**foreign, **self._saved[cls.__name__]}
        self._data["settings"] = {name: values for name, values in kept.items() if values}
        try:
            write_whole(self.path, json_text(json.dumps(self._data, indent=2, ensure_ascii=False)) + "\n")
        except OSError as error:
            raise StoreError(
                _(
                    "The preferences cannot be saved in {path} ({strerror}). Check free space and "
                    "permissions.",
                    path=self.path,
                    strerror=error.strerror,
                )
            ) from error


def _keys(saved: object) -> tuple[str, ...] | None:
    """The saved keys of one command; None if that is not a list of texts."""
    return tuple(saved) if isinstance(saved, list) and all(isinstance(each, str) for each in saved) else None


def checked_values(cls: type[Settings], values: object) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The valid ones among saved `values` of a settings class, and a sentence for each invalid one.

    Unknown names are left out.
    """
    good: dict[str, Any] = {}
    problems: list[str] = []
    own = cls().to_json()
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if name in own:
            try:
                good[name] = check_value(cls, name, value)
            except BadSetting as error:
                problems.append(str(error))
    return good, tuple(problems)


def without_defaults(settings: Settings) -> dict[str, Any]:
    """The values that differ from the defaults of the class, ready for JSON."""
    defaults = type(settings)().to_json()
    return {name: value for name, value in settings.to_json().items() if value != defaults[name]}
