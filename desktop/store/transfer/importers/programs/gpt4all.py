"""GPT4All's `.chat` files: one conversation in the binary form of Qt's `QDataStream`, read without Qt.

Layout: github.com/nomic-ai/gpt4all, gpt4all-chat/src/chat.cpp, chatllm.cpp, chatmodel.cpp and tool.cpp
(versions 1 to 12); primitive types: https://doc.qt.io/qt-6/datastreamformat.html (big-endian; texts are
UTF-16 after their length in bytes). Attached files are texts and spreadsheets, never pictures.
"""

from __future__ import annotations

import struct
from dataclasses import field
from typing import Any

from desktop.store.transfer.importers.fields import clean, seconds
from desktop.store.transfer.importers.left_out import left_out_notes, with_chat
from desktop.store.transfer.importers.parts import document, join, thought, tool_call, tool_result, with_files
from desktop.store.transfer.importers.protocol import Note, Unreadable
from desktop.store.transfer.importers.trees import chained, shape
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.lazy_dataclass import dataclass
from engine.words import _

__all__ = ["LABEL", "MAGIC", "read_chat"]

MAGIC = b"\xf5\xd5\x53\xcc"
SOURCE = "gpt4all"
LABEL = "GPT4All"
NEWEST = 12
_NULL = 0xFFFFFFFF
_DEEPEST = 50
_ROLES = {"System: ": "system", "Prompt: ": "user", "Response: ": "assistant", "ToolResponse: ": "tool"}
_NAMES = (*_ROLES, "Text: ", "ToolCall: ", "Think: ")


@dataclass
class _Item:
    """One item of the chat, with the fields that are read."""

    name: str
    value: str = ""
    stopped: bool = False
    failed: bool = False
    sources: list[dict[str, Any]] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)
    inner: list[_Item] = field(default_factory=list)
    tool: str = ""
    other: str = ""
    rating: str = ""


class _Stream:
    """A cursor over the bytes. Raises `Unreadable` at their end or for an impossible length."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self._data):
            raise Unreadable(
                _(
                    "it ends in the middle: byte {at:,} should be followed by {count:,} more, of "
                    "which some are missing",
                    at=self.at,
                    count=count,
                )
            )
        self.at += count
        return self._data[self.at - count : self.at]

    def number(self, code: str) -> Any:
        return struct.unpack(">" + code, self.take(struct.calcsize(code)))[0]

    def flag(self) -> bool:
        return bool(self.number("b"))

    def bytes(self) -> bytes:
        length = self.number("I")
        return b"" if length == _NULL else self.take(length)

    def string(self) -> str:
        return clean(self.bytes().decode("utf-16-be", "replace"))

    def count(self, code: str = "q", least: int = 1) -> int:
        """The number of following entries, each of at least `least` bytes."""
        found = int(self.number(code))
        if not 0 <= found * least <= len(self._data) - self.at:
            raise Unreadable(
                _(
                    "byte {at:,} announces {found:,} entries, more than the file can hold",
                    at=self.at,
                    found=found,
                )
            )
        return found


def read_chat(data: bytes, note: Note) -> ConversationRecord:
    """The conversation in a `.chat` file. If the file is cut off or damaged, what precedes that point is
    kept.
    """
    stream = _Stream(data)
    if stream.take(4) != MAGIC:
        raise Unreadable(_("it does not start like a GPT4All chat"))
    version = stream.number("i")
    if not 1 <= version <= NEWEST:
        raise Unreadable(
            _(
                "it uses version {version} of GPT4All's format; versions 1 to {newest} are supported",
                version=version,
                newest=NEWEST,
            )
        )
    made = seconds(stream.number("q"))
    key, name, _user, model = (stream.string() for _unused in range(4))
    collections = [stream.string() for _unused in range(stream.count("I", 4))] if version >= 3 else []
    if version < 11:
        _skip_engine_state(stream, version)
    found = _items(stream, version, note)
    messages = [message for message in (_message(item, model) for item in found) if message is not None]
    row = chained(messages)
    shaped = shape(row, note, row[-1].key if row else None)
    if not shaped.messages:
        raise Unreadable(_("it has no messages"))
    kept = {"knowledge": collections} if collections else {}
    rated = any(item.rating for item in found)
    return ConversationRecord(
        SOURCE, key or shaped.messages[0].key, name, made, None, with_chat(shaped.messages, kept),
        shaped.shown_root, shaped.system_prompt,
        left_out=left_out_notes({**kept, "ratings": rated}),
    )  # fmt: skip


def _skip_engine_state(stream: _Stream, version: int) -> None:
    """Skip what versions before 11 keep of the model's state, which is of no use any more."""
    has_state = stream.flag() if version >= 6 else True
    if version >= 2:
        stream.take(8)  # model type, state version
    stream.string()
    stream.string()
    stream.take(4)
    if not has_state:
        return
    stream.take((4 if version < 4 else 0) + 4 + (4 if version >= 7 else 0))
    if version < 9:
        stream.take(4 * stream.count("Q", 4))
    stream.take(4 * stream.count("Q", 4))
    stream.bytes()


def _items(stream: _Stream, version: int, note: Note) -> list[_Item]:
    found: list[_Item] = []
    count = stream.count("i", 9)
    for number in range(1, count + 1):
        try:
            found.append(_item(stream, version))
        except Unreadable as error:
            note(
                _("message {number} of {count:,}", number=number, count=count),
                _("{error}; this message and what follows it are lost", error=error),
            )
            break
    return found


def _item(stream: _Stream, version: int) -> _Item:
    if version < 12:
        stream.take(4)  # a number
    item = _Item(_name(stream))
    item.value = stream.string()
    if version < 10:
        stream.string()  # the prompt again
    item.other = stream.string()
    _current, item.stopped, up, down = (stream.flag() for _unused in range(4))
    item.rating = "up" if up else "down" if down else ""
    if version >= 11 and item.name == "Response: ":
        item.failed = stream.flag()
    if version >= 8:
        names = ("collection", "path", "file", "title", "author", "date", "text")
        for _unused in range(stream.count(least=40)):
            item.sources.append(
                {name: stream.string() for name in names}
                | {name: stream.number("i") for name in ("page", "from", "to")}
            )
    elif version >= 3:
        references = stream.string()
        texts = [stream.string() for _unused in range(stream.count("I", 4))]
        item.sources += [{"references": references, "texts": texts}] if references or texts else []
    if version >= 10:
        for _unused in range(stream.count(least=8)):
            url = stream.bytes().decode("utf-8", "replace")
            item.files.append(
                (clean(url.rsplit("/", 1)[-1]), clean(stream.bytes().decode("utf-8", "replace")))
            )
    if version >= 12:
        item.inner = [_inner(stream, 0) for _unused in range(stream.count(least=16))]
    return item


def _name(stream: _Stream) -> str:
    at = stream.at
    name = stream.string()
    if name not in _NAMES:
        raise Unreadable(_("the message at byte {at:,} has an unknown type", at=at))
    return name


def _inner(stream: _Stream, depth: int) -> _Item:
    if depth > _DEEPEST:
        raise Unreadable(
            _(
                "its parts are nested more than {deepest} levels deep at byte {at:,}",
                deepest=_DEEPEST,
                at=stream.at,
            )
        )
    item = _Item(_name(stream))
    item.value = stream.string()
    if item.name == "Think: ":
        stream.take(4)  # its duration
    elif item.name == "ToolCall: ":
        item.tool = stream.string()
        given = []
        for _unused in range(stream.count(least=13)):
            name = stream.string()
            stream.take(4)
            given.append(f"{name}: {_variant(stream, 0)}")
        result = stream.string()
        failed, why = stream.number("i"), stream.string()
        item.value = join(
            [
                tool_call(item.tool, join(given) or item.value),
                tool_result(item.tool, why if failed else result),
            ]
        )
    item.inner = [_inner(stream, depth + 1) for _unused in range(stream.count(least=16))]
    return item


def _variant(stream: _Stream, depth: int) -> Any:
    """A `QVariant` of the types that JSON has."""
    at = stream.at
    kind = stream.number("I")
    stream.take(1)  # whether it is null
    plain = {1: "b", 2: "i", 3: "I", 4: "q", 5: "Q", 6: "d"}
    if kind in plain:
        value = stream.number(plain[kind])
        return bool(value) if kind == 1 else value
    if kind == 10:
        return stream.string()
    if kind in (8, 9) and depth < _DEEPEST:
        count = stream.count("I", 5)
        if kind == 9:
            return [_variant(stream, depth + 1) for _unused in range(count)]
        return {stream.string(): _variant(stream, depth + 1) for _unused in range(count)}
    if kind == 0:
        return ""
    raise Unreadable(_("the value at byte {at:,} has an unknown type ({kind})", at=at, kind=kind))


def _message(item: _Item, model: str) -> MessageRecord | None:
    role = _ROLES.get(item.name, "assistant")
    words = _words(item)
    if role == "tool":
        words = tool_result("", words)
    words = with_files([document(name, text) for name, text in item.files], words)
    if not words.strip():
        return None
    stats: dict[str, Any] = {"model": model} if model and role == "assistant" else {}
    state = "failed" if item.failed else "stopped" if item.stopped else "complete"
    # `suggested` is an answer that was not used
    kept = {"sources": item.sources, "rating": item.rating, "suggested": item.other}
    raw = {name: value for name, value in kept.items() if value}
    return MessageRecord("", None, role, words, None, state, stats, raw=raw or None, part=role == "tool")


def _words(item: _Item) -> str:
    inner = [_words(part) for part in item.inner]
    own = thought(item.value) if item.name == "Think: " else item.value
    return join([own, *inner]) if inner else own
