"""Connects the cast of the open chat with the window: the row of names, the dialog, slash commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from desktop.items.commands.slash import SlashWord
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.context_meter import ContextMeter
from desktop.services.session.scene import authored, next_participant
from desktop.store.conversations.participants import Cast
from desktop.store.database.database import StoreError
from desktop.views.chat.announcer import REPLYING
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.composer.controller import ComposerController
from desktop.views.personas.controller import PersonaController
from desktop.views.personas.participants_bar import ParticipantsBar
from desktop.views.widgets.listening import listen

if TYPE_CHECKING:
    from desktop.views.personas.participants_dialog import ParticipantsDialog

__all__ = ["ParticipantsController"]


class ParticipantsController(QObject):
    """Owns the row of names; `dialog` is the dialog of participants while it is open."""

    def __init__(
        self,
        session: ChatSession,
        chat: ChatPane,
        personas: PersonaController,
        composer: ComposerController,
        meter: ContextMeter,
    ) -> None:
        super().__init__(chat)
        self._session, self._chat, self._personas, self._composer = session, chat, personas, composer
        self.dialog: ParticipantsDialog | None = None
        self.bar = ParticipantsBar(personas.draw)
        chat.composer.add_above(self.bar)
        self.bar.chosen.connect(self.let_answer)
        self.bar.writing_as.connect(self.write_as)
        self.bar.edit_requested.connect(self.open)
        personas.picker.participants_requested.connect(self.open)
        personas.service.changed.connect(self._show)
        listen(self, session.cast_changed, self._show)
        listen(self, session.cast_changed, meter.prompt_changed)
        session.state_changed.connect(self._show_state)
        for signal in (
            session.messages.rowsInserted,
            session.messages.rowsRemoved,
            session.messages.modelReset,
        ):
            signal.connect(self._show)
        self._show()

    def commands(self) -> dict[str, Callable[[], object]]:
        """The command that opens the dialog of participants."""
        return {"roles": self.open}

    def slash_words(self) -> dict[str, SlashWord]:
        """The slash commands with a participant's name."""
        return {
            "as": SlashWord(self.write_as, lambda: self._session.cast.own),
            "next": SlashWord(self.let_answer, self._names),
        }

    def open(self) -> None:
        """Show the participants of the open chat for editing."""
        if self.dialog is not None:
            self.dialog.activateWindow()
            return
        # Only when needed.
        from desktop.views.personas.participants_dialog import ParticipantsDialog

        conversation = self._session.conversation
        self.dialog = ParticipantsDialog(
            self._session.cast, self._personas.service.personas(), self._personas.draw, self._chat.window()
        )
        self.dialog.accepted_cast.connect(lambda cast: self._take(conversation, cast))
        self.dialog.finished.connect(self._closed)
        self.dialog.open()

    def let_answer(self, name: str) -> None:
        """Let a participant answer the text in the message box; without text, continue the conversation."""
        participant = self._session.participant(name)
        if participant is None:
            return
        self._personas.offer_model_of(participant.persona)
        if self._chat.composer.text().strip():
            self._composer.send_to(name)
        else:
            self._session.speak(name)
        self._chat.composer.setFocus()

    def write_as(self, name: str) -> None:
        """Let the user write under another one of their names."""
        if self._session.write_as(name):
            self._chat.composer.setFocus()

    def _names(self) -> Sequence[str]:
        return [participant.name for participant in self._session.participants]

    def _take(self, conversation: int, cast: Cast) -> None:
        session = self._session
        if conversation == session.conversation and session.set_cast(cast) and session.participants:
            self._personas.offer_model_of(session.participants[0].persona)

    def _closed(self) -> None:
        self.dialog = None
        self._chat.composer.setFocus()

    def _show(self) -> None:
        session = self._session
        cast, participants = session.cast, session.participants
        following = None
        if participants and session.conversation:
            try:
                path = session.stores.of(session.conversation).path(session.conversation)
            except StoreError:  # The session reports it.
                path = ()
            following = next_participant(cast, participants, authored(path))
        self.bar.show_cast(
            participants,
            cast.own,
            cast.user,
            following.name if following is not None else "",
            cast.turn == "hand",
        )
        self._show_state(session.state)
        self._personas.picker.show_participants(len(participants))

    def _show_state(self, state: str) -> None:
        self.bar.set_busy(state in REPLYING)
