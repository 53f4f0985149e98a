"""What a reply depends on besides the messages: settings, system prompt, persona, participants."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from desktop.services.engine.adapted_models import AdaptedModels
from desktop.services.session.leading_name import LeadingName
from desktop.services.session.scene import (
    AuthoredMessage,
    Scene,
    SceneParticipant,
    authored,
    next_participant,
)
from desktop.services.settings.layered_settings import (
    FROM_FOLDER,
    FROM_PERSONA,
    LayeredSettings,
    ModelLayer,
    inherited_layers,
    persona_layer,
)
from desktop.services.system.language import today_text
from desktop.store.conversations.conversations import ConversationStore, StoredMessage
from desktop.store.conversations.inheritance import Layer, layers_of, system_prompt_of
from desktop.store.conversations.participants import PLAIN, UNNAMED, Author, Cast, Participant
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.conversations.records import NOTEBOOK
from desktop.store.conversations.stores import FIRST_TEMPORARY, ConversationStores
from desktop.store.settings.preferences import Preferences
from desktop.store.settings.prompt_variables import with_date
from engine.core import ChatRequest, Message, ModelInfo
from engine.lazy_dataclass import dataclass
from engine.settings import (
    AdapterSettings,
    ConstraintSettings,
    GuidanceSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
    ThinkingSettings,
)

__all__ = ["ConversationContext", "Prompt", "is_temporary", "read_context"]


class Prompt(NamedTuple):
    """The system prompt of a chat. `own` is its own text, `inherited` what it has without one, from `source`
    ("folder NAME" or "persona NAME", "" for none); if it does not `inherit`, there is only its own.
    """

    own: str = ""
    inherited: str = ""
    source: str = ""
    inherits: bool = True

    @property
    def text(self) -> str:
        """The one that is sent, with the present date for `{{date}}`."""
        text = self.own if self.own or not self.inherits else self.inherited
        return with_date(text, today_text())


def is_temporary(number: int) -> bool:
    """Whether a chat, or a message, is in memory only."""
    return number >= FIRST_TEMPORARY


@dataclass(frozen=True, slots=True)
class ConversationContext:
    """One chat, open or not; id 0 is none. `participants` have their personas' present names; there are none
    in a plain chat. `scene_prompt` is the system prompt without the persona's. Nothing of a chat that is
    `local_only` is sent to a server.

    `unusable` has a sentence for each value of the chat that was replaced by its default, `left_out` for each
    one of a folder.
    """

    id: int
    store: ConversationStore
    layers: LayeredSettings
    preferences: Preferences
    kind: str = ""
    prompt: Prompt = dataclasses.field(default_factory=Prompt)
    persona: Persona | None = None
    cast: Cast = PLAIN
    participants: tuple[SceneParticipant, ...] = ()
    scene_prompt: str = ""
    local_only: bool = False
    unusable: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def is_notebook(self) -> bool:
        """Whether it is a document, not a chat."""
        return self.kind == NOTEBOOK

    def path(self) -> tuple[StoredMessage, ...]:
        """The messages that are shown, oldest first. Raises `StoreError`."""
        return self.store.path(self.id)

    # -- who speaks

    @property
    def user(self) -> Author:
        """Who the user's next message is from."""
        return Author(self.cast.user) if self.participants else UNNAMED

    def participant(self, name: str) -> SceneParticipant | None:
        """The participant of this name."""
        return next(
            (
                participant
                for participant in self.participants
                if participant.name.casefold() == name.casefold()
            ),
            None,
        )

    def next_author(self, path: Sequence[StoredMessage]) -> Author | None:
        """Who answers `path` if nobody is chosen; None for nobody. In a plain chat it is the persona."""
        if not self.participants:
            return Author(self.persona.name, self.persona.id) if self.persona is not None else UNNAMED
        found = next_participant(self.cast, self.participants, authored(path))
        return found.author if found is not None else None

    def participant_for(self, author: Author) -> SceneParticipant | None:
        """The participant who is this author, or one made of that name if it takes part no longer; None
        in a plain chat.
        """
        if not self.participants:
            return None
        known = next((participant for participant in self.participants if participant.wrote(author)), None)
        return known or (
            SceneParticipant(author.name, persona=author.persona) if author.name else self.participants[0]
        )

    def scene(self, participant: SceneParticipant, models: AdaptedModels) -> Scene:
        """The next reply as one of a participant."""
        model = models.of(self.layers_for(participant).settings(AdapterSettings).adapters)
        begins = model is None or not (model.thinking or model.opens_thought)
        return Scene(self.scene_prompt, self.participants, participant, self.cast.user, begins)

    def layers_for(self, participant: SceneParticipant) -> LayeredSettings:
        """The settings for a participant's reply: those of its persona instead of the chat's."""
        inherited = [layer for layer in self.layers.inherited if not layer.source.startswith(FROM_PERSONA)]
        if participant.persona:
            inherited.append(persona_layer(self.preferences, participant.name, participant.preset))
        return self.layers.with_inherited(inherited)

    # -- requests

    def may_use(self, model: ModelInfo | None) -> bool:
        """Whether a model may read this chat: one of a server may not if the chat stays on this computer."""
        return not (self.local_only and model is not None and model.host)

    def request(
        self,
        messages: tuple[Message, ...],
        goes_on: bool = False,
        ids: tuple[int, ...] = (),
        layers: LayeredSettings | None = None,
    ) -> ChatRequest:
        """The request with all settings of the chat, or with `layers`.

        Exact token ids of a beginning stay as they are: their last token is not healed.
        """
        settings = (layers or self.layers).settings
        constraint = settings(ConstraintSettings)
        return ChatRequest(
            messages,
            sampler=settings(SamplerSettings),
            stops=settings(StopSettings),
            continue_last=goes_on,
            speculation=settings(SpeculationSettings),
            constraint=dataclasses.replace(constraint, heal=False) if ids else constraint,
            guidance=settings(GuidanceSettings),
            output=settings(OutputSettings),
            adapters=settings(AdapterSettings),
            continue_ids=ids,
            thinking=settings(ThinkingSettings),
            local_only=self.local_only,
        )

    def scene_request(
        self,
        written: list[AuthoredMessage],
        participant: SceneParticipant,
        models: AdaptedModels,
        goes_on: bool = False,
        ids: tuple[int, ...] = (),
    ) -> tuple[ChatRequest, LeadingName | None]:
        """The request for a reply of one of several participants; and what removes names from its beginning,
        unless it continues a text.
        """
        scene = self.scene(participant, models)
        if goes_on:  # the last one is this participant's, whoever was to speak when it was begun
            written = [*written[:-1], written[-1]._replace(author=participant.author)]
        messages, begun = scene.messages(written, goes_on), scene.begins_with_name(written, goes_on)
        signed = bool(messages) and messages[-1].content.startswith(f"{participant.name}: ")
        # ids do not include the name before them
        request = self.request(
            messages, goes_on or begun, () if signed else ids, self.layers_for(participant)
        )
        stops = dataclasses.replace(
            request.stops, stop_strings=(*request.stops.stop_strings, *scene.stops(written)), keep_stop=False
        )
        # The name's last token is drawn again: after "Ada: " no model expects a word without its blank.
        constraint = dataclasses.replace(request.constraint, heal=request.constraint.heal or begun)
        request = dataclasses.replace(request, stops=stops, constraint=constraint)
        model = models.of(request.adapters.adapters)
        tags = model.thinking if model is not None else ()
        opened = model.opened_thought(request.thinking.thinking) if model is not None and not begun else ""
        return request, None if goes_on else scene.leading(written, opened, tags)


def read_context(
    stores: ConversationStores,
    preferences: Preferences,
    model: ModelLayer,
    conversation_id: int,
    known: LayeredSettings | None = None,
    persona_id: int = 0,
) -> ConversationContext:
    """Everything about a chat but its messages, read from the store; its own settings are those of `known`
    if given. With `persona_id`, as if that persona were chosen in it. Raises `StoreError`.
    """
    store = stores.of(conversation_id)
    found = store.get(conversation_id)
    if persona_id:
        found = dataclasses.replace(found, persona_id=persona_id)
    stored = layers_of(stores.database, found)
    inherited, left_out = inherited_layers(stored, preferences)
    layers, unusable = (known or LayeredSettings(preferences, model)).with_inherited(inherited), ()
    if known is None:
        unusable = layers.read_own(found.settings)  # type: ignore[assignment]
    persona = next((layer for layer in stored if layer.source == "persona"), None)
    personas = PersonaStore(stores.database)
    listed = personas.list() if any(each.persona for each in found.cast.participants) else ()
    by_id = {persona.id: persona for persona in listed}
    return ConversationContext(
        conversation_id,
        store,
        layers,
        preferences,
        found.kind,
        _prompt_of(stored),
        personas.get(persona.id) if persona is not None else None,
        found.cast,
        tuple(_participant_of(each, by_id.get(each.persona)) for each in found.cast.participants),
        _prompt_of(tuple(layer for layer in stored if layer.source != "persona")).text,
        found.local_only,
        unusable,
        left_out,
    )


def _participant_of(participant: Participant, persona: Persona | None) -> SceneParticipant:
    if persona is None:
        return SceneParticipant(participant.name, with_date(participant.description, today_text()))
    parts = (persona.system_prompt.strip(), participant.description.strip())
    return SceneParticipant(
        persona.name.replace(":", " ").strip() or participant.name,
        with_date("\n\n".join(part for part in parts if part), today_text()),
        persona.id,
        persona.preset,
        persona.model_path,
    )


def _prompt_of(layers: tuple[Layer, ...]) -> Prompt:
    own = layers[-1]
    inherited, layer = system_prompt_of(layers[:-1])
    heads = {"folder": FROM_FOLDER, "persona": FROM_PERSONA}
    source = heads[layer.source] + layer.name if layer is not None else ""
    return Prompt(own.system_prompt, inherited, source, own.inherits)
