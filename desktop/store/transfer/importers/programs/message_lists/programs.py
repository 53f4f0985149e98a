"""The programs whose chats are lists of messages under names of their own, each told by what only it writes.

Sources: LibreChat, client/src/hooks/Conversations/useExportConversation.ts; Big-AGI, src/common/stores/chat;
NextChat, app/store/chat.ts; BetterChatGPT, src/types/export.ts; chat-ui (HuggingChat), src/lib/types;
TypingMind, Grok and DeepSeek: readers of their exports on GitHub.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from desktop.store.transfer.importers.fields import first_text, items, mapping, text
from desktop.store.transfer.importers.programs.message_lists.ai_studio import ai_studio_chat
from desktop.store.transfer.importers.programs.message_lists.chat import Chat, chat_of, chat_record
from desktop.store.transfer.importers.protocol import Note
from desktop.store.transfer.records import ConversationRecord
from engine.lazy_dataclass import dataclass

__all__ = ["JOINED", "PROGRAMS", "Program"]

_LIBRE_CHAT = ("messagesTree", "messages")


@dataclass
class Program:
    """A program that writes a chat as one JSON object: `holds` tells it by its content, `chat` reads it."""

    source: str
    label: str
    holds: Callable[[dict[str, Any]], bool]
    chat: Callable[[str, dict[str, Any]], Chat]

    def recognises(self, value: Any) -> bool:
        return isinstance(value, dict) and self.holds(value)

    def read(self, value: Any, note: Note) -> ConversationRecord:
        return chat_record(self.chat(self.source, value), note)


class _Joined:
    """A chat that was put together from several places of its file, by `joined.py`."""

    source, label = "joined", ""

    def recognises(self, value: Any) -> bool:
        return isinstance(value, Chat)

    def read(self, value: Any, note: Note) -> ConversationRecord:
        return chat_record(value, note)


def _first(value: Any, name: str) -> dict[str, Any]:
    return mapping(next(iter(items(value.get(name))), None))


def _plain(source: str, value: dict[str, Any]) -> Chat:
    return chat_of(source, value, items(value.get("messages")), "messages")


def _is_libre_chat(value: dict[str, Any]) -> bool:
    return "conversationId" in value and any("messageId" in _first(value, name) for name in _LIBRE_CHAT)


def _libre_chat(source: str, value: dict[str, Any]) -> Chat:
    """Its messages may lie within each other, as `children`."""
    found: list[Any] = []
    row = next(items(value[name]) for name in _LIBRE_CHAT if items(value.get(name)))
    while row:
        found += row
        row = [
            child | {"parentMessageId": entry.get("messageId")}
            for entry in map(mapping, row)
            for child in map(mapping, items(entry.get("children")))
        ]
    options = mapping(value.get("options"))
    prompt = {"system": first_text(options.get("system"), options.get("promptPrefix"))}
    known = ("options", "recursive", "branches", "exportAt", "endpoint")
    return chat_of(source, prompt | value, found, *_LIBRE_CHAT, *known)


def _is_next_chat(value: dict[str, Any]) -> bool:
    return "topic" in value and "messages" in value and ("mask" in value or "memoryPrompt" in value)


def _next_chat(source: str, value: dict[str, Any]) -> Chat:
    """The messages of its mask come before the others."""
    mask = mapping(value.get("mask"))
    model = {"model": mapping(mask.get("modelConfig")).get("model")}
    context = [entry for entry in items(mask.get("context")) if text(mapping(entry).get("content"))]
    known = ("messages", "mask", "stat", "clearContextIndex", "lastSummarizeIndex")
    return chat_of(source, value | model, [*context, *items(value["messages"])], *known)


def _is_better_chat_gpt(value: dict[str, Any]) -> bool:
    named = "titleSet" in value or ("config" in value and "id" in value)
    return named and "messages" in value and "title" in value


def _better_chat_gpt(source: str, value: dict[str, Any]) -> Chat:
    model = {"model": mapping(value.get("config")).get("model")}
    known = ("messages", "titleSet", "folder", "imageDetail")
    return chat_of(source, model | value, items(value["messages"]), *known)


def _is_big_agi(value: dict[str, Any]) -> bool:
    return "fragments" in _first(value, "messages") or ("systemPurposeId" in value and "messages" in value)


def _big_agi(source: str, value: dict[str, Any]) -> Chat:
    known = ("messages", "systemPurposeId", "tokenCount", "messagesToken")
    return chat_of(source, value, items(value["messages"]), *known)


def _is_grok(value: dict[str, Any]) -> bool:
    return isinstance(value.get("conversation"), dict) and isinstance(value.get("responses"), list)


def _grok(source: str, value: dict[str, Any]) -> Chat:
    found = [mapping(entry).get("response", entry) for entry in items(value["responses"])]
    return chat_of(source, mapping(value["conversation"]), found, "user_id", "anon_user_id", "responses")


def _is_deep_seek(value: dict[str, Any]) -> bool:
    nodes = mapping(value.get("mapping"))
    messages = (mapping(mapping(node).get("message")) for node in nodes.values())
    first = next((message for message in messages if message), {})
    own = any(name in first for name in ("fragments", "inserted_at", "model"))
    return own and "author" not in first


def _depth(key: str, parents: dict[str, str], known: dict[str, int]) -> int:
    """How many nodes are above this one; `known` has that of others."""
    above: dict[str, None] = {}
    while key in parents and key not in known and key not in above:
        above[key] = None
        key = parents[key]
    return known.get(key, -1) + len(above)


def _deep_seek(source: str, value: dict[str, Any]) -> Chat:
    """A tree of nodes; who wrote a message is told by its fragments, in older files by its depth alone."""
    found = []
    parents = {key: text(mapping(node).get("parent")) for key, node in value["mapping"].items()}
    depths: dict[str, int] = {}
    for key, node in value["mapping"].items():
        parent = parents[key]
        depths[key] = _depth(key, parents, depths)
        message = mapping(mapping(node).get("message"))
        if not message:
            continue
        kinds = {text(mapping(piece).get("type")) for piece in items(message.get("fragments"))}
        asked = "REQUEST" in kinds if kinds else depths[key] % 2 == 1
        role = first_text(message.get("role")) or ("user" if asked else "assistant")
        found.append(message | {"role": role, "id": key, "parentId": parent})
    return chat_of(source, value, found, "mapping")


PROGRAMS: tuple[Program, ...] = (
    Program("deepseek", "DeepSeek", _is_deep_seek, _deep_seek),
    Program("librechat", "LibreChat", _is_libre_chat, _libre_chat),
    Program("nextchat", "NextChat", _is_next_chat, _next_chat),
    Program("typingmind", "TypingMind", lambda value: "chatID" in value and "messages" in value, _plain),
    Program("big-agi", "Big-AGI", _is_big_agi, _big_agi),
    Program("grok", "Grok", _is_grok, _grok),
    Program(
        "ai-studio", "Google AI Studio",
        lambda value: "chunks" in mapping(value.get("chunkedPrompt")), ai_studio_chat,
    ),
    Program(
        "huggingchat", "HuggingChat",
        lambda value: "_id" in value and "from" in _first(value, "messages"), _plain,
    ),
    Program("better-chatgpt", "BetterChatGPT", _is_better_chat_gpt, _better_chat_gpt),
)  # fmt: skip
JOINED = _Joined()
