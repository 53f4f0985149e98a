"""Google AI Studio's prompts, as it saves them in Google Drive: chunks of messages.

What the user sent at once is a chunk for each file and one for the text. Fields, as readers of these files on
GitHub have them: `text`, `isThought`, `inlineFile`, `inlineImage`, `driveDocument` and its like,
`youtubeVideo`, `executableCode`, `codeExecutionResult`, `errorMessage` and `createTime`.
"""

from __future__ import annotations

import base64
from itertools import groupby
from typing import Any

from desktop.store.transfer.importers.fields import first_text, items, mapping, rest, text
from desktop.store.transfer.importers.parts import document, join
from desktop.store.transfer.importers.programs.message_lists.chat import Chat, chat_of

__all__ = ["ai_studio_chat"]

_DRIVE = {"driveDocument": "file", "driveImage": "image", "driveAudio": "audio", "driveVideo": "video"}
_READ = (
    "text", "parts", "role", "isThought", "inlineFile", "inlineImage", *_DRIVE, "youtubeVideo",
    "executableCode", "codeExecutionResult", "errorMessage", "createTime",
)  # fmt: skip


def ai_studio_chat(source: str, value: dict[str, Any]) -> Chat:
    """The prompt's chat; its instructions are a text or have parts."""
    chunks = [mapping(chunk) for chunk in items(mapping(value["chunkedPrompt"]).get("chunks"))]
    found: list[dict[str, Any]] = []
    for role, group in groupby(chunks, key=lambda chunk: chunk.get("role")):
        entries = [entry for chunk in group for entry in _entries(chunk)]
        found += [_together(entries)] if role == "user" and entries else entries
    given = mapping(value.get("systemInstruction"))
    words = [text(mapping(part).get("text")) for part in items(given.get("parts"))]
    model = mapping(value.get("runSettings")).get("model")
    return chat_of(source, {"system": text(given.get("text")) or join(words), "model": model}, found)


def _together(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """One message of the user's, with everything that was sent at once."""
    return entries[-1] | {"content": [part for entry in entries for part in entry["content"]]}


def _entries(chunk: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages that a chunk is: one, or two where code and its result are in it."""
    entry = {"role": chunk.get("role"), "timestamp": chunk.get("createTime")} | rest(chunk, *_READ)
    if failure := text(chunk.get("errorMessage")):
        entry["error"] = failure
    code, result = mapping(chunk.get("executableCode")), mapping(chunk.get("codeExecutionResult"))
    if code:
        given = {"language": text(code.get("language")).lower(), "code": code.get("code")}
        entry["tool_calls"] = [{"name": "code", "arguments": given}]
    found = [entry | {"content": _parts(chunk)}]
    if result:
        came = {"role": "tool", "name": "code", "content": first_text(result.get("output")) or " "}
        found = [*(found if code or found[0]["content"] else []), came | {"timestamp": entry["timestamp"]}]
    return found


def _parts(chunk: dict[str, Any]) -> list[dict[str, Any]]:
    said = text(chunk.get("text")) or "".join(
        text(mapping(part).get("text")) for part in items(chunk.get("parts"))
    )
    kind = "thought" if chunk.get("isThought") is True else "text"
    found = [{"type": kind, "text": said}] if said else []
    for name in ("inlineFile", "inlineImage"):
        if file := mapping(chunk.get(name)):
            found.insert(0, _inline(file))
    for name, made in _DRIVE.items():
        if isinstance(chunk.get(name), dict):
            found.insert(0, {"type": made, "name": text(chunk[name].get("name"))})
    if video := text(mapping(chunk.get("youtubeVideo")).get("id")):
        found.insert(0, {"type": "video", "name": f"https://youtu.be/{video}"})
    return found


def _inline(file: dict[str, Any]) -> dict[str, Any]:
    """A file within the prompt: a picture, a text, or its name."""
    kind, name = text(file.get("mimeType")), first_text(file.get("name"), file.get("displayName"))
    if kind.startswith("image/"):
        return {"type": "image", "name": name, "inlineData": file}
    words = ""
    if kind.startswith("text/"):
        try:
            words = base64.b64decode(text(file.get("data")), validate=True).decode("utf-8", "replace")
        except ValueError:
            words = ""
    return {"type": "text", "text": document(name or "file.txt" if words else name, words)}
