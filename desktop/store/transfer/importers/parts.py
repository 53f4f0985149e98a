"""How the parts of a message that are not plain text are written into it: thoughts, tool calls, files and
others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from desktop.store.attachments.message_format import Attachment, language_of, message_text
from desktop.store.transfer.importers.fields import clean, compact
from engine.json_value import json_value

__all__ = [
    "ASSET",
    "clean_name",
    "document",
    "fenced",
    "join",
    "made_file",
    "part_picture",
    "picture",
    "picture_beside",
    "placeholder",
    "thought",
    "tool_call",
    "tool_result",
    "with_files",
]

ASSET = "inglenook-asset:"
"""The beginning of the address of a picture that is a file beside the chats: in the program's export, or in
its folder.
"""
_LONGEST_NAME = 120


def join(parts: list[str]) -> str:
    """The parts that are not blank, separated by empty lines."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip())


def thought(text: str) -> str:
    """A thought, in the tags that the transcript folds."""
    return f"<think>\n{text.strip()}\n</think>" if text.strip() else ""


def fenced(text: str, language: str = "") -> str:
    """A code block, with a fence longer than any inside it."""
    runs = re.findall(r"`{3,}", text)
    fence = "`" * (max(map(len, runs), default=2) + 1)
    return f"{fence}{language}\n{text.rstrip(chr(10))}\n{fence}"


def placeholder(kind: str, name: str = "") -> str:
    """A short mark for what text cannot show; the original is kept beside the message."""
    return f"[{kind}: {_short(name)}]" if name.strip() else f"[{kind}]"


def picture(url: str, name: str, kind: str = "image") -> str:
    """A picture whose address holds it, as `importers/pictures.py` finds it; else a placeholder."""
    if not (url.startswith("data:image/") and ";base64," in url[:100]):
        return placeholder(kind, name)
    return f"![{clean_name(name)}]({''.join(url.split())})"


def picture_beside(path: str, name: str) -> str:
    """A picture that is a file of the program, as `importers/pictures.py` finds it: `path` is from the folder
    that the chats are in as well, or the file's id.
    """
    return f"![{clean_name(name)}]({ASSET}{quote(path)})"


def clean_name(name: str) -> str:
    """A name for a picture in Markdown: short, on one line, without brackets."""
    return _short(name).replace("[", "(").replace("]", ")")


def part_picture(part: Any) -> str:
    """The address of the picture in a part of a message in OpenAI's form; "" for any other part."""
    if not isinstance(part, dict) or part.get("type") not in ("image_url", "input_image"):
        return ""
    given = part.get("image_url")
    url = given.get("url") if isinstance(given, dict) else given
    return url if isinstance(url, str) else ""


def document(name: str, text: str, kind: str = "file") -> str:
    """A file that came with a message: as an attachment of this program if its text is known, else a
    placeholder.
    """
    return (
        message_text(Attachment(_short(name), text.rstrip("\n"))) if text.strip() else placeholder(kind, name)
    )


def with_files(files: Sequence[str], words: str) -> str:
    """A message with the results of `document` for its files; attachments come first, where they are found
    again.
    """
    attached = [file for file in files if "\n" in file]
    return join([*attached, *(file for file in files if file not in attached), words]) if files else words


def made_file(name: str, text: str, language: str = "") -> str:
    """A file written in the chat, as a code block under its name."""
    title = f"**{_short(name) or 'File'}**"
    return f"{title}\n\n{fenced(text, language or language_of(name))}" if text.strip() else title


def tool_call(name: str, arguments: Any) -> str:
    """A tool call with its arguments: a text, JSON in a text, or an object.

    Texts of several lines within an object (code, whole files) go into blocks of their own, as they were
    written.
    """
    title = f"**Tool call: {_short(name) or 'tool'}**"
    given = _object(arguments)
    if given is None:
        words = (
            arguments if isinstance(arguments, str) else "" if arguments in (None, {}) else compact(arguments)
        )
        return f"{title}\n\n{fenced(clean(words))}" if words.strip() else title
    long = {
        key: clean(value) for key, value in given.items() if isinstance(value, str) and "\n" in value.strip()
    }
    short = {key: value for key, value in given.items() if key not in long}
    language = str(short.get("language", ""))
    language = language if language.isalnum() else ""
    blocks = [f"{clean(key)}:\n{fenced(value, language)}" for key, value in long.items()]
    return join([title, fenced(compact(short)) if short else "", *blocks])


def _object(arguments: Any) -> dict[str, Any] | None:
    """The object in an argument that has texts of several lines; None if it is better shown as it is."""
    if isinstance(arguments, str) and arguments.lstrip().startswith("{") and "\\n" in arguments:
        arguments = json_value(arguments)
    if not isinstance(arguments, dict):
        return None
    return (
        arguments
        if any(isinstance(value, str) and "\n" in value.strip() for value in arguments.values())
        else None
    )


def tool_result(name: str, text: str) -> str:
    """What a tool returned."""
    title = f"**Tool result: {_short(name)}**" if name.strip() else "**Tool result**"
    return f"{title}\n\n{fenced(text)}" if text.strip() else title


def _short(name: str) -> str:
    line = " ".join(name.split())
    return line if len(line) <= _LONGEST_NAME else line[: _LONGEST_NAME - 1] + "…"
