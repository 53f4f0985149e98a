"""This program's own JSON, as `desktop/store/transfer/exporters/own.py` writes it."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any

from desktop.store.attachments.pictures import StoredPicture
from desktop.store.attachments.whole_texts import LONGEST
from desktop.store.conversations.bulk_insert import OWN, chain_key
from desktop.store.conversations.folders import FolderContents
from desktop.store.conversations.personas import Persona
from desktop.store.conversations.records import CHAT, NOTEBOOK, STATES
from desktop.store.conversations.tool_calls import StoredCall
from desktop.store.transfer.exporters.own import FORMAT, PERSONA_FIELDS, VERSION
from desktop.store.transfer.importers.fields import clean, items, mapping, seconds, text
from desktop.store.transfer.importers.protocol import Note, Unreadable
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.core import Stats
from engine.words import _

__all__ = ["Own"]


class Own:
    source, label = OWN, "Inglenook"

    def recognises(self, value: Any) -> bool:
        return isinstance(value, dict) and value.get("format") == FORMAT

    def read(self, value: Any, note: Note) -> ConversationRecord:
        version = value.get("version")
        if not isinstance(version, int) or version > VERSION:
            raise Unreadable(
                _("it was saved by a newer version of Inglenook: update Inglenook, then import it again")
            )
        entries = value.get("messages")
        if not isinstance(entries, list):
            raise Unreadable(_("it has no list of messages"))
        messages: dict[str, MessageRecord] = {}
        lost: dict[str, str | None] = {}
        for number, entry in enumerate(entries, start=1):
            about = mapping(entry)
            parent = _parent(about.get("parent"), messages, lost)
            found = _message(about, parent)
            if found is None or found.key in messages:
                note(
                    _("message {number}", number=number),
                    _("it has no key, no role or no text") if found is None else _("its key is used twice"),
                )
                lost.setdefault(text(about.get("key")), parent)
                continue
            if parent is None and about.get("parent") is not None:
                note(
                    _("message {number}", number=number),
                    _("the message it replies to is missing, so it was placed at the top"),
                )
            messages[found.key] = found
        made = seconds(value.get("created_at"))
        key = text(value.get("key")) or chain_key(None, *(message.key for message in messages.values()))
        return ConversationRecord(
            text(value.get("source")) or OWN, key, text(value.get("title")), made,
            seconds(value.get("updated_at")), tuple(messages.values()), _known(value.get("shown"), messages),
            text(value.get("system_prompt")), _settings(value.get("settings"), note),
            text(value.get("model_path")), value.get("auto_title") is True, value.get("deleted") is True,
            _folder(value.get("folder")), value.get("pinned") is True, _persona(value.get("persona")),
            value.get("inherits_prompt") is not False, seconds(value.get("deleted_at")),
            mapping(value.get("roles")),
            NOTEBOOK if value.get("kind") == NOTEBOOK and len(messages) == 1 else CHAT,
            local_only=value.get("local_only") is True, pictures=_pictures(value.get("pictures")),
            folder_contents=_folder_contents(value, note),
            whole_texts=_whole_texts(value.get("whole_texts")),
        )  # fmt: skip


def _pictures(value: Any) -> dict[str, StoredPicture]:
    """The pictures by their keys, not checked yet; their sizes and types are found out from their bytes."""
    found: dict[str, StoredPicture] = {}
    for key, about in mapping(value).items():
        try:
            data = base64.b64decode(text(mapping(about).get("data")), validate=True)
        except ValueError:
            continue
        found[key] = StoredPicture("", 0, 0, data)
    return found


def _whole_texts(value: Any) -> tuple[tuple[str, str], ...]:
    """The names and texts of files of which messages have a part."""
    found = ((text(mapping(each).get("name")), text(mapping(each).get("text"))) for each in items(value))
    return tuple((name, whole[:LONGEST]) for name, whole in found if name and whole)


def _folder(value: Any) -> tuple[str, ...]:
    """Valid folder names: on one line and never empty."""
    names = (" ".join(text(name).split()) for name in items(value))
    return tuple(name for name in names if name)


def _folder_contents(value: dict[str, Any], note: Note) -> tuple[FolderContents, ...]:
    """What the folders give, one for each of them; nothing if one of them has no valid name."""
    found = [mapping(each) for each in items(value.get("folder_contents"))]
    if len(found) != len(items(value.get("folder"))) or len(found) != len(_folder(value.get("folder"))):
        return ()
    return tuple(
        FolderContents(text(each.get("system_prompt")), _settings(each.get("settings"), note))
        for each in found
    )


def _persona(value: Any) -> Persona | None:
    """A persona that is not saved yet; None if there is none with a name."""
    name, avatar, prompt, preset, model = (text(mapping(value).get(field)) for field in PERSONA_FIELDS)
    name = " ".join(name.split())
    return Persona(0, name, avatar, prompt, preset, model) if name else None


def _known(value: Any, messages: dict[str, MessageRecord]) -> str | None:
    return value if isinstance(value, str) and value in messages else None


def _settings(value: Any, note: Note) -> dict[str, dict[str, Any]]:
    good = {clean(name): values for name, values in mapping(value).items() if isinstance(values, dict)}
    if value is not None and (not isinstance(value, dict) or len(good) < len(value)):
        note("settings", _("they are not JSON objects and were ignored"))
    return good


def _parent(value: Any, messages: dict[str, MessageRecord], lost: dict[str, str | None]) -> str | None:
    """The message above, skipping those that could not be read. Parents come before their children."""
    key = text(value) or None
    return lost[key] if key in lost and key not in messages else key if key in messages else None


def _message(about: dict[str, Any], parent: str | None) -> MessageRecord | None:
    key, role, state = text(about.get("key")), text(about.get("role")), text(about.get("state"))
    if not key or not role or not isinstance(about.get("text"), str):
        return None
    try:
        tokens = base64.b64decode(text(about.get("tokens")), validate=True)
    except ValueError:
        tokens = b""
    return MessageRecord(
        key, parent, role, text(about["text"]), seconds(about.get("created_at")),
        state if state in STATES else "complete", _stats(mapping(about.get("stats"))),
        text(about.get("shown")) or None, about.get("deleted") is True, tokens, about.get("raw"),
        author=" ".join(text(about.get("speaker")).split()), call=_call(about.get("call")),
    )  # fmt: skip


def _call(value: Any) -> StoredCall | None:
    """The call of a tool. It does not wait any longer: nobody is asked to allow what a file says."""
    id, name, arguments, server, tool = (text(mapping(value).get(key)) for key in StoredCall._fields[:5])
    return StoredCall(id, name, arguments, server, tool) if name else None


def _stats(given: dict[str, Any]) -> dict[str, Any]:
    """The values, with counts and times only where they have the types that the window expects."""
    counts = given.get("stats")
    if counts is None:
        return given
    kinds = {field.name: field.default for field in dataclasses.fields(Stats)}
    good = {
        name: value
        for name, value in mapping(counts).items()
        if name not in kinds or _alike(value, kinds[name])
    }
    return given | {"stats": good}


def _alike(value: Any, default: Any) -> bool:
    """Whether a value may stand where a number is the default, as of all that is counted."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and (isinstance(default, float) or isinstance(value, int))
    )
