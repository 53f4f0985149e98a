"""Sessions of agents that write code in a terminal: a line for each event, of which the messages are read.

Formats: Claude Code, `~/.claude/projects/*/*.jsonl` (undocumented); Codex CLI, rollout-*.jsonl in
`~/.codex/sessions`: RolloutItem and ResponseItem in codex-rs/protocol/src of openai/codex.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from desktop.store.transfer.importers.fields import first_text, items, mapping, seconds, text
from desktop.store.transfer.importers.left_out import with_chat
from desktop.store.transfer.importers.programs.message_lists.chat import Chat, chat_record
from desktop.store.transfer.importers.programs.message_lists.message import read_message
from desktop.store.transfer.importers.protocol import Note, Unreadable
from desktop.store.transfer.importers.trees import shape
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.words import _

__all__ = ["ClaudeCode", "Codex"]

_ASIDE = (
    "<local-command-", "<command-name>", "<command-message>", "<bash-", "<system-reminder>",
    "<ide_opened_file>", "<ide_selection>", "<task-notification>",
)  # fmt: skip
_SURROUNDINGS = (
    "<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<permissions",
    "<turn_aborted>", "<user_shell_command>", "<skill>",
)  # fmt: skip
"""How messages, and parts of them, begin that the agent adds by itself."""
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")


def _project(path: Any) -> tuple[str, ...]:
    """The folder of the chat: the last part of the directory that the agent worked in."""
    name = " ".join(text(path).replace("\\", "/").rstrip("/").rpartition("/")[2].split())
    return (name,) if name else ()


class ClaudeCode:
    source, label, beside = "claude-code", "Claude Code", ""

    def begins(self, value: Any) -> bool:
        about = mapping(value)
        if about.get("type") in ("summary", "file-history-snapshot"):
            return "leafUuid" in about or "messageId" in about
        return isinstance(about.get("sessionId"), str) and isinstance(about.get("type"), str)

    def continues(self, value: Any) -> bool:
        return isinstance(mapping(value).get("type"), str)

    def read_lines(self, values: Sequence[Any], note: Note, about: dict[str, Any]) -> ConversationRecord:
        """Messages form a tree. What sub-agents and the program itself wrote is left out."""
        messages: list[MessageRecord] = []
        skipped: dict[str, str | None] = {}
        reply = ""
        for line in map(mapping, values):
            key, parent = text(line.get("uuid")), text(line.get("parentUuid")) or None
            inner = mapping(line.get("message"))
            found = _claude_message(line, inner)
            if found is None:
                if key:
                    skipped[key] = parent or text(line.get("logicalParentUuid")) or None
                continue
            again = bool(inner.get("id")) and inner["id"] == reply  # one reply, a line for each of its parts
            reply = text(inner.get("id"))
            messages.append(dataclasses.replace(found, key=key, parent=parent, part=found.part or again))
        shaped = shape(messages, note, None, skipped)
        if not shaped.messages:
            raise Unreadable(_("it has no messages"))
        first = next((line for line in map(mapping, values) if line.get("cwd")), {})
        kept = {name: first[name] for name in ("cwd", "gitBranch", "version") if first.get(name)}
        session = first_text(*(mapping(line).get("sessionId") for line in values))
        return ConversationRecord(
            self.source, session or shaped.messages[0].key,
            _claude_title(values), shaped.messages[0].created_at, None, with_chat(shaped.messages, kept),
            shaped.shown_root, shaped.system_prompt, folder=_project(first.get("cwd")),
        )  # fmt: skip


def _claude_message(line: dict[str, Any], inner: dict[str, Any]) -> MessageRecord | None:
    own = line.get("type") in ("user", "assistant") and text(line.get("uuid"))
    if not own or line.get("isSidechain") is True or line.get("isMeta") is True:
        return None
    said = inner.get("content")
    if isinstance(said, list):
        said = [part for part in said if not text(mapping(part).get("text")).lstrip().startswith(_ASIDE)]
    elif text(said).lstrip().startswith(_ASIDE):
        return None
    model = {} if inner.get("model") == "<synthetic>" else {"model": inner.get("model")}
    entry = {"role": inner.get("role"), "content": said, "timestamp": line.get("timestamp")}
    found = read_message(entry | model)
    return dataclasses.replace(found, raw=None) if found is not None and found.text.strip() else None


def _claude_title(values: Sequence[Any]) -> str:
    """The title that the user gave, else the one that the program found."""
    lines = [mapping(line) for line in values]
    given = (line.get("customTitle") for line in reversed(lines))
    return first_text(
        *given, *(line.get("aiTitle") for line in lines), *(line.get("summary") for line in lines)
    )


class Codex:
    source, label, beside = "codex", "Codex", ""

    def begins(self, value: Any) -> bool:
        about = mapping(value)
        old = "instructions" in about and "timestamp" in about and "type" not in about
        return old or (about.get("type") == "session_meta" and isinstance(about.get("payload"), dict))

    def continues(self, value: Any) -> bool:
        about = mapping(value)
        return isinstance(about.get("type"), str) or "record_type" in about

    def read_lines(self, values: Sequence[Any], note: Note, about: dict[str, Any]) -> ConversationRecord:
        head = mapping(values[0].get("payload")) or values[0]
        contexts = [mapping(line.get("payload")) for line in values if line.get("type") == "turn_context"]
        entries: list[dict[str, Any]] = []
        hidden: list[dict[str, Any]] = []
        for entry in _codex_entries(values):
            said = " ".join(text(mapping(part).get("text")) for part in items(entry.get("content")))
            own = not said.lstrip().startswith(_SURROUNDINGS)
            own = own and entry["role"] not in ("developer", "system")
            (entries if own else hidden).append(entry)
        chat = Chat(
            self.source, entries, text(head.get("id")), "", seconds(head.get("timestamp")), None,
            model=first_text(*(context.get("model") for context in contexts)),
            folder=_project(head.get("cwd")),
            kept={"hidden": hidden} if hidden else {},
        )  # fmt: skip
        return chat_record(chat, note)


def _codex_entries(values: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """The items that went to the model or came from it, as messages."""
    for line in values:
        item = mapping(line.get("payload")) if line.get("type") == "response_item" else line
        kind, time = text(item.get("type")), {"timestamp": line.get("timestamp")}
        if kind == "message" and isinstance(item.get("role"), str):
            yield time | {"role": item["role"], "content": item.get("content")}
        elif kind == "reasoning" and (items(item.get("summary")) or items(item.get("content"))):
            parts = [*items(item.get("summary")), *items(item.get("content"))]
            yield time | {"role": "assistant", "content": [{"type": "reasoning", "summary": parts}]}
        elif kind in _CALLS:
            given = item.get("arguments") or item.get("input") or item.get("action")
            call = {"name": first_text(item.get("name"), kind), "arguments": given}
            yield time | {"role": "assistant", "tool_calls": [call]}
        elif kind in _RESULTS:
            output = item.get("output")
            came = mapping(output).get("content", output)
            yield time | {
                "role": "tool",
                "content": came if isinstance(came, (str, list)) else [{"text": str(came)}],
            }
