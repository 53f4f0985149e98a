"""Sampler presets: choose, save, rename, delete, import and export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from desktop.services.session.chat_session import ChatSession
from desktop.store.database.database import StoreError
from desktop.store.settings.presets import (
    Preset,
    all_presets,
    find_preset,
    free_name,
    preset_of,
    read_preset,
    write_preset,
)
from engine.settings import SamplerSettings, Settings
from engine.words import _, paragraph

__all__ = ["PresetService"]

_MOST_NAMES = 5


class PresetService(QObject):
    """The presets, as one session uses them; changes can be undone.

    Signals:
        changed(): the list of presets, or which of them is used.
        notice(str sentence, str level, bool undoable): what was done, or why it failed.
    """

    changed = Signal()
    notice = Signal(str, str, bool)

    def __init__(self, session: ChatSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        session.settings_changed.connect(self._on_settings)

    def presets(self) -> tuple[Preset, ...]:
        """The built-in ones, then the user's by name."""
        return all_presets(self._session.preferences)

    def current(self) -> tuple[str, bool]:
        """The preset whose values are used ("" for none), and whether some were changed since."""
        settings = self._session.settings(SamplerSettings)
        found = find_preset(self._session.preferences, self._session.preset) if self._session.preset else None
        if found is not None:
            return found.name, found.over(settings) != settings
        return next(
            (preset.name for preset in self.presets() if preset.over(settings) == settings), ""
        ), False

    def choose(self, name: str) -> None:
        """Use a preset's values in the open chat."""
        found = find_preset(self._session.preferences, name)
        if found is not None:
            self._session.choose_preset(found)

    def save(self, name: str) -> bool:
        """Save the current values as `name`, over the user's preset of that name."""
        name = " ".join(name.split())
        if not name or not self._may_be(name):
            return False
        preset = preset_of(name, self._session.settings(SamplerSettings))
        before = next((other for other in self.presets() if other.name.casefold() == name.casefold()), None)
        earlier = before.name if before is not None else ""
        if not self._tried(
            lambda: self._session.preferences.save_preset(name, preset.settings, instead_of=earlier)
        ):
            return False
        if before is not None and before.settings != preset.settings:
            self._session.push_undo(_("change of the preset"), lambda: self._restore(before, instead_of=name))
        self._session.choose_preset(preset)
        self.changed.emit()
        self.notice.emit(_("Saved as the preset “{name}”.", name=name), "info", False)
        return True

    def rename(self, old: str, new: str) -> bool:
        """Give one of the user's presets another name."""
        new = " ".join(new.split())
        found = self._own(old)
        if found is None or not new or new == old:
            return False
        if new.casefold() != old.casefold() and (not self._may_be(new) or self._taken(new)):
            return False
        if not self._tried(
            lambda: self._session.preferences.save_preset(new, found.settings, instead_of=old)
        ):
            return False
        self._session.presets_edited(old, new)
        self.changed.emit()
        return True

    def delete(self, name: str) -> bool:
        """Delete one of the user's presets (undoable)."""
        found = self._own(name)
        if found is None or not self._tried(lambda: self._session.preferences.remove_preset(name)):
            return False
        self._session.presets_edited()
        self._session.push_undo(_("delete preset"), lambda: self._restore(found))
        self.changed.emit()
        self.notice.emit(
            _("The preset “{name}” was deleted. This chat keeps its values.", name=name), "info", True
        )
        return True

    def import_file(self, path: Path) -> bool:
        """Import a preset from a JSON file under a free name, and choose it."""
        try:
            preset, unknown = read_preset(path)
            name = free_name(preset.name, frozenset(other.name for other in self.presets()))
            self._session.preferences.save_preset(name, preset.settings)
        except StoreError as error:
            self.notice.emit(str(error), "error", False)
            return False
        self.choose(name)
        self.changed.emit()
        self.notice.emit(
            paragraph(_("Imported the preset “{name}”.", name=name), _left_out(unknown)),
            "warning" if unknown else "info",
            False,
        )
        return True

    def export_file(self, name: str, path: Path) -> bool:
        """Write a preset as a JSON file; the current values if there is none of that name."""
        preset = find_preset(self._session.preferences, name) or preset_of(
            path.stem, self._session.settings(SamplerSettings)
        )
        if not self._tried(lambda: write_preset(path, preset)):
            return False
        self.notice.emit(
            _("The preset “{preset}” was saved as {path}.", preset=preset.name, path=path.name), "info", False
        )
        return True

    def _own(self, name: str) -> Preset | None:
        found = find_preset(self._session.preferences, name)
        return found if found is not None and not found.built_in else None

    def _may_be(self, name: str) -> bool:
        """Whether the user can have a preset of this name; if not, a notice says why."""
        if any(preset.built_in and preset.name.casefold() == name.casefold() for preset in self.presets()):
            self.notice.emit(
                _("“{name}” is a built-in preset. Choose another name.", name=name), "warning", False
            )
            return False
        return True

    def _taken(self, name: str) -> bool:
        taken = any(preset.name.casefold() == name.casefold() for preset in self.presets())
        if taken:
            self.notice.emit(
                _("A preset named “{name}” already exists. Choose another name.", name=name), "warning", False
            )
        return taken

    def _tried(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except StoreError as error:
            self.notice.emit(str(error), "error", False)
            return False
        return True

    def _restore(self, preset: Preset, instead_of: str = "") -> None:
        self._tried(
            lambda: self._session.preferences.save_preset(preset.name, preset.settings, instead_of=instead_of)
        )
        self._session.presets_edited()
        self.changed.emit()

    def _on_settings(self, cls: type[Settings]) -> None:
        if cls is SamplerSettings:
            self.changed.emit()


def _left_out(names: tuple[str, ...]) -> str:
    """A sentence about unknown fields of an imported file; "" for none."""
    if not names:
        return ""
    first, more = ", ".join(names[:_MOST_NAMES]), len(names) - _MOST_NAMES
    if more > 0:
        return _("Unknown settings were ignored: {names} and {more} more.", names=first, more=more)
    return _("Unknown settings were ignored: {names}.", names=first)
