"""This program's own JSON after others have changed it: what is read, and what is noted."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from desktop.store.attachments.pictures import StoredPicture
from desktop.store.conversations.folders import FolderContents
from desktop.store.conversations.personas import Persona
from desktop.store.transfer.exporters.own import plain
from desktop.store.transfer.importers.programs.own import Own
from desktop.store.transfer.importers.protocol import Unreadable
from desktop.store.transfer.records import ConversationRecord
from tests.desktop.store.transfer.importers import files


def read(**changes: Any) -> tuple[ConversationRecord, list[tuple[str, str]]]:
    """The sample with other fields, and what is noted."""
    notes: list[tuple[str, str]] = []
    return Own().read(plain(files.own()) | changes, lambda *words: notes.append(words)), notes


def message(key: str, parent: str | None, **more: Any) -> dict[str, Any]:
    return {"key": key, "parent": parent, "role": "user", "text": key, **more}


@pytest.mark.parametrize("version", [None, "2", 2.0, 3])
def test_newer_versions_are_refused(version: Any) -> None:
    with pytest.raises(Unreadable, match="saved by a newer version of Inglenook"):
        read(version=version)
    assert read(version=1)[1] == []


@pytest.mark.parametrize("messages", [None, {}, "Hi"])
def test_a_chat_needs_a_list_of_messages(messages: Any) -> None:
    with pytest.raises(Unreadable, match="it has no list of messages"):
        read(messages=messages)


def test_a_chat_without_a_key_is_known_by_its_messages() -> None:
    """So that it is not imported twice."""
    one, again, other = (read(key=None, messages=[message(name, None)])[0].key for name in "aab")
    assert one == again != other
    assert one


def test_what_cannot_be_placed_is_noted_and_what_follows_it_is_kept() -> None:
    record, notes = read(
        messages=[
            message("a", None), message("a", None, text="again"), message("b", "gone"),
            message("c", "a", text=None), message("d", "c"), 5,
        ],
        shown="gone",
    )  # fmt: skip
    assert [(each.key, each.parent, each.text) for each in record.messages] == [
        ("a", None, "a"), ("b", None, "b"), ("d", "a", "d"),
    ]  # fmt: skip
    assert record.shown_root is None
    assert notes == [
        ("message 2", "its key is used twice"),
        ("message 3", "the message it replies to is missing, so it was placed at the top"),
        ("message 4", "it has no key, no role or no text"),
        ("message 6", "it has no key, no role or no text"),
    ]


def test_values_of_the_wrong_type_are_left_out() -> None:
    counts = {"new_tokens": True, "seed": 1.5, "decode_seconds": 2, "speedup": "fast", "later": "x"}
    record, notes = read(
        messages=[message("a", None, tokens="?", state="odd", stats={"model": "m", "stats": counts})],
        settings={"SamplerSettings": {"top_k": 1}, "Other": 5}, folder=["", " a\nb ", 5, "c"],
        persona={"name": " "}, pictures={"k": {"data": "?"}, "l": {"data": "AAE="}},
    )  # fmt: skip
    (only,) = record.messages
    assert (only.tokens, only.state) == (b"", "complete")
    assert only.stats == {"model": "m", "stats": {"decode_seconds": 2, "later": "x"}}
    assert record.settings == {"SamplerSettings": {"top_k": 1}}
    assert notes == [("settings", "they are not JSON objects and were ignored")]
    assert (record.folder, record.persona) == (("a b", "c"), None)
    assert record.pictures == {"l": StoredPicture("", 0, 0, base64.b64decode("AAE="))}


def test_contents_of_folders_belong_to_names_that_are_valid() -> None:
    contents = [{"system_prompt": "a", "settings": {"S": {"x": 1}}}, {"system_prompt": 5}]
    record, notes = read(folder=["one", "two"], folder_contents=contents)
    assert record.folder_contents == (FolderContents("a", {"S": {"x": 1}}), FolderContents())
    assert notes == []
    for names in (["one"], ["one", ""], ["one", "", "two"], [], None):
        assert read(folder=names, folder_contents=contents)[0].folder_contents == ()
    assert read(folder=["one"], folder_contents=7)[0].folder_contents == ()


def test_a_persona_is_not_one_of_those_here() -> None:
    given = {"name": " Ada\nB ", "avatar": "🦊", "system_prompt": "Bake.", "preset": "P", "model_path": "/m"}
    assert read(persona=given)[0].persona == Persona(0, "Ada B", "🦊", "Bake.", "P", "/m")


@pytest.mark.parametrize("settings", [None, {}, {"SamplerSettings": {"top_k": 1}}])
def test_settings_that_are_good_are_not_noted(settings: Any) -> None:
    record, notes = read(settings=settings)
    assert (record.settings, notes) == (settings or {}, [])


@pytest.mark.parametrize(
    ("kind", "messages", "expected"),
    [("notebook", 1, "notebook"), ("notebook", 2, "chat"), ("notebook", 0, "chat"), ("other", 1, "chat")],
)
def test_a_notebook_has_one_message(kind: str, messages: int, expected: str) -> None:
    assert read(kind=kind, messages=[message(str(key), None) for key in range(messages)])[0].kind == expected
