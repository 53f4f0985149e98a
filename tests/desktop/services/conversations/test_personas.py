"""Personas over a real session and store: who changes them tells the window, and a deletion can be undone."""

from __future__ import annotations

from desktop.services.conversations.personas import PersonaService
from desktop.store.conversations.personas import Persona
from tests.desktop.services.conftest import Harness


def test_every_change_is_told_and_a_deletion_is_undone(harness: Harness) -> None:
    service = PersonaService(harness.session)
    told: list[str] = []
    service.changed.connect(lambda: told.append("changed"))
    service.notice.connect(lambda sentence, _level, undoable: told.append(f"{sentence} {undoable}"))
    saved = service.save(Persona(0, "Ada", system_prompt="You are Ada."), b"picture")
    assert saved is not None
    assert (service.personas(), service.image(saved.id), told) == ((saved,), b"picture", ["changed"])
    copy = service.duplicate(saved)
    assert copy is not None
    assert (copy.id != saved.id, copy.name, copy.system_prompt) == (True, "Ada 2", saved.system_prompt)
    assert service.image(copy.id) == b"picture"
    assert service.choose(saved.id)
    told.clear()
    assert service.delete(saved)
    assert service.personas() == (copy,)
    assert told == ["changed", "The persona “Ada” was deleted. Its chats continue without it. True"]
    harness.session.undo()
    assert service.personas() == (saved, copy)
    assert told[2:] == ["changed"]
