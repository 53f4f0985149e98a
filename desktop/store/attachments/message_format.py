"""Files within a message: how they are written into its text, and how they are found there again.

A message with files begins with them, each as a line with its name and its text in a fence, followed by what
the user wrote::

    Attached file: report.csv (first 120 of 400 lines)
    ```csv
    ...
    ```

    What stands out here?

A picture is a mark instead (`picture_marks.py`). In this form they are stored, searched, exported and read by
the model like any other text, and every other program can read them too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePath

from desktop.store.attachments.picture_marks import PictureMark, mark_at
from engine.lazy_dataclass import dataclass
from engine.words import _

__all__ = [
    "HEAD",
    "Attachment",
    "auto_source",
    "cut",
    "cut_inside",
    "join",
    "kind_of",
    "language_of",
    "lines_of",
    "message_text",
    "name_line",
    "note_text",
    "passages_in",
    "split",
]

HEAD = "Attached file: "
"""The beginning of the line above the text of a file; its name follows."""
_NOTE = (
    r"first (?P<part>[\d,]+)(?: of (?P<whole>[\d,]+))? (?P<kind>lines|pages|characters)"
    r"|(?P<kept>[\d,]+) of (?P<all>[\d,]+) passages"
)
_FILE = re.compile(
    rf"{HEAD}(?P<name>[^\n]+?)(?: \((?P<note>{_NOTE})\))?\n"
    r"(?P<fence>`{3,})[^\n`]*\n(?P<text>.*?)(?:(?<=\n)|\n)(?P=fence)(?:\n+|\Z)",
    re.DOTALL,
)
_LANGUAGES = {
    "py": "python", "pyi": "python", "js": "javascript", "mjs": "javascript", "jsx": "jsx",
    "ts": "typescript", "tsx": "tsx", "rs": "rust", "c": "c", "h": "c", "cc": "cpp", "cpp": "cpp",
    "hpp": "cpp", "cu": "cuda", "cs": "csharp", "go": "go", "java": "java", "kt": "kotlin", "swift": "swift",
    "rb": "ruby", "php": "php", "sh": "bash", "bash": "bash", "zsh": "bash", "ps1": "powershell",
    "bat": "batch", "sql": "sql", "html": "html", "htm": "html", "css": "css", "scss": "scss", "xml": "xml",
    "json": "json", "jsonl": "json", "yaml": "yaml", "yml": "yaml", "toml": "toml", "ini": "ini",
    "cfg": "ini", "lua": "lua", "r": "r", "jl": "julia", "hs": "haskell", "scala": "scala", "pl": "perl",
    "dart": "dart", "vue": "vue", "tex": "latex", "diff": "diff", "patch": "diff", "qss": "css",
}  # fmt: skip
_TABLES = {"csv": "csv", "tsv": "tsv"} | dict.fromkeys(("xlsx", "xlsm", "xlsb", "xls", "ods"), "csv")
_PROSE = {"rst": "rst"} | dict.fromkeys(
    ("md", "markdown", "docx", "odt", "pptx", "odp", "epub", "ipynb"), "markdown"
)


@dataclass(frozen=True, slots=True)
class Attachment:
    """One file: its name, the text for the model and, if that is only a part of it, "first 120 of 400 lines"
    or "3 of 40 passages", which is English as it is a part of the message; `note_text` translates it. A
    picture has no text but a mark.
    """

    name: str
    text: str
    note: str = ""
    picture: PictureMark | None = None


def note_text(note: str) -> str:
    """The note of a file in the user's language."""
    found = re.fullmatch(_NOTE, note)
    if found is None:
        return note
    part, whole, kept, all_of_them = (
        int((found[name] or "0").replace(",", "")) for name in ("part", "whole", "kept", "all")
    )
    if all_of_them:
        return _("{kept:,} of {passages:,} passages", kept=kept, passages=all_of_them)
    if not whole:
        return _("first {text:,} characters", text=part)
    if found["kind"] == "lines":
        return _("first {lines:,} of {total:,} lines", lines=part, total=whole)
    if found["kind"] == "pages":
        return _("first {pages:,} of {total:,} pages", pages=part, total=whole)
    return _("first {characters:,} of {text:,} characters", characters=part, text=whole)


def passages_in(note: str) -> int:
    """Of how many passages the text of a file with this note is made; 0 if it is no such part."""
    found = re.fullmatch(_NOTE, note)
    return int((found["kept"] or "0").replace(",", "")) if found is not None else 0


def language_of(name: str) -> str:
    """The info word of a fence for this kind of file; empty for plain text."""
    ending = PurePath(name).suffix.lower().removeprefix(".")
    return _LANGUAGES.get(ending) or _PROSE.get(ending) or _TABLES.get(ending) or ""


def kind_of(name: str) -> str:
    """The icon for this kind of file: "code", "table" or "file"."""
    ending = PurePath(name).suffix.lower().removeprefix(".")
    return "table" if ending in _TABLES else "code" if ending in _LANGUAGES else "file"


def name_line(name: str) -> str:
    """The name of a file as it is written into a message: on one line, never empty."""
    return " ".join(name.split()) or "file"


def message_text(attachment: Attachment) -> str:
    """The file as written into a message, in a fence longer than any inside it; a picture's mark."""
    if attachment.picture is not None:
        return attachment.picture.text
    runs = re.findall(r"`{3,}", attachment.text) if "```" in attachment.text else []
    longest = max(map(len, runs), default=2)
    fence = "`" * (longest + 1)
    note = f" ({attachment.note})" if attachment.note else ""
    text = attachment.text + "\n" if attachment.text else ""
    return f"{HEAD}{name_line(attachment.name)}{note}\n{fence}{language_of(attachment.name)}\n{text}{fence}"


def join(attachments: Iterable[Attachment], text: str) -> str:
    """The text of a message with these files."""
    return "\n\n".join([*map(message_text, attachments), *([text] if text.strip() else [])])


def split(message: str) -> tuple[tuple[tuple[int, Attachment], ...], int]:
    """The files at the beginning of a message with their offsets, and the offset of the user's own words."""
    found: list[tuple[int, Attachment]] = []
    place = 0
    while True:
        if message.startswith(HEAD, place) and (match := _FILE.match(message, place)) is not None:
            text = match["text"]
            found.append((place, Attachment(match["name"], text.removesuffix("\n"), match["note"] or "")))
            place = match.end()
        elif (picture := mark_at(message, place)) is not None:
            mark, place_after = picture
            found.append((place, Attachment(mark.name, "", picture=mark)))
            place = place_after
        else:
            return tuple(found), place


def auto_source(message: str) -> str:
    """What a title is derived from: the user's own words, else the names of the files."""
    files, place = split(message)
    own = message[place:]
    return own if own.strip() else ", ".join(attachment.name for _unused, attachment in files)


def lines_of(text: str) -> int:
    """The number of lines in the text."""
    return text.count("\n") + 1 if text else 0


def cut_inside(attachment: Attachment, characters: int) -> Attachment:
    """Its first `characters` characters, for a text without lines to cut between."""
    note = f"first {characters:,} of {len(attachment.text):,} characters"
    return replace(attachment, text=attachment.text[:characters].rstrip(), note=note)


def cut(attachment: Attachment, lines: int) -> Attachment:
    """Its first `lines` lines, with a note that says so."""
    whole = attachment.text.split("\n")
    if lines >= len(whole):
        return attachment
    note = re.fullmatch(_NOTE, attachment.note)
    total = note["whole"] if note is not None and note["kind"] == "lines" else f"{len(whole):,}"
    return replace(attachment, text="\n".join(whole[:lines]), note=f"first {lines:,} of {total} lines")
