"""LM Studio's chat files, `<time>.conversation.json`: a sequence of messages with versions, one of them
selected.

What follows a message goes below its selected version. The format is undocumented and may change, so it is
read defensively; descriptions: github.com/YorkieDev/lm-studio-conversation-converter and
github.com/ispaure/migration-chatgpt-to-lmstudio. Attached files lie in `user-files`, beside `conversations`,
under their identifiers.
"""

from __future__ import annotations

import re
from typing import Any

from desktop.store.conversations.bulk_insert import chain_key
from desktop.store.transfer.importers.fields import compact, first_text, items, mapping, rest, seconds, text
from desktop.store.transfer.importers.left_out import left_out_notes, with_chat
from desktop.store.transfer.importers.parts import (
    join,
    picture_beside,
    placeholder,
    thought,
    tool_call,
    tool_result,
)
from desktop.store.transfer.importers.protocol import Note, Unreadable
from desktop.store.transfer.importers.sampling import chat_settings, switched
from desktop.store.transfer.importers.trees import shape
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.words import _

__all__ = ["LmStudio"]

_ROLES = ("system", "user", "assistant", "tool")
_STAMP = re.compile(r"(\d{12,14})-")
_TEXT_STEPS = ("contentBlock", "debugInfoBlock")
_CHAT = (
    "name", "pinned", "createdAt", "systemPrompt", "messages", "perChatPredictionConfig",
    "usePerChatPredictionConfig", "tokenCount", "clientInput", "userLastMessagedAt",
    "assistantLastMessagedAt",
)  # fmt: skip
_PREDICTION = "llm.prediction."
_ENDS = {"userStopped": "stopped", "failed": "failed", "modelUnloaded": "failed"}


class LmStudio:
    source, label = "lm-studio", "LM Studio"

    def recognises(self, value: Any) -> bool:
        if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
            return False
        first = next(iter(value["messages"]), None)
        return isinstance(mapping(first).get("versions"), list) or (
            first is None and "createdAt" in value and "systemPrompt" in value
        )

    def read(self, value: Any, note: Note) -> ConversationRecord:
        messages: list[MessageRecord] = []
        above: str | None = None
        for number, entry in enumerate(value["messages"], start=1):
            versions = items(mapping(entry).get("versions"))
            found = [_version(version, above) for version in versions]
            good = [message for message in found if message is not None]
            if len(good) < max(len(versions), 1):
                note(
                    _("message {number}", number=number),
                    _("it has no versions")
                    if not versions
                    else _("one of its versions has no role or no content"),
                )
            if not good:
                continue
            selected = mapping(entry).get("currentlySelected")
            shown = found[selected] if isinstance(selected, int) and 0 <= selected < len(found) else None
            messages += good
            above = (shown or good[-1]).key
        shaped = shape(messages, note, above)
        if not shaped.messages:
            raise Unreadable(_("it has no messages"))
        fields = {
            text(mapping(field).get("key")): mapping(field).get("value")
            for field in items(mapping(value.get("perChatPredictionConfig")).get("fields"))
        }
        prompt = first_text(value.get("systemPrompt"), fields.pop(f"{_PREDICTION}systemPrompt", None))
        used = value.get("usePerChatPredictionConfig") is not False
        given = {
            key.rpartition(".")[2]: switched(inner)
            for key, inner in fields.items()
            if used and key.startswith(_PREDICTION)
        }
        settings, unused = chat_settings(given)
        parameters = {
            key: inner
            for key, inner in fields.items()
            if not used or key.rpartition(".")[2] in unused or _PREDICTION not in key
        }
        draft = text(value.get("clientInput"))
        kept = rest(value, *_CHAT) | rest(
            {"parameters": rest(parameters), "draft": draft if draft.strip() else ""}
        )
        made = value.get("createdAt")
        return ConversationRecord(
            self.source, str(made) if isinstance(made, (int, str)) and made else shaped.messages[0].key,
            text(value.get("name")), seconds(made), seconds(value.get("assistantLastMessagedAt")),
            with_chat(shaped.messages, kept), shaped.shown_root, join([prompt, shaped.system_prompt]),
            settings=settings, pinned=value.get("pinned") is True, left_out=left_out_notes(kept),
        )  # fmt: skip


def _version(version: Any, above: str | None) -> MessageRecord | None:
    if not isinstance(version, dict) or version.get("role") not in _ROLES:
        return None
    role = str(version["role"])
    stats: dict[str, Any] = {}
    raw: list[Any] = []
    created: float | None = None
    state = "complete"
    if isinstance(version.get("steps"), list):
        words: list[str] = []
        model = text(mapping(version.get("senderInfo")).get("senderName"))
        for step in version["steps"]:
            words.append(_step(step, raw))
            model = text(mapping(mapping(step).get("genInfo")).get("indexedModelIdentifier")) or model
            stamp = _STAMP.match(text(mapping(step).get("stepIdentifier")))
            state = _ENDS.get(
                text(mapping(mapping(mapping(step).get("genInfo")).get("stats")).get("stopReason")), state
            )
            created = created if created is not None or stamp is None else seconds(int(stamp[1]))
        line = join(words)
        stats = {"model": model} if model else {}
    elif isinstance(version.get("content"), (list, str)):
        line = _content(version["content"], raw)
    else:
        return None
    key = chain_key(above, role, line)
    raw += (
        [extra]
        if (extra := rest(version, "type", "role", "content", "steps", "senderInfo", "preprocessed"))
        else []
    )
    return MessageRecord(key, above, role, line, created, state, stats, raw=raw or None)


def _step(step: Any, raw: list[Any]) -> str:
    """One step of a reply; what text cannot express is added to `raw`."""
    if not isinstance(step, dict):
        return ""
    kind = text(step.get("type"))
    if kind in _TEXT_STEPS or isinstance(step.get("content"), (list, str)):
        if kind == "debugInfoBlock":
            raw.append(step)
            return ""
        if extra := rest(step.get("genInfo"), "indexedModelIdentifier", "identifier"):
            raw.append({"genInfo": extra})
        line = _content(step.get("content"), raw)
        return thought(line) if text(mapping(step.get("style")).get("type")).lower() == "thinking" else line
    raw.append(step)
    if kind == "toolStatus":
        return placeholder("tool", text(mapping(mapping(step.get("statusState")).get("status")).get("type")))
    return placeholder(kind or "unknown")


def _content(content: Any, raw: list[Any]) -> str:
    if isinstance(content, str):
        return text(content)
    words: list[str] = []
    run = ""
    for part in items(content):
        about = mapping(part)
        kind = text(about.get("type"))
        if kind == "text":  # pieces of one text, split where a draft model's tokens begin
            run += text(about.get("text"))
            continue
        words, run = [*words, run], ""
        if kind == "toolCallRequest":
            words.append(tool_call(text(about.get("name")), about.get("parameters")))
        elif kind == "toolCallResult":
            words.append(tool_result("", _result(about.get("content"))))
        else:
            own = text(about.get("fileIdentifier"))
            name = first_text(about.get("fileName"), about.get("name"), own)
            known = kind == "file" and about.get("fileType") == "image" and own
            words.append(
                picture_beside(f"user-files/{own}", name)
                if known
                else placeholder(first_text(about.get("fileType"), kind) or "unknown", name)
            )
        raw.append(part)
    return join([*words, run]) if words else run


def _result(content: Any) -> str:
    return text(content) if isinstance(content, str) else compact(content) if content is not None else ""
