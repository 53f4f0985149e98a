"""How parts of a message that are no plain text are written into it: thoughts, uses of tools, files, what is not known."""

from __future__ import annotations

import re

__all__ = ["details_to_thoughts", "document", "fenced", "join", "placeholder", "thought", "tool_call", "tool_result"]

_REASONING = re.compile(r'<details\s{1,9}type="reasoning"[^>]{0,500}>', re.IGNORECASE)
_LONGEST_NAME = 120


def join(parts: list[str]) -> str:
    """The parts that say something, with an empty line between them."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip())


def thought(text: str) -> str:
    """A thought, in the tags that the transcript folds."""
    return f"<think>\n{text.strip()}\n</think>" if text.strip() else ""


def fenced(text: str, language: str = "") -> str:
    """A code block, whose fence is longer than any within."""
    runs = re.findall(r"`{3,}", text)
    fence = "`" * (max(map(len, runs), default=2) + 1)
    return f"{fence}{language}\n{text.rstrip(chr(10))}\n{fence}"


def placeholder(kind: str, name: str = "") -> str:
    """A word in the place of what text cannot show; the thing itself is kept beside the message."""
    return f"[{kind}: {_short(name)}]" if name.strip() else f"[{kind}]"


def document(name: str, text: str) -> str:
    """A file whose text is known."""
    return f"{placeholder('file', name)}\n{fenced(text)}" if text.strip() else placeholder("file", name)


def tool_call(name: str, arguments: str) -> str:
    """That a tool was called, and with what."""
    title = f"**Tool call: {_short(name) or 'tool'}**"
    return f"{title}\n\n{fenced(arguments)}" if arguments.strip() else title


def tool_result(name: str, text: str) -> str:
    """What a tool gave back."""
    title = f"**Tool result: {_short(name)}**" if name.strip() else "**Tool result**"
    return f"{title}\n\n{fenced(text)}" if text.strip() else title


def details_to_thoughts(text: str) -> str:
    """Thoughts written as HTML `<details type="reasoning">`, whose lines are often quoted, in our tags."""
    parts: list[str] = []
    place = 0
    while (found := _REASONING.search(text, place)) and (end := text.find("</details>", found.end())) >= 0:
        inner = text[found.end() : end].strip()
        if inner.startswith("<summary>"):
            inner = inner.partition("</summary>")[2].strip()
        parts += [text[place : found.start()], thought(_unquoted(inner))]
        place = end + len("</details>")
    return join([*parts, text[place:]]) if parts else text


def _unquoted(text: str) -> str:
    lines = text.splitlines()
    if all(line.startswith((">", "&gt;")) or not line.strip() for line in lines):
        lines = [re.sub(r"^(?:>|&gt;) ?", "", line) for line in lines]
    return "\n".join(lines)


def _short(name: str) -> str:
    line = " ".join(name.split())
    return line if len(line) <= _LONGEST_NAME else line[: _LONGEST_NAME - 1] + "…"
