"""The part of a session that knows who takes part in the open conversation: named participants, the user's
names, who answers next.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from PySide6.QtCore import QObject, Signal

from desktop.services.engine.model_host import Describe, OpenChat
from desktop.services.session.conversations import ConversationSession
from desktop.services.session.placement import prompt_of
from desktop.services.session.settings import Standing, told
from desktop.services.session.voices import Said, Scene, Voice, next_voice
from desktop.services.settings.levels import around_of
from desktop.settings import CONVERSATION_SETTINGS
from desktop.store.conversations.inheritance import layers_of
from desktop.store.conversations.participants import PLAIN, UNNAMED, Author, Cast, Participant
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.conversations.records import HIDDEN, StoredMessage
from desktop.store.conversations.stores import ConversationStores
from desktop.store.settings.preferences import Preferences
from desktop.store.settings.presets import find_preset
from engine.core import Message, ModelInfo

__all__ = ["RoleSession", "said_of"]


class RoleSession(ConversationSession):
    """Follows the cast of the open conversation.

    Signals:
        roles_changed(): the cast, a name of it, or the name the user writes as is another one.
    """

    roles_changed = Signal()
    _PLACE = (*ConversationSession._PLACE, "_roles", "_voices")

    def __init__(
        self,
        stores: ConversationStores,
        preferences: Preferences,
        open_chat: OpenChat,
        describe: Describe,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(stores, preferences, open_chat, describe, parent)
        self._roles, self._voices = PLAIN, ()  # type: tuple[Cast, tuple[Voice, ...]]

    @property
    def model(self) -> ModelInfo | None:
        """The loaded model."""
        return self._runner.engine.model

    @property
    def roles(self) -> Cast:
        """The cast as it is kept with the open conversation."""
        return self._roles

    @property
    def voices(self) -> tuple[Voice, ...]:
        """The participants of the open conversation, personas under their present names; none in a plain
        chat.
        """
        return self._voices

    @told
    def set_roles(self, roles: Cast) -> bool:
        """Give the open conversation another cast; one without participants is a plain chat."""
        self._of_open.set_cast(self._conversation, roles)
        self._look_around()
        return True

    def write_as(self, name: str) -> bool:
        """Let the user's next messages be from another one of his names; False for a name that is none."""
        found = next((own for own in self._roles.own if own.casefold() == name.casefold()), None)
        return found is not None and self.set_roles(dataclasses.replace(self._roles, writing_as=found))

    def voice(self, name: str) -> Voice | None:
        """The participant of this name."""
        return next((voice for voice in self._voices if voice.name.casefold() == name.casefold()), None)

    def next_messages(self, draft: str) -> tuple[tuple[Message, ...], list[int]]:
        """What would be asked if `draft` were sent now, but for the reply's beginning; and for each message
        but the draft its id, 0 for what is not shown.
        """
        shown = [item for item in self.messages.items() if not item.running and item.role != HIDDEN]
        said = [Said(item.role, item.text, Author(item.speaker, item.persona)) for item in shown]
        said.append(Said("user", draft, self._signature()))
        scene = self._scene(
            next_voice(self._roles, self._voices, said) or (self._voices[0] if self._voices else None)
        )
        if scene is not None:
            found = scene.messages(said, begun=False)
        else:
            system = (Message("system", self.prompt.text),) if self.prompt.text.strip() else ()
            found = (*system, *(Message(each.role, each.text) for each in said))
        return found, [*[0] * (len(found) - len(said)), *(item.id for item in shown)]

    # -- parts

    def _go_back(self, standing: Standing) -> None:
        super()._go_back(standing)
        self.roles_changed.emit()

    def _look_around(self, entering: bool = False) -> None:
        super()._look_around(entering)
        roles = self._of_open.get(self._conversation).cast
        voices = tuple(self._voice_of(participant) for participant in roles.participants)
        if entering or (roles, voices) != (self._roles, self._voices):
            self._roles, self._voices = roles, voices
            self.roles_changed.emit()

    def _voice_of(self, participant: Participant) -> Voice:
        persona = self._persona_of(participant.persona)
        if persona is None:
            return Voice(participant.name, participant.description)
        prompt = "\n\n".join(
            part for part in (persona.system_prompt.strip(), participant.description.strip()) if part
        )
        return Voice(
            persona.name.replace(":", " ").strip() or participant.name,
            prompt,
            persona.id,
            persona.preset,
            persona.model_path,
        )

    def _persona_of(self, number: int) -> Persona | None:
        """A persona that is there and not deleted."""
        return (
            next(
                (persona for persona in PersonaStore(self.stores.database).list() if persona.id == number),
                None,
            )
            if number
            else None
        )

    def _signature(self) -> Author:
        """Who the user's next message is from."""
        return Author(self._roles.user) if self._voices else UNNAMED

    def _next(self, path: Sequence[StoredMessage]) -> Author | None:
        """Who answers behind `path` without being chosen; None for nobody.

        In a plain chat it is the persona.
        """
        if not self._voices:
            return Author(self.persona.name, self.persona.id) if self.persona is not None else UNNAMED
        found = next_voice(self._roles, self._voices, said_of(path))
        return found.spoken if found is not None else None

    def _scene(self, voice: Voice | None) -> Scene | None:
        """The reply of a participant; None in a plain chat."""
        if voice is None or not self._voices:
            return None
        layers = layers_of(self.stores.database, self._of_open.get(self._conversation))
        prompt = prompt_of(tuple(layer for layer in layers if layer.source != "persona")).text
        begins = self.model is None or not (self.model.thinking or self.model.opens_thought)
        return Scene(prompt, self._voices, voice, self._roles.user, begins)

    def _voice_for(self, speaker: Author) -> Voice | None:
        """The participant who speaks as `speaker`, or one made of the name where it takes part no more;
        None in a plain chat.
        """
        if not self._voices:
            return None
        known = next((voice for voice in self._voices if voice.is_of(speaker)), None)
        return known or (Voice(speaker.name, persona=speaker.persona) if speaker.name else self._voices[0])

    @contextlib.contextmanager
    def _speaking(self, voice: Voice | None) -> Iterator[None]:
        """The settings in force are those of this participant's persona; those of the chat's persona where
        it is None.
        """
        if voice is None:
            yield
            return
        persona = voice.persona if voice in self._voices else 0
        found = dataclasses.replace(self._of_open.get(self._conversation), persona_id=persona or None)
        layers = layers_of(self.stores.database, found)
        around, _ = around_of(layers, CONVERSATION_SETTINGS, lambda name: find_preset(self.preferences, name))
        before = self._layers.around
        self._layers.surround(around)
        try:
            yield
        finally:
            self._layers.surround(before)


def said_of(path: Sequence[StoredMessage]) -> list[Said]:
    """Stored messages as voices are told of them."""
    return [Said(message.role, message.text, message.author) for message in path if message.role != HIDDEN]
