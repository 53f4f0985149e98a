"""Pictures in what other programs wrote: from addresses that hold them, and from files beside the chats.

Readers write a picture as Markdown, `![name](data:image/png;base64,...)`, or with `parts.ASSET` and an id
as its address; here each becomes a picture of the store, or a short mark if it cannot be read.
"""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from desktop.store.attachments.files import Unreadable
from desktop.store.attachments.picture_marks import MARK, mark_of
from desktop.store.attachments.pictures import StoredPicture, key_of
from desktop.store.transfer.importers.parts import ASSET, placeholder
from desktop.store.transfer.records import ConversationRecord, MessageRecord

__all__ = ["Encode", "PictureImporter"]

Encode = Callable[[bytes, str], StoredPicture]
"""Checks and shrinks the picture in the bytes of a file of this name. Raises `Unreadable`."""
_WRITTEN = re.compile(
    r"!\[(?P<name>[^\[\]\n]*)\]\("
    rf"(?:(?P<url>data:image/[\w.+-]+;base64,[A-Za-z0-9+/=_-]+)|{ASSET}(?P<asset>[^()\s]+))\)"
)
_QUICK = ("](data:image/", f"]({ASSET}", "](picture:")


class PictureImporter:
    """Takes the pictures of conversations: `encode` makes them ready (None: all become short marks), `asset`
    reads the file that a program calls so.
    """

    def __init__(self, encode: Encode | None, asset: Callable[[str], bytes | None]) -> None:
        self.encode, self._asset = encode, asset

    def taken(self, record: ConversationRecord) -> ConversationRecord:
        """The record with pictures of the store in its messages, and these pictures."""
        if not any(sign in message.text for message in record.messages for sign in _QUICK):
            return dataclasses.replace(record, pictures={}) if record.pictures else record
        found: dict[str, StoredPicture] = {}
        messages = tuple(self._message(message, record.pictures, found) for message in record.messages)
        return dataclasses.replace(record, messages=messages, pictures=found)

    def _message(
        self, message: MessageRecord, given: Mapping[str, StoredPicture], found: dict[str, StoredPicture]
    ) -> MessageRecord:
        if not any(sign in message.text for sign in _QUICK):
            return message
        addresses: dict[str, str] = {}

        def written(match: re.Match[str]) -> str:
            name, url = match["name"], match["url"]
            data = _decoded(url) if url else self._asset(match["asset"])
            made = self._made(data, name, found)
            if made and url:
                addresses[url] = made
            if not made and url and message.role != "user":
                return match[0]  # a part of its text
            return made or placeholder("image", name)

        def own(match: re.Match[str]) -> str:
            picture = given.get(match["key"])
            made = self._made(picture.data, match["name"], found) if picture is not None else ""
            return made or match[0]

        text = _WRITTEN.sub(written, MARK.sub(own, message.text))
        if message.role == "user":
            text = _pictures_first(text)
        return dataclasses.replace(message, text=text, raw=_without(message.raw, addresses))

    def _made(self, data: bytes | None, name: str, found: dict[str, StoredPicture]) -> str:
        """The mark of a picture, which is added to `found`; "" if it cannot be read."""
        if data is None or self.encode is None:
            return ""
        try:
            picture = self.encode(data, name)
        except Unreadable:
            return ""
        key = key_of(picture.data)
        found[key] = picture
        return mark_of(name, key, picture.width, picture.height).text


def _decoded(url: str) -> bytes | None:
    data = url.partition(",")[2].replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        return None


def _pictures_first(text: str) -> str:
    """The text with its pictures at the beginning, where those of the user's messages are."""
    found = [match[0] for match in MARK.finditer(text)]
    rest = MARK.sub("", text).strip("\n")
    return "\n\n".join([*found, *([rest] if rest.strip() else [])]) if found else text


def _without(value: Any, addresses: Mapping[str, str]) -> Any:
    """What a file says beside a message, without the pictures that are in the message now."""
    if not addresses:
        return value
    if isinstance(value, str):
        return addresses.get(value, value)
    if isinstance(value, list):
        return [_without(each, addresses) for each in value]
    if isinstance(value, dict):
        return {key: _without(each, addresses) for key, each in value.items()}
    return value
