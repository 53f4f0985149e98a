"""Saved prompts: stored with the conversations, exchanged as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from desktop.store.database.database import Database, StoreError
from engine.lazy_dataclass import dataclass
from engine.platform.regular_file import regular_file
from engine.platform.whole_file import write_whole
from engine.printable import json_text
from engine.words import _

__all__ = ["LONGEST_PROMPT", "Prompt", "PromptStore", "read_prompts", "write_prompts"]

LONGEST_PROMPT = 1 << 20
"""Characters of a prompt that are read from a file."""
_MOST_FILE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt; `id` 0 is not saved yet."""

    id: int
    name: str
    text: str


class PromptStore:
    """Reads and writes saved prompts. Methods raise `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> tuple[Prompt, ...]:
        """All prompts, sorted by name."""
        found = [Prompt(*row) for row in self._database.execute("SELECT id, name, text FROM prompts")]
        return tuple(sorted(found, key=lambda prompt: (prompt.name.casefold(), prompt.id)))

    def put(self, prompt: Prompt) -> int:
        """Save a prompt, a new one (id 0) under a new id, a deleted one under its old id; returns the id."""
        cursor = self._database.execute(
            "INSERT INTO prompts (id, name, text) VALUES (?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET name = excluded.name, text = excluded.text",
            (prompt.id or None, " ".join(prompt.name.split()) or "Prompt", prompt.text),
        )
        return prompt.id or int(cursor.lastrowid or 0)

    def remove(self, number: int) -> None:
        self._database.execute("DELETE FROM prompts WHERE id = ?", (number,))


def write_prompts(path: Path, prompts: Iterable[Prompt]) -> None:
    """Write them as JSON: a list of objects with "name" and "text". Raises `StoreError`."""
    entries = [{"name": prompt.name, "text": prompt.text} for prompt in prompts]
    try:
        write_whole(path, json_text(json.dumps({"prompts": entries}, ensure_ascii=False, indent=2)) + "\n")
    except OSError as error:
        raise StoreError(
            _(
                "The prompts cannot be written to {path}: {strerror}.",
                path=path.name,
                strerror=error.strerror or error,
            )
        ) from error


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """The prompts in a JSON file: ours, or a list of objects with "name" (or "title", "command") and "text"
    (or "content").

    Raises `StoreError` with a sentence if there are none.
    """
    try:
        if regular_file(path).st_size > _MOST_FILE_BYTES:
            raise StoreError(_("{path} is too large for a prompts file.", path=path.name))
        found = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise StoreError(
            _("{path} cannot be read: {strerror}.", path=path.name, strerror=error.strerror or error)
        ) from error
    except (ValueError, RecursionError) as error:
        raise StoreError(
            _(
                "{path} is not a prompts file: expected a JSON list of prompts with “name” and “text”.",
                path=path.name,
            )
        ) from error
    entries = found.get("prompts") if isinstance(found, dict) else found
    prompts = (
        [prompt for entry in entries if (prompt := _prompt(entry)) is not None]
        if isinstance(entries, list)
        else []
    )
    if not prompts:
        raise StoreError(
            _(
                "{path} contains no prompts: expected a JSON list of prompts with “name” and “text”.",
                path=path.name,
            )
        )
    return tuple(prompts)


def _prompt(entry: object) -> Prompt | None:
    if not isinstance(entry, dict):
        return None
    words = [
        next((entry[key] for key in keys if isinstance(entry.get(key), str)), "") for keys in (_NAMES, _TEXTS)
    ]
    name, text = " ".join(words[0].split()).lstrip("/"), words[1]
    return Prompt(0, name[:200], text[:LONGEST_PROMPT]) if name and text.strip() else None


_NAMES, _TEXTS = ("name", "title", "command"), ("text", "content", "prompt")
