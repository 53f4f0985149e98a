"""Backups in which a chat lies in several places: put together here, before they are read.

Sources: LobeChat, packages/types/src/importer.ts and exporter.ts; Cherry Studio, src/renderer/src/types/
newMessage.ts and databases/index.ts; Chatbox, src/shared/types/session.ts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from desktop.store.transfer.importers.fields import first_text, items, mapping, text
from desktop.store.transfer.importers.programs.message_lists.chat import Chat, chat_of
from desktop.store.transfer.importers.programs.message_lists.message import first_time, key_of
from engine.json_value import json_value

__all__ = ["LABELS", "joined_chats"]

LABELS = ("LobeChat", "Cherry Studio", "Chatbox")
_BLOCK = ("id", "messageId", "createdAt", "updatedAt", "status", "model")
_SESSION = (
    "messages", "threads", "type", "messageForksHash", "threadName", "settings", "picUrl", "copilotId",
)  # fmt: skip


def joined_chats(value: Any) -> list[Chat]:
    """The chats in a backup of one of these programs; empty for any other value."""
    return _lobe_chat(mapping(value)) or _cherry_studio(mapping(value)) or _chatbox(mapping(value))


def _by_id(values: Any) -> dict[str, dict[str, Any]]:
    return {key_of(value): mapping(value) for value in items(values) if key_of(value)}


def _lobe_chat(value: dict[str, Any]) -> list[Chat]:
    """Messages name the session (an assistant) and the topic (a chat with it) that they belong to."""
    state = mapping(value.get("state")) or mapping(value.get("data"))
    entries = [mapping(entry) for entry in items(state.get("messages"))]
    if not any("sessionId" in entry or "topicId" in entry for entry in entries[:20]):
        return []
    sessions, topics, agents = (_by_id(state.get(name)) for name in ("sessions", "topics", "agents"))
    agent_of = {
        text(mapping(link).get("sessionId")): agents.get(text(mapping(link).get("agentId")), {})
        for link in items(state.get("agentsToSessions"))
    }
    plugins = _by_id(state.get("messagePlugins"))
    groups: dict[tuple[str, str], list[Any]] = {}
    for entry in sorted(entries, key=lambda entry: first_time(entry, "createdAt") or 0.0):
        place = text(entry.get("sessionId")), text(entry.get("topicId"))
        plugin = plugins.get(key_of(entry))
        groups.setdefault(place, []).append({"plugin": plugin} | entry if plugin else entry)
    found = []
    for (session_id, topic_id), messages in groups.items():
        session, topic = sessions.get(session_id, {}), topics.get(topic_id, {})
        agent = agent_of.get(session_id) or mapping(session.get("config"))
        name = first_text(session.get("title"), mapping(session.get("meta")).get("title"), agent.get("title"))
        about = (topic or session) | {
            "id": topic_id or session_id or "inbox", "title": text(topic.get("title")) or name,
            "systemPrompt": text(agent.get("systemRole")), "folderName": name if topic else "",
        }  # fmt: skip
        found.append(chat_of("lobechat", about, messages, *about))
    return found


def _loaded(value: Any) -> dict[str, Any]:
    """The object in a text of JSON, as the browser's storage has it."""
    return mapping(json_value(value) if isinstance(value, str) else value)


def _cherry_studio(value: dict[str, Any]) -> list[Chat]:
    """Messages are lists of blocks, which lie in a table; the chats' names lie in the browser's storage."""
    tables = mapping(value.get("indexedDB"))
    if not items(tables.get("topics")):
        return []
    blocks = _by_id(tables.get("message_blocks"))
    stored = _loaded(
        _loaded(mapping(value.get("localStorage")).get("persist:cherry-studio")).get("assistants")
    )
    topics: dict[str, dict[str, Any]] = {}
    for assistant in [*items(stored.get("assistants")), stored.get("defaultAssistant")]:
        about = mapping(assistant)
        named = {"folderName": text(about.get("name")), "systemPrompt": text(about.get("prompt"))}
        for key, topic in _by_id(about.get("topics")).items():
            topics.setdefault(key, named | topic)
    found = []
    for topic in map(mapping, items(tables["topics"])):
        about = topics.get(key_of(topic), {}) | {"id": key_of(topic)}
        messages = [_with_blocks(mapping(entry), blocks) for entry in items(topic.get("messages"))]
        if messages:
            found.append(chat_of("cherry-studio", about, messages, *about))
    return found


def _with_blocks(entry: dict[str, Any], blocks: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The message with its blocks as parts. Answers of several models to a question are its versions."""
    parts = [blocks[key] for key in items(entry.get("blocks")) if isinstance(key, str) and key in blocks]
    given = {name: inner for name, inner in entry.items() if name not in ("blocks", "topicId", "assistantId")}
    if asked := text(given.pop("askId", None)):
        given["parentId"] = asked
    return given | {"content": [_block(part) for part in parts]} if parts else given


def _block(part: dict[str, Any]) -> dict[str, Any]:
    """A block as a part of a message, without what means nothing outside that program."""
    if part.get("type") == "main_text":
        return {"type": "text", "text": text(part.get("content"))}
    if part.get("type") == "error":
        return {"type": "text", "text": text(mapping(part.get("error")).get("message"))}
    return {name: inner for name, inner in part.items() if name not in _BLOCK}


def _chatbox(value: dict[str, Any]) -> list[Chat]:
    """Sessions under keys of their own or in a list, with their earlier threads and other continuations."""
    sessions = [inner for name, inner in value.items() if name.startswith("session:")]
    found = []
    for session in [mapping(one) for one in [*sessions, *items(value.get("chat-sessions"))]]:
        name = text(session.get("name"))
        if items(session.get("messages")):
            own = {"title": first_text(session.get("threadName"), name)}
            chat = chat_of("chatbox", own | session | own, items(session["messages"]), *_SESSION)
            found.append(replace(chat, alternatives=_forks(session)))
        for thread in map(mapping, items(session.get("threads"))):
            about = {"name": name} | {key: inner for key, inner in thread.items() if inner}
            found.append(chat_of("chatbox", about, items(thread.get("messages")), "messages"))
    return found


def _forks(session: dict[str, Any]) -> tuple[tuple[str, list[Any]], ...]:
    """What followed a message before it was answered again; the list in use is empty or the session's."""
    return tuple(
        (text(key), items(mapping(one).get("messages")))
        for key, fork in mapping(session.get("messageForksHash")).items()
        for place, one in enumerate(items(mapping(fork).get("lists")))
        if place != mapping(fork).get("position")
    )
