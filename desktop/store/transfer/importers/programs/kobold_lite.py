"""Saves of KoboldAI Lite: the text so far in pieces, in which marks or names tell who wrote what.

Format: index.html of LostRuins/lite.koboldai.net; `opmode` is 1 for a story, 2 an adventure, 3 a chat and 4
for instructions, the turns of which begin with marks of the program or with those of the model's template.
"""

from __future__ import annotations

import re
from typing import Any

from desktop.store.transfer.importers.fields import mapping, rest, text
from desktop.store.transfer.importers.programs.message_lists.chat import Chat, chat_record
from desktop.store.transfer.importers.protocol import Note
from desktop.store.transfer.records import ConversationRecord

__all__ = ["KoboldLite"]

_MARK = re.compile(r"\{\{\[(INPUT|OUTPUT|SYSTEM)(?:_END)?\]\}\}")
_ROLES = {"INPUT": "user", "OUTPUT": "assistant", "SYSTEM": "system"}
_CHAT, _INSTRUCT = "3", "4"
_TAGS = {"system": "systag", "assistant": "endtag", "user": "starttag"}
"""The names of the settings with the marks of the template, each with another for its end."""
_READ = (
    "gamestarted",
    "prompt",
    "memory",
    "actions",
    "savedsettings",
    "savedaestheticsettings",
    "anotetemplate",
)


class KoboldLite:
    source, label = "kobold-lite", "KoboldAI Lite"

    def recognises(self, value: Any) -> bool:
        about = mapping(value)
        return "gamestarted" in about and isinstance(about.get("actions"), list)

    def read(self, value: Any, note: Note) -> ConversationRecord:
        words = "".join([text(value.get("prompt")), *map(text, value["actions"])])
        entries = _turns(words, mapping(value.get("savedsettings")))
        chat = Chat(
            self.source, [entry for entry in entries if entry["content"].strip()],
            system=text(value.get("memory")).strip(), kept=rest(value, *_READ),
        )  # fmt: skip
        return chat_record(chat, note)


def _turns(words: str, settings: dict[str, Any]) -> list[dict[str, str]]:
    """The messages in the text; a story without marks is one reply."""
    mode = str(settings.get("opmode"))
    if _MARK.search(words):
        return _split(words, _MARK, lambda found: _ROLES[found[1]])
    marks = _marks(settings)
    if mode == _INSTRUCT and any(mark in words for mark, role in marks.items() if role == "user"):
        longest_first = sorted(marks, key=len, reverse=True)
        return _split(
            words, re.compile("|".join(map(re.escape, longest_first))), lambda found: marks[found[0]]
        )
    own = text(settings.get("chatname")).strip() or "User"
    others = [name.strip() for name in text(settings.get("chatopponent")).split("||$||") if name.strip()]
    if mode == _CHAT and f"{own}:" in words:
        names = "|".join(map(re.escape, [own, *others])) if others else r"[^\n:]{1,40}"
        pattern = re.compile(rf"^({re.escape(own)}|{names}): ?", re.MULTILINE)
        return _split(words, pattern, lambda found: "user" if found[1] == own else "assistant")
    return [{"role": "assistant", "content": words}]


def _marks(settings: dict[str, Any]) -> dict[str, str]:
    """Who writes after a mark of the model's template."""
    found: dict[str, str] = {}
    for role, name in _TAGS.items():
        for key in (f"instruct_{name}_end", f"instruct_{name}"):
            if mark := text(settings.get(key)).replace("\\n", "\n").strip():
                found[mark] = role
    return found


def _split(words: str, pattern: re.Pattern[str], role: Any) -> list[dict[str, str]]:
    """The pieces between the marks; what stands before the first is the model's."""
    found = list(pattern.finditer(words))
    ends = [match.start() for match in found[1:]] + [len(words)]
    first = {"role": "assistant", "content": words[: found[0].start()].strip()}
    turns = [
        {"role": role(match), "content": words[match.end() : end].strip()}
        for match, end in zip(found, ends, strict=True)
    ]
    return [first, *turns]
