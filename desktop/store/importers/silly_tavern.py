"""SillyTavern's chats, one a `.jsonl` file: a line about the chat, then a message a line, whose swipes are its variants.

Format: github.com/SillyTavern/SillyTavern, src/endpoints/chats.js.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from desktop.store.exchange import ConversationRecord, MessageRecord
from desktop.store.importers.fields import content_key, items, mapping, seconds, text
from desktop.store.importers.parts import join, placeholder, thought
from desktop.store.importers.protocol import Note, Unreadable
from desktop.store.importers.trees import shape
from desktop.store.intake import chain_key

__all__ = ["SillyTavern"]

_MEDIA = ("image", "file", "files", "video", "media")


class SillyTavern:
    source, label = "silly-tavern", "SillyTavern"

    def begins(self, value: Any) -> bool:
        return isinstance(value, dict) and "mes" not in value and "user_name" in value and "character_name" in value

    def continues(self, value: Any) -> bool:
        return isinstance(value, dict) and "mes" in value

    def read_lines(self, values: Sequence[Any], note: Note) -> ConversationRecord:
        head = mapping(values[0])
        messages: list[MessageRecord] = []
        above: str | None = None
        for number, line in enumerate(values[1:], start=1):
            variants, shown = _variants(line, above, text(head.get("character_name")))
            if not variants:
                note(f"message {number}", "it has no text")
                continue
            messages += variants
            above = shown
        shaped = shape(messages, note, above)
        if not shaped.messages:
            raise Unreadable("it has no messages")
        names = [text(head.get("character_name")), text(head.get("user_name"))]
        identity = mapping(head.get("chat_metadata")).get("integrity")
        made = head.get("create_date")
        key = text(identity) or content_key([names, made if made else shaped.messages[0].key])
        title = names[0] if names[0] not in ("", "unused") else text(mapping(values[1]).get("name"))
        first = next((message.created_at for message in shaped.messages if message.created_at is not None), None)
        return ConversationRecord(
            self.source, key, title, seconds(made) or first, None, shaped.messages, shaped.shown_root, shaped.system_prompt,
            roles=_cast(shaped.messages),
        )


def _cast(messages: Sequence[MessageRecord]) -> dict[str, Any]:
    """The characters of a chat with several, and the names the user wrote under."""
    characters, own = (
        list(dict.fromkeys(message.speaker for message in messages if message.role == role and message.speaker))
        for role in ("assistant", "user")
    )
    return {"participants": [{"name": name} for name in characters], "own": own} if len(characters) > 1 else {}


def _variants(line: dict[str, Any], above: str | None, character: str) -> tuple[list[MessageRecord], str | None]:
    """The message's swipes, or its only text; and the key of the shown one."""
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
        swipes[chosen] = line["mes"]  # an edit changes it first
    found: list[MessageRecord] = []
    shown: str | None = None
    for place, swipe in enumerate(swipes):
        info = line if place == chosen else mapping(infos[place]) if place < len(infos) else {}
        message = _message(line, info, text(swipe), above, character)
        found += [message] if message.key not in {other.key for other in found} else []
        shown = message.key if place == chosen else shown
    return found, shown


def _message(line: dict[str, Any], info: dict[str, Any], swipe: str, above: str | None, character: str) -> MessageRecord:
    extra = mapping(info.get("extra"))
    narrator = mapping(line.get("extra")).get("type") == "narrator"
    role = "user" if line.get("is_user") is True else "system" if narrator else "assistant"
    media = [name for name in _MEDIA if extra.get(name)]
    kept = {name: extra[name] for name in media}
    if role == "assistant" and text(line.get("name")) not in ("", character):  # a chat with several characters
        kept["name"] = text(line.get("name"))
    thinking = thought(text(extra.get("reasoning")))
    words = join([thinking, *map(placeholder, media), swipe]) if thinking or media else swipe
    stats = {"model": text(extra.get("model"))} if extra.get("model") else {}
    created = seconds(info.get("send_date")) or seconds(line.get("send_date"))
    return MessageRecord(chain_key(above, role, swipe), above, role, words, created, stats=stats, raw=kept or None,
                         speaker="" if narrator else " ".join(text(line.get("name")).split()))  # fmt: skip
