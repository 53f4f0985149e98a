"""One message of a list: who wrote it, when, with which model, what it says and which files it has."""

from __future__ import annotations

from typing import Any

from desktop.store.transfer.importers.fields import first_text, items, mapping, rest, seconds, text
from desktop.store.transfer.importers.parts import (
    document,
    join,
    picture,
    placeholder,
    thought,
    tool_call,
    tool_result,
    with_files,
)
from desktop.store.transfer.importers.programs.message_lists.parts import (
    call_words,
    is_plain,
    is_result,
    is_thought,
    part_words,
)
from desktop.store.transfer.records import MessageRecord

__all__ = ["ROLES", "first_time", "is_message", "key_of", "model_of", "parent_of", "read_message"]

ROLES = {
    "human": "user", "user": "user", "prompter": "user", "gpt": "assistant", "chatgpt": "assistant",
    "bing": "assistant", "bard": "assistant", "assistant": "assistant", "model": "assistant",
    "ai": "assistant", "bot": "assistant", "system": "system", "developer": "system", "tool": "tool",
    "function": "tool", "function_response": "tool", "observation": "tool", "function_call": "call",
    "tool_call": "call",
}  # fmt: skip
_CONTENT = ("value", "content", "contentParts", "contentChunks", "parts", "fragments", "text", "message")
"""Names under which the content stands; the first that says something counts."""
_THINKING = (
    "reasoning_content", "reasoning", "reasoningContent", "thinking", "thinking_content", "thinking_trace",
)  # fmt: skip
_TIMES = ("timestamp", "created_at", "createdAt", "create_time", "inserted_at", "date", "created", "sent_at")
_KEYS = ("id", "messageId", "uuid", "_id")
_PARENTS = ("parentMessageId", "parentId", "parent_id", "parent_response_id", "parent")
_TOP = ("00000000-0000-0000-0000-000000000000", "00000000-0000-4000-8000-000000000000", "root", "")
_STATES = {"error": "failed", "failed": "failed", "paused": "stopped", "interrupted": "stopped"}
_READ = (
    *(name for name in _CONTENT if name != "message"), *_THINKING, *_TIMES, *_PARENTS, "from", "role",
    "sender", "children", "ancestors", "isCreatedByUser", "messageId", "_id", "uuid",
)  # fmt: skip


def first_time(about: dict[str, Any], *names: str) -> float | None:
    """The first time under one of these names, in seconds since 1970; MongoDB's JSON form as well."""
    for name in names:
        value = about.get(name)
        date = mapping(value).get("$date", value)
        if (found := seconds(mapping(date).get("$numberLong", date))) is not None:
            return found
    return None


def key_of(entry: Any) -> str:
    """The message's own id; "" without one. Numbers count as well."""
    about = mapping(entry)
    for name in _KEYS:
        value = mapping(about.get(name)).get("$oid", about.get(name))
        if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
            return text(value) or str(value)
    return ""


def parent_of(entry: Any) -> str | None:
    """The id of the message above; "" if it says that it is the first, None if it says nothing."""
    about = mapping(entry)
    if above := items(about.get("ancestors")):
        return text(above[-1]) or None
    for name in _PARENTS:
        if name in about:
            value = about[name]
            found = text(value) or (str(value) if type(value) is int else "")
            return "" if found in _TOP else found
    return "" if "ancestors" in about else None


def model_of(about: dict[str, Any]) -> str:
    """The model's name, given as a text or as an object."""
    model = about.get("model")
    named = mapping(about.get("generator")) or mapping(about.get("extra")) or mapping(model)
    return first_text(
        model, about.get("modelId"), about.get("model_name"), about.get("modelName"), named.get("name"),
        named.get("id"), named.get("fromModel"),
    )  # fmt: skip


def is_message(value: Any) -> bool:
    """Whether the value has an author and something that it says."""
    about = mapping(value)
    if isinstance(about.get("from"), str):
        return "value" in about or "text" in about or "content" in about
    said = "tool_calls" in about or any(name in about for name in _CONTENT)
    return said and (
        isinstance(about.get("role"), str)
        or isinstance(about.get("isCreatedByUser"), bool)
        or (isinstance(about.get("sender"), str) and "message" in about)
    )


def read_message(entry: Any) -> MessageRecord | None:
    """The message, without its place among others; None if nobody known wrote it, or it says nothing."""
    if not is_message(entry):
        return None
    role = _role(entry)
    content = next((entry[name] for name in _CONTENT if _says(entry.get(name))), None)
    if content is None:
        content = next((entry[name] for name in _CONTENT if entry.get(name) is not None), None)
    calls = [*items(entry.get("tool_calls")), *items(entry.get("tools"))]
    if role is None or (not isinstance(content, (str, list)) and not calls):
        return None
    parts = items(content)
    if role == "user" and parts and all(map(is_result, parts)):
        role = "result"
    words = text(content) if isinstance(content, str) else join([part_words(part) for part in parts])
    if role == "call":
        words = tool_call("", words)
    elif role == "tool":
        words = tool_result(_tool_name(entry), words)
    thinking = thought(_thinking(entry)) if "<think>" not in words else ""
    if thinking or calls:
        words = join([thinking, words, *map(call_words, calls)])
    words = with_files(_files(entry), words)
    keep = rest(entry, *_READ, *(["message"] if isinstance(entry.get("message"), str) else []))
    pieces = [*calls, *(part for part in parts if is_thought(part) and not any(map(is_plain, parts)))]
    if not all(map(is_plain, parts)):
        keep["content"] = content
    state, stats = _outcome(entry)
    if (model := model_of(entry)) and role == "assistant":
        stats["model"] = model
    return MessageRecord(
        "", None, {"call": "assistant", "result": "tool"}.get(role, role), words, first_time(entry, *_TIMES),
        state, stats, raw=keep or None, part=role in ("call", "tool", "result") or bool(pieces),
    )  # fmt: skip


def _says(value: Any) -> bool:
    return bool(value) if isinstance(value, list) else isinstance(value, str) and bool(value.strip())


def _role(entry: dict[str, Any]) -> str | None:
    if isinstance(entry.get("isCreatedByUser"), bool):
        return "user" if entry["isCreatedByUser"] else "assistant"
    return ROLES.get(first_text(entry.get("from"), entry.get("role"), entry.get("sender")).strip().lower())


def _tool_name(entry: dict[str, Any]) -> str:
    return first_text(entry.get("name"), mapping(entry.get("plugin")).get("apiName"))


def _thinking(entry: dict[str, Any]) -> str:
    for name in _THINKING:
        if found := first_text(entry.get(name), mapping(entry.get(name)).get("content")):
            return found
    return ""


def _outcome(entry: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The message's state, and its error as statistics have it."""
    failure = entry.get("error")
    if failure or entry.get("isError") is True:
        said = first_text(failure, mapping(failure).get("message"))
        return "failed", {"error": said} if said else {}
    stopped = entry.get("unfinished") is True or entry.get("interrupted") is True
    return "stopped" if stopped else _STATES.get(text(entry.get("status")), "complete"), {}


def _files(entry: dict[str, Any]) -> list[str]:
    """The files beside the message: pictures that it holds, texts, else names."""
    found: list[str] = []
    for name in ("files", "attachments", "images", "pictures"):
        for file in items(entry.get(name)):
            about = mapping(file)
            given = first_text(
                *(about.get(each) for each in ("name", "filename", "file_name", "fileName", "title")), file
            )
            addresses = (about.get(each) for each in ("contentString", "url", "data", "image"))
            url = first_text(file, *addresses)
            if url.startswith("data:image/"):
                found.append(picture(url, "" if given == url else given))
            elif words := first_text(about.get("extracted_content"), about.get("content"), about.get("text")):
                found.append(document(given, words))
            else:
                kind = "image" if name in ("images", "pictures") else "file"
                found.append(placeholder(kind, "" if given.startswith("data:") else given))
    return found
