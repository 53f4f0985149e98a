"""What a conversation inherits: layers from its folders, its persona and itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from desktop.store.conversations.folders import FolderStore
from desktop.store.conversations.personas import PersonaStore
from desktop.store.conversations.records import Conversation
from desktop.store.database.database import Database
from engine.lazy_dataclass import dataclass

__all__ = ["Layer", "layers_of", "system_prompt_of"]


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of values.

    `source` is "folder", "persona" or "conversation"; `name` is what the user calls it. `settings` maps the
    name of a settings class to the values that it changes; `preset` names a sampler preset; empty texts
    change nothing. With `inherits` False the system prompt is this one, even if empty.
    """

    source: str
    id: int
    name: str
    system_prompt: str
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    preset: str = ""
    model_path: str = ""
    inherits: bool = True


def layers_of(database: Database, found: Conversation) -> tuple[Layer, ...]:
    """The layers of a conversation, each overriding those before it: outer folders to inner, persona,
    conversation.

    `database` is the one with the folders and personas, for temporary conversations too.
    """
    layers = [
        Layer("folder", folder.id, folder.name, folder.system_prompt, folder.settings)
        for folder in FolderStore(database).above(found.folder_id)
    ]
    if found.persona_id is not None and not (persona := PersonaStore(database).get(found.persona_id)).deleted:
        layers.append(
            Layer(
                "persona",
                persona.id,
                persona.name,
                persona.system_prompt,
                preset=persona.preset,
                model_path=persona.model_path,
            )
        )
    own = Layer(
        "conversation", found.id, found.title, found.system_prompt, found.settings,
        model_path=found.model_path, inherits=found.inherits_prompt,
    )  # fmt: skip
    return (*layers, own)


def system_prompt_of(layers: Sequence[Layer]) -> tuple[str, Layer | None]:
    """The effective system prompt and the layer it comes from (None if there is none)."""
    for layer in reversed(layers):
        if layer.system_prompt or not layer.inherits:
            return layer.system_prompt, layer
    return "", None
