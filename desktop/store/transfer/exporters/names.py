"""File names made from the titles of chats: safe on every system, and unique."""

from __future__ import annotations

import re

from engine.words import _

__all__ = ["file_name", "free_name"]

LONGEST = 120
"""Bytes of a name without its extension; file systems allow 255, and paths are limited too."""
_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*\u200b-\u200f\u2028-\u202e\u2066-\u2069]+')
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)


def file_name(title: str) -> str:
    """The title as a file name without extension: no separators, no invisible characters, no device names of
    Windows.
    """
    name = " ".join(_UNSAFE.sub(" ", title).split()).strip(". ")
    name = name.encode("utf-8", "ignore")[:LONGEST].decode("utf-8", "ignore").rstrip(". ")
    return _("{name} chat", name=name) if _DEVICES.fullmatch(name) else name or _("Chat")


def free_name(title: str, suffix: str, taken: set[str]) -> str:
    """A name with the extension `suffix` that is not in `taken` (case-folded names), to which it is added."""
    name = file_name(title)
    found, count = f"{name}{suffix}", 1
    while found.casefold() in taken:
        count += 1
        found = f"{name} ({count}){suffix}"
    taken.add(found.casefold())
    return found
