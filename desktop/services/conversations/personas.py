"""The user's personas: list, save, duplicate, delete (with undo), and choose for the open conversation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from PySide6.QtCore import QObject, Signal

from desktop.services.session.chat_session import ChatSession
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.database.database import StoreError
from desktop.store.settings.presets import all_presets, free_name
from engine.words import _

__all__ = ["PersonaService"]

T = TypeVar("T")


class PersonaService(QObject):
    """The personas, as one session uses them; a deletion can be undone.

    Methods that fail return None or False and emit `notice`.

    Signals:
        changed(): a persona was added, removed or changed.
        notice(str sentence, str level, bool undoable)
    """

    changed = Signal()
    notice = Signal(str, str, bool)

    def __init__(self, session: ChatSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self._store = PersonaStore(session.stores.database)

    def personas(self) -> tuple[Persona, ...]:
        """All personas, by name."""
        return self._tried(self._store.list) or ()

    def image(self, persona_id: int) -> bytes:
        """The picture as the bytes of its file; empty for none."""
        return self._tried(lambda: self._store.image(persona_id)) or b"" if persona_id else b""

    def preset_names(self) -> tuple[str, ...]:
        """The presets that a persona can have."""
        return tuple(preset.name for preset in all_presets(self._session.preferences))

    def free_name(self, name: str) -> str:
        """`name`, with a number if another persona has it."""
        return free_name(name, frozenset(persona.name for persona in self.personas()))

    def save(self, persona: Persona, image: bytes | None = None) -> Persona | None:
        """Save a persona (the id 0 creates one) and its picture, unless that is None (unchanged)."""

        def write() -> Persona:
            with self._session.stores.database.transaction():
                saved = self._store.save(persona)
                if image is not None:
                    self._store.set_image(saved.id, image)
            return saved

        saved = self._tried(write)
        if saved is not None:
            self._announce()
        return saved

    def duplicate(self, persona: Persona) -> Persona | None:
        """Save a copy under a free name."""
        return self.save(replace(persona, id=0, name=self.free_name(persona.name)), self.image(persona.id))

    def delete(self, persona: Persona) -> bool:
        """Delete it, with undo; its conversations continue without it."""

        def erase() -> bool:
            self._store.delete(persona.id)
            return True

        if not self._tried(erase):
            return False
        self._session.push_undo(_("delete persona"), lambda: self._undelete(persona.id))
        self._announce()
        self.notice.emit(
            _("The persona “{persona}” was deleted. Its chats continue without it.", persona=persona.name),
            "info",
            True,
        )
        return True

    def choose(self, persona_id: int | None) -> bool:
        """Let it answer in the open conversation; None for no persona."""
        return self._session.choose_persona(persona_id)

    def _undelete(self, persona_id: int) -> None:
        self._store.restore(persona_id)
        self._announce()

    def _announce(self) -> None:
        self._session.follow_place()
        self.changed.emit()

    def _tried(self, act: Callable[[], T]) -> T | None:
        try:
            return act()
        except StoreError as error:
            self.notice.emit(str(error), "error", False)
            return None
