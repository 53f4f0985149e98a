"""The part of a session that knows where the open conversation stands: its folders, its persona, its
system prompt.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from desktop.services.session.settings import SettingsSession, Standing, told
from desktop.services.settings.levels import FROM_FOLDER, FROM_PERSONA, around_of
from desktop.settings import CONVERSATION_SETTINGS
from desktop.store.conversations.inheritance import Layer, layers_of, system_prompt_of
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.conversations.stores import FIRST_TEMPORARY, ConversationStores
from desktop.store.settings.preferences import Preferences
from desktop.store.settings.presets import find_preset

__all__ = ["PlacedSession", "Prompt", "is_temporary", "prompt_of"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The system prompt of a conversation. `own` is its own text, `inherited` what it has without one, from
    `source` ("folder NAME" or "persona NAME", empty for none); where it does not `inherit`, there is only its
    own.
    """

    own: str = ""
    inherited: str = ""
    source: str = ""
    inherits: bool = True

    @property
    def text(self) -> str:
        """The one that is sent."""
        return self.own if self.own or not self.inherits else self.inherited


def is_temporary(number: int) -> bool:
    """Whether a conversation, or a message, is in memory only."""
    return number >= FIRST_TEMPORARY


class PlacedSession(SettingsSession):
    """Follows the folders and the persona of the open conversation.

    Signals:
        prompt_changed(object): the `Prompt` of the open conversation.
        persona_changed(object): its `Persona`, or None.
    """

    prompt_changed = Signal(object)
    persona_changed = Signal(object)
    _PLACE = (*SettingsSession._PLACE, "_prompt", "_persona", "_problems")

    def __init__(
        self, stores: ConversationStores, preferences: Preferences, parent: QObject | None = None
    ) -> None:
        super().__init__(stores, preferences, parent)
        self._prompt = Prompt()
        self._persona: Persona | None = None
        self._problems: tuple[str, ...] = ()

    @property
    def prompt(self) -> Prompt:
        """The open conversation's system prompt, and where it comes from."""
        return self._prompt

    @property
    def persona(self) -> Persona | None:
        """Who answers in the open conversation; None is nobody in particular."""
        return self._persona

    @property
    def temporary(self) -> bool:
        """Whether the open conversation is in memory only."""
        return is_temporary(self._conversation)

    @told
    def set_system_prompt(self, text: str, inherit: bool = True) -> bool:
        """Replace the open conversation's own system prompt; an empty one takes that of persona or folder, if
        `inherit`, else there is none.
        """
        self._of_open.set_system_prompt(self._conversation, text, inherit)
        self._look_around()
        return True

    @told
    def choose_persona(self, persona_id: int | None) -> bool:
        """Let a persona answer in the open conversation; None is nobody in particular."""
        self._of_open.set_persona(self._conversation, persona_id)
        self._look_around()
        return True

    @told
    def follow_place(self) -> bool:
        """Read again what the open conversation has from its folders and its persona: one of them changed,
        or it was moved.
        """
        if self._conversation:
            self._look_around()
        return True

    @told
    def presets_edited(self, old: str = "", new: str = "") -> bool:
        """Presets came, went or were changed; one called `old` is now called `new`, also for the personas
        that use it.
        """
        if old:
            personas = PersonaStore(self.stores.database)
            for persona in personas.list():
                if persona.preset == old:
                    personas.save(dataclasses.replace(persona, preset=new))
        edited = super().presets_edited(old, new)
        return self.follow_place() and edited

    def _go_back(self, standing: Standing) -> None:
        """Another conversation could not be opened: everything is told again of the one that is still
        shown.
        """
        self._stand(standing)
        self.prompt_changed.emit(self._prompt)
        self.persona_changed.emit(self._persona)
        for cls in CONVERSATION_SETTINGS:
            self.settings_changed.emit(cls)

    def _look_around(self, entering: bool = False) -> None:
        layers = layers_of(self.stores.database, self._of_open.get(self._conversation))
        around, problems = around_of(
            layers, CONVERSATION_SETTINGS, lambda name: find_preset(self.preferences, name)
        )
        for cls in self._layers.surround(around):
            if not entering:
                self.settings_changed.emit(cls)
        for problem in problems if problems != self._problems else ():
            self._say(self.notice, f"A setting of a folder was left out: {problem}", "warning")
        self._problems = problems
        found = next((layer for layer in layers if layer.source == "persona"), None)
        persona = PersonaStore(self.stores.database).get(found.id) if found is not None else None
        if persona != self._persona:
            self._persona = persona
            self.persona_changed.emit(persona)
        prompt = prompt_of(layers)
        if entering or prompt != self._prompt:
            self._prompt = prompt
            self.prompt_changed.emit(prompt)


def prompt_of(layers: tuple[Layer, ...]) -> Prompt:
    """The system prompt of a conversation with these layers."""
    own = layers[-1]
    inherited, layer = system_prompt_of(layers[:-1])
    heads = {"folder": FROM_FOLDER, "persona": FROM_PERSONA}
    return Prompt(
        own.system_prompt,
        inherited,
        heads[layer.source] + layer.name if layer is not None else "",
        own.inherits,
    )
