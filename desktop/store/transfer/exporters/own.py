"""This program's own JSON: a list of conversations with everything the store has of them, without loss."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.printable import json_text

__all__ = ["FORMAT", "PERSONA_FIELDS", "VERSION", "own_json", "plain"]

FORMAT, VERSION = "inglenook-conversation", 2
"""Stored with each conversation, because one conversation alone is a valid file too.

Version 1 had no folders, pins or personas.
"""

PERSONA_FIELDS = ("name", "avatar", "system_prompt", "preset", "model_path")
"""What is exported of a persona: everything but its picture."""


def own_json(conversations: Iterable[ConversationRecord]) -> Iterator[str]:
    """Yield the text of the file, one conversation at a time. Times are seconds since 1970; `tokens` is
    base64.
    """
    yield "["
    separator = "\n"
    for conversation in conversations:
        yield separator + json_text(json.dumps(plain(conversation), ensure_ascii=False))
        separator = ",\n"
    yield "\n]\n"


def plain(conversation: ConversationRecord) -> dict[str, Any]:
    """The conversation as a JSON object."""
    return _head(conversation) | {
        "settings": dict(conversation.settings), "model_path": conversation.model_path,
        "shown": conversation.shown_root,
        "messages": [_message(message) for message in conversation.messages],
    } | _pictures(conversation) | _whole_texts(conversation)  # fmt: skip


def _whole_texts(conversation: ConversationRecord) -> dict[str, Any]:
    """The whole texts of files of which messages have a part, if there are any."""
    found = [{"name": name, "text": whole} for name, whole in conversation.whole_texts]
    return {"whole_texts": found} if found else {}


def _pictures(conversation: ConversationRecord) -> dict[str, Any]:
    """The pictures by their keys, if there are any; `data` is base64."""
    found = {
        key: {
            "type": picture.media_type, "width": picture.width, "height": picture.height,
            "data": base64.b64encode(picture.data).decode("ascii"),
        }
        for key, picture in conversation.pictures.items()
    }  # fmt: skip
    return {"pictures": found} if found else {}


def _head(conversation: ConversationRecord) -> dict[str, Any]:
    who = conversation.persona
    return {
        "format": FORMAT, "version": VERSION, "title": conversation.title,
        "auto_title": conversation.auto_title, "kind": conversation.kind, "source": conversation.source,
        "key": conversation.key, "created_at": conversation.created_at, "updated_at": conversation.updated_at,
        "deleted": conversation.deleted, "deleted_at": conversation.deleted_at,
        "folder": list(conversation.folder), "pinned": conversation.pinned,
        "inherits_prompt": conversation.inherits_prompt,
        "persona": {name: getattr(who, name) for name in PERSONA_FIELDS} if who is not None else None,
        "system_prompt": conversation.system_prompt,
        **({"roles": dict(conversation.cast)} if conversation.cast else {}),
        **({"local_only": True} if conversation.local_only else {}),
        **_folder_contents(conversation),
    }  # fmt: skip


def _folder_contents(conversation: ConversationRecord) -> dict[str, Any]:
    """What each folder gives to its chats, if that is anything."""
    contents = [
        {"system_prompt": each.system_prompt, "settings": dict(each.settings)}
        for each in conversation.folder_contents
    ]
    return {"folder_contents": contents} if contents else {}


def _message(message: MessageRecord) -> dict[str, Any]:
    found: dict[str, Any] = {
        "key": message.key, "parent": message.parent, "role": message.role, "text": message.text,
        "created_at": message.created_at, "state": message.state,
    }  # fmt: skip
    optional = {
        "stats": dict(message.stats), "shown": message.shown_child, "deleted": message.deleted,
        "raw": message.raw, "speaker": message.author,
        "call": message.call._asdict() if message.call is not None else None,
        "tokens": base64.b64encode(message.tokens).decode("ascii"),
    }  # fmt: skip
    return found | {name: value for name, value in optional.items() if value not in (None, {}, False, "")}
