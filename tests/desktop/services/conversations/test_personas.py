"""Personas over a real session and store: who changes them tells the window, and a deletion can be undone."""

from __future__ import annotations

import pytest

from desktop.services.conversations.personas import PersonaService
from desktop.store.conversations.personas import Persona
from desktop.store.database.errors import StoreError
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


def test_a_change_that_cannot_be_saved_is_told_and_not_undoable(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = PersonaService(harness.session)
    kept = service.save(Persona(0, "Ada"))
    assert kept is not None
    told: list[object] = []
    service.changed.connect(lambda: told.append("changed"))
    service.notice.connect(lambda *notice: told.append(notice))

    def full(*_given: object) -> None:
        raise StoreError("The disk is full.")

    for name in ("save", "delete"):
        monkeypatch.setattr(service._store, name, full)
    assert service.save(Persona(0, "Bob")) is None
    assert not service.delete(kept)
    assert told == [("The disk is full.", "error", False)] * 2
    assert service.personas() == (kept,)
