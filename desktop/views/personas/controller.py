"""Connects personas with the window: the picker in the top bar, and the window that manages them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtGui import QPixmap
from PySide6.QtWidgets import QWidget

from desktop.items.models.local_models import model_name
from desktop.services.conversations.personas import PersonaService
from desktop.services.models.local_models import LocalModelsService
from desktop.services.session.chat_session import ChatSession
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.database.database import StoreError
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.models.controller import ModelController
from desktop.views.personas.avatar import avatar
from desktop.views.personas.persona_picker import PersonaPicker

if TYPE_CHECKING:
    from desktop.views.personas.personas_dialog import PersonasDialog
from desktop.views.widgets.listening import listen
from engine.remote import split_address
from engine.words import _

__all__ = ["PersonaController"]


class PersonaController(QObject):
    """Owns the persona service, the picker and the window of personas."""

    def __init__(
        self,
        session: ChatSession,
        chat: ChatPane,
        models: ModelController,
        local_models: LocalModelsService,
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._session, self._chat, self._window = session, chat, window
        self._models, self._local_models = models, local_models
        self.service = PersonaService(session, self)
        self.picker = PersonaPicker(self._draw)
        self.dialog: PersonasDialog | None = None
        self._images: dict[int, bytes] = {}
        self._offered = ""
        self.picker.entries_requested.connect(lambda: self.picker.show_entries(self.service.personas()))
        self.picker.chosen.connect(self.choose)
        self.picker.manage_requested.connect(self.manage)
        session.persona_changed.connect(self._show)
        self.service.changed.connect(self._renew)
        self.service.notice.connect(self._show_notice)
        self._faces: dict[int, Persona] = {}
        self._draw_avatars()

    def commands(self) -> dict[str, Callable[[], object]]:
        """The commands that choose and manage personas."""
        return {"persona": self.picker.open_menu, "personas": self.manage}

    def choose(self, persona_id: int | None) -> None:
        """Let a persona answer in the open chat, and offer its model if another one is loaded."""
        if self.service.choose(persona_id):
            self._offer_model(self._session.persona)
            self._chat.composer.setFocus()

    def manage(self) -> None:
        """Show the window that manages personas."""
        if self.dialog is None:
            from desktop.views.personas.personas_dialog import PersonasDialog  # Only when needed.

            self.dialog = PersonasDialog(self.service, self._window)
            self.dialog.banner.undo_requested.connect(self._session.undo)
            listen(self, self._local_models.changed, lambda _entries: self._show_models())
        elif not self.dialog.isVisible():
            self.dialog.show_personas(self._session.persona.id if self._session.persona is not None else 0)
        self._show_models()
        self._models.look_for_models()
        self.dialog.show()
        self.dialog.activateWindow()

    def _show_models(self) -> None:
        if self.dialog is not None:
            self.dialog.show_models(self._local_models.choices)

    def close(self) -> None:
        """Save what was typed, at the end of the program."""
        if self.dialog is not None:
            self.dialog.save()
            self.dialog.hide()

    def draw(self, number: int, name: str, side: int) -> QPixmap:
        """The picture of a persona, even of a deleted one; without a persona, the initials of the name."""
        if number and number not in self._faces:
            try:
                self._faces[number] = PersonaStore(self._session.stores.database).get(number)
            except StoreError:  # The id of another store.
                self._faces[number] = Persona(0, name)
        return self._draw(self._faces.get(number) or Persona(0, name), side)

    def offer_model_of(self, number: int) -> None:
        """Offer the model of a persona if another one is loaded."""
        persona = (
            next((persona for persona in self.service.personas() if persona.id == number), None)
            if number
            else None
        )
        if persona is not None:
            self._offer_model(persona)

    def _offer_model(self, persona: Persona | None) -> None:
        model, loaded = persona.model_path if persona is not None else "", self._session.model
        if persona is None or not model or (loaded is not None and loaded.path == model):
            self._chat.banner.hide_offer(self._offered)
        elif not (split_address(model) or os.path.exists(model)):
            sentence = _(
                "The model of {persona} is no longer at {model}. Choose another one under Manage personas.",
                persona=persona.name,
                model=model,
            )
            self._chat.banner.show_notice(sentence, "warning")
        else:
            name = model_name(model)
            sentence = _(
                "{persona} uses the model {name}, which is not loaded.", persona=persona.name, name=name
            )
            self._offered = _("Load {name}", name=name)
            self._chat.banner.show_notice(
                sentence, "warning", offer=(self._offered, lambda: self._models.open(Path(model)))
            )

    def _renew(self) -> None:
        self._images.clear()
        self._faces.clear()
        self._draw_avatars()
        self._show(self._session.persona)

    def _show(self, persona: Persona | None) -> None:
        self.picker.show_persona(persona)

    def _draw_avatars(self) -> None:
        self._chat.transcript.avatars.draw_with(self.draw)

    def _show_notice(self, sentence: str, level: str, undoable: bool) -> None:
        if self.dialog is None or not self.dialog.isVisible():
            self._chat.banner.show_notice(sentence, level, undo=undoable)

    def _draw(self, persona: Persona, side: int) -> QPixmap:
        if persona.id not in self._images:
            self._images[persona.id] = self.service.image(persona.id)
        window = self._window
        return avatar(
            persona.name,
            persona.avatar,
            self._images[persona.id],
            side,
            window.devicePixelRatioF(),
            window.palette(),
        )
