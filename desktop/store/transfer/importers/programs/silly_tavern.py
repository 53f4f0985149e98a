"""SillyTavern's chats, one per `.jsonl` file: a header line, then one message per line, with swipes as
variants.

Format: github.com/SillyTavern/SillyTavern, src/endpoints/chats.js, public/script.js and public/scripts/
chats.js; its macros: docs.sillytavern.app, usage/core-concepts. Pictures lie in `user/images`, in the folder
that `chats` is in as well; the oldest files have them as data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from desktop.store.conversations.bulk_insert import chain_key
from desktop.store.conversations.records import HIDDEN
from desktop.store.transfer.importers.fields import (
    content_key,
    first_text,
    items,
    mapping,
    rest,
    seconds,
    text,
)
from desktop.store.transfer.importers.left_out import left_out_notes, with_chat
from desktop.store.transfer.importers.parts import (
    document,
    join,
    picture,
    picture_beside,
    thought,
    tool_call,
    tool_result,
    with_files,
)
from desktop.store.transfer.importers.protocol import Note, Unreadable
from desktop.store.transfer.importers.trees import shape
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.lazy_dataclass import dataclass
from engine.words import _

__all__ = ["SillyTavern"]

_MEDIA = ("image", "file", "files", "video", "media")
_LINE = (
    "name",
    "is_user",
    "is_system",
    "send_date",
    "mes",
    "extra",
    "swipes",
    "swipe_id",
    "swipe_info",
    "is_name",
)
_EXTRA = (*_MEDIA, "model", "reasoning", "isSmallSys", "tool_invocations")
_UNUSED = ("", "unused")
_NAMES = re.compile(r"\{\{(user|char)\}\}|<(USER|BOT|CHAR)>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Cast:
    """What macros stand for: the user's name, and that of the character where a message does not name its
    own.
    """

    user: str
    character: str

    def named(self, words: str, author: str) -> str:
        """The text with names instead of `{{user}}` and `{{char}}`, which SillyTavern fills in when it shows
        a message.
        """

        def name(match: re.Match[str]) -> str:
            found = self.user if (match[1] or match[2]).lower() == "user" else author or self.character
            return found or match[0]

        return _NAMES.sub(name, words)


class SillyTavern:
    source, label, beside = "silly-tavern", "SillyTavern", ""

    def begins(self, value: Any) -> bool:
        return (
            isinstance(value, dict)
            and "mes" not in value
            and "user_name" in value
            and "character_name" in value
        )

    def continues(self, value: Any) -> bool:
        return isinstance(value, dict) and "mes" in value

    def read_lines(self, values: Sequence[Any], note: Note, about: dict[str, Any]) -> ConversationRecord:
        head = mapping(values[0])
        messages: list[MessageRecord] = []
        above: str | None = None
        cast = _cast_of(head, values[1:])
        for number, line in enumerate(values[1:], start=1):
            variants, shown = _variants(line, above, cast)
            if not variants:
                note(_("message {number}", number=number), _("it has no text"))
                continue
            messages += variants
            above = shown
        shaped = shape(messages, note, above)
        if not shaped.messages:
            raise Unreadable(_("it has no messages"))
        names = [text(head.get("character_name")), text(head.get("user_name"))]
        identity = mapping(head.get("chat_metadata")).get("integrity")
        made = head.get("create_date")
        key = text(identity) or content_key([names, made if made else shaped.messages[0].key])
        title = names[0] if names[0] not in ("", "unused") else text(mapping(values[1]).get("name"))
        first = next(
            (message.created_at for message in shaped.messages if message.created_at is not None), None
        )
        about = mapping(head.get("chat_metadata"))
        kept = rest(head, "user_name", "character_name", "create_date", "chat_metadata") | rest(
            about, "integrity", "tainted"
        )
        return ConversationRecord(
            self.source,
            key,
            title,
            seconds(made) or first,
            None,
            with_chat(shaped.messages, kept),
            shaped.shown_root,
            shaped.system_prompt,
            cast=_cast(shaped.messages),
            left_out=left_out_notes({"notes": about.get("note_prompt")}),
        )


def _cast_of(head: dict[str, Any], lines: Sequence[Any]) -> _Cast:
    """The names from the first line; newer files have "unused" there, so the messages are searched too."""

    def name(field: str, is_user: bool) -> str:
        own = text(head.get(field))
        seen = (line for line in lines if line.get("is_system") is not True)
        names = (text(line.get("name")) for line in seen if (line.get("is_user") is True) is is_user)
        return own if own not in _UNUSED else next((found for found in names if found), "")

    return _Cast(name("user_name", True), name("character_name", False))


def _cast(messages: Sequence[MessageRecord]) -> dict[str, Any]:
    """The characters of a chat with several, and the names the user wrote under."""
    characters, own = (
        list(dict.fromkeys(message.author for message in messages if message.role == role and message.author))
        for role in ("assistant", "user")
    )
    return (
        {"participants": [{"name": name} for name in characters], "own": own} if len(characters) > 1 else {}
    )


def _variants(line: dict[str, Any], above: str | None, cast: _Cast) -> tuple[list[MessageRecord], str | None]:
    """The message's swipes, or its only text, and the key of the shown one."""
    swipes = [swipe for swipe in items(line.get("swipes")) if isinstance(swipe, str)]
    chosen, infos = line.get("swipe_id"), items(line.get("swipe_info"))
    if not isinstance(chosen, int) or isinstance(chosen, bool) or not 0 <= chosen < len(swipes):
        chosen = None
    if chosen is None or not isinstance(line.get("mes"), str):
        if not isinstance(line.get("mes"), str) and not swipes:
            return [], None
        shown_text = line["mes"] if isinstance(line.get("mes"), str) else swipes[-1]
        if shown_text not in swipes:
            swipes.append(shown_text)
        chosen = swipes.index(shown_text)
    else:
        swipes[chosen] = line["mes"]  # an edit changes `mes` first
    found: list[MessageRecord] = []
    shown: str | None = None
    for place, swipe in enumerate(swipes):
        info = line if place == chosen else mapping(infos[place]) if place < len(infos) else {}
        message = _message(line, info, text(swipe), above, cast, place == chosen)
        found += [message] if message.key not in {other.key for other in found} else []
        shown = message.key if place == chosen else shown
    return found, shown


def _message(
    line: dict[str, Any], info: dict[str, Any], swipe: str, above: str | None, cast: _Cast, is_shown: bool
) -> MessageRecord:
    """`is_system` marks messages that are shown but not sent to the model: the program's own, and hidden
    ones.
    """
    extra = mapping(info.get("extra"))
    narrator = mapping(line.get("extra")).get("type") == "narrator"
    role = "user" if line.get("is_user") is True else "system" if narrator else "assistant"
    hidden = line.get("is_system") is True and not narrator
    name = " ".join(text(line.get("name")).split())
    kept = rest(info if info is not line else {}, "extra", "send_date") | rest(extra, *_EXTRA)
    kept |= {kind: extra[kind] for kind in _MEDIA if extra.get(kind)}
    kept |= rest(line, *_LINE) if is_shown else {}
    if role == "assistant" and name not in ("", cast.character):  # one of several characters
        kept["name"] = name
    if hidden:
        kept |= {"is_system": True, "is_user": line.get("is_user") is True, "name": name}
    shown = cast.named(swipe, name if role == "assistant" else "")
    uses = [_use(mapping(use)) for use in items(extra.get("tool_invocations"))]
    if uses:
        kept["tool_invocations"] = extra["tool_invocations"]
    thinking = thought(cast.named(text(extra.get("reasoning")), name if role == "assistant" else ""))
    words = join([thinking, shown, *uses]) if thinking or uses else shown
    files = [file for kind in _MEDIA for file in _files(kind, extra.get(kind))]
    created = seconds(info.get("send_date")) or seconds(line.get("send_date"))
    author = (
        "" if narrator else _("{name} (hidden)", name=name) if hidden and name else "" if hidden else name
    )
    return MessageRecord(
        chain_key(above, role, swipe), above, HIDDEN if hidden else role, with_files(files, words), created,
        stats={"model": text(extra.get("model"))} if extra.get("model") else {}, raw=kept or None,
        author=author,
    )  # fmt: skip


def _use(use: dict[str, Any]) -> str:
    return join(
        [
            tool_call(text(use.get("name")), use.get("parameters")),
            tool_result(text(use.get("name")), text(use.get("result"))),
        ]
    )


def _files(kind: str, value: Any) -> list[str]:
    """Pictures and placeholders for attached files: a path, an object, or a list of these."""
    found: list[str] = []
    for file in value if isinstance(value, list) else [value] if value else []:
        about = mapping(file)
        path = text(file) or text(about.get("url"))
        name = first_text(about.get("name"), about.get("title")) or (
            "" if path.startswith("data:") else path.rpartition("/")[2]
        )
        what = first_text(about.get("type")) or ("file" if kind == "files" else kind)
        own = path.replace("\\", "/").lstrip("/")
        if what in ("image", "media") and own.startswith("user/images/"):
            found.append(picture_beside(own, name))
        elif what in ("image", "media") and path.startswith("data:image/"):
            found.append(picture(path, name))
        else:
            found.append(document(name, text(about.get("text")), what))
    return found
