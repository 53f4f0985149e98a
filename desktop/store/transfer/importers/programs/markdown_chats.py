"""Chats in Markdown, as this program and many exporters write them: a heading or bold line for each author.

A file counts only if such lines of one form name the user as well as the model. Headings of other forms and
those in code are parts of messages.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from desktop.store.transfer.importers.fields import content_key, seconds
from desktop.store.transfer.importers.parts import join, thought
from desktop.store.transfer.importers.programs.message_lists.chat import Chat
from desktop.store.transfer.importers.programs.perplexity import perplexity_chat
from engine.words import _

__all__ = ["ENDINGS", "markdown_chats"]

ENDINGS = (".md", ".markdown", ".txt")
_USER = frozenset(("user", "you", "human", "me", "prompt", "you said"))
_MODEL = frozenset((
    "assistant", "ai", "bot", "model", "response", "chatgpt", "gpt", "claude", "gemini", "copilot", "grok",
    "deepseek", "llm", "chatgpt said", "answer", "llama", "mistral", "perplexity", "le chat",
))  # fmt: skip
_SYSTEM = frozenset(("system", "system prompt", "system message"))
_HEADING = re.compile(r"(#{1,6})[ \t]+(.{1,200}?)[ \t#]*$")
_BOLD = re.compile(r"\*\*([^*\n]{1,80}?)(?::\*\*|\*\*:|\*\*$)[ \t]*(.*)$")
_TIME = re.compile(r" · (\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?)|\((\d{4}-\d\d-\d\d[^)]{0,20})\)")
_FENCE = re.compile(r"[ \t]{0,3}(`{3,}|~{3,})")
_BETWEEN = re.compile(r"\n---\n\n(?=# )")
_QUOTED_THOUGHT = re.compile(r"^> \*\*([^*\n]{1,40})\*\*\n((?:^>.*(?:\n|\Z))*)", re.MULTILINE)
_RULES = re.compile(r"(?:\n|\A)(?:-{3,}|\*{3,}|_{3,})\s*\Z")


class _Mark(NamedTuple):
    """A line that names an author: its form ("##", "**"), role, time, and what follows on the line."""

    line: int
    form: str
    role: str
    time: float | None
    rest: str


def markdown_chats(data: bytes, name: str) -> list[Chat]:
    """The chats in a file called `name`; empty if it has none."""
    words = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if (thread := perplexity_chat(words, name)) is not None:
        return [thread]
    found: list[Chat] = []
    for part in _BETWEEN.split(words):
        if (chat := _chat(part, name)) is not None:
            found.append(chat)
        elif found:
            return [whole] if (whole := _chat(words, name)) is not None else []  # a rule within a reply
    return found


def _chat(words: str, name: str) -> Chat | None:
    lines = words.split("\n")
    marks = _marks(lines)
    if not marks:
        return None
    ends = [mark.line for mark in marks[1:]] + [len(lines)]
    entries = []
    for mark, end in zip(marks, ends, strict=True):
        said = _RULES.sub("", "\n".join([mark.rest, *lines[mark.line + 1 : end]]).strip("\n"))
        entries.append(
            {
                "role": mark.role,
                "content": _QUOTED_THOUGHT.sub(_thought, said).strip("\n"),
                "timestamp": mark.time,
            }
        )
    before = [line for line in lines[: marks[0].line] if line.strip()]
    title = next((line.removeprefix("# ").replace("\\", "") for line in before if line.startswith("# ")), "")
    made = next((seconds(line.strip("*_ ")) for line in before if seconds(line.strip("*_ "))), None)
    first = next(entry["content"] for entry in entries if entry["role"] == "user")
    return Chat("markdown", entries, content_key([title, first]), title or name.rpartition(".")[0], made)


def _marks(lines: list[str]) -> list[_Mark]:
    """The lines that name authors in the first form in which a user and a model are named; empty without."""
    found: list[_Mark] = []
    fence = ""
    for number, line in enumerate(lines):
        if opened := _FENCE.match(line):
            fence = "" if fence and opened[1].startswith(fence) else fence or opened[1]
        elif not fence and (mark := _mark(number, line)) is not None:
            found.append(mark)
    for form in dict.fromkeys(mark.form for mark in found):
        same = [mark for mark in found if mark.form == form]
        if {"user", "assistant"} <= {mark.role for mark in same}:
            return same
    return []


def _mark(number: int, line: str) -> _Mark | None:
    if heading := _HEADING.match(line):
        form, named, rest = heading[1], heading[2], ""
    elif bold := _BOLD.match(line):
        form, named, rest = "**", bold[1], bold[2]
    else:
        return None
    time = _TIME.search(named)
    plain = re.sub(r"[^\w\s.-]", " ", named[: time.start()] if time else re.sub(r"\([^)]*\)", "", named))
    author = " ".join(plain.split()).casefold().strip("_ ")
    first = author.split("-")[0].split(" ")[0]
    if author in _USER or author == _("You").casefold():
        role = "user"
    elif author in _SYSTEM or author == _("System prompt").casefold():
        role = "system"
    elif author in _MODEL or (first in _MODEL and len(author) <= 40) or (time is not None and author):
        role = "assistant"
    else:
        return None
    return _Mark(number, form, role, seconds((time[1] or time[2]).strip()) if time else None, rest)


def _thought(match: re.Match[str]) -> str:
    """A quotation under the title "Thoughts", as this program writes it, as a thought."""
    if match[1] not in ("Thoughts", _("Thoughts")):
        return match[0]
    inner = "\n".join(line.removeprefix(">").removeprefix(" ") for line in match[2].splitlines())
    return join([thought(inner), ""]) + "\n\n"
