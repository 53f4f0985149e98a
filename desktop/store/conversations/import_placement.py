"""Where an imported conversation goes: its folders and its persona, created where they are missing."""

from __future__ import annotations

import json
from collections.abc import Sequence

from desktop.store.conversations.folders import DEEPEST, FolderContents
from desktop.store.conversations.personas import Persona
from desktop.store.database.database import Database

__all__ = ["folder_contents", "folder_of", "folder_path", "persona_id", "persona_of"]


def folder_of(
    database: Database, names: Sequence[str], contents: Sequence[FolderContents] = ()
) -> int | None:
    """The id of the folder with this path from the top, created if missing, with these contents if they are
    known; None for the top itself.

    A path deeper than folders can be nested ends at the deepest one. Within a transaction.
    """
    above: int | None = None
    for depth, name in enumerate(names[:DEEPEST]):
        row = database.execute(
            "SELECT id FROM folders WHERE parent_id IS ? AND name = ? ORDER BY position, id", (above, name)
        ).fetchone()
        if row is None:
            count = database.execute(
                "SELECT count(*) FROM folders WHERE parent_id IS ?", (above,)
            ).fetchone()[0]
            given = contents[depth] if depth < len(contents) else FolderContents()
            made = database.execute(
                "INSERT INTO folders (parent_id, name, position, system_prompt, settings) "
                "VALUES (?, ?, ?, ?, ?)",
                (above, name, count, given.system_prompt, json.dumps(given.settings)),
            )
            above = int(made.lastrowid or 0)
        else:
            above = int(row[0])
    return above


def folder_path(database: Database, folder_id: int | None) -> tuple[str, ...]:
    """The names from the top down to the folder; empty for None."""
    return tuple(name for name, _unused in _down_to(database, folder_id))


def folder_contents(database: Database, folder_id: int | None) -> tuple[FolderContents, ...]:
    """What each folder from the top down to this one gives to its chats; empty if none gives anything."""
    found = tuple(contents for _unused, contents in _down_to(database, folder_id))
    return found if any(each != FolderContents() for each in found) else ()


def _down_to(database: Database, folder_id: int | None) -> list[tuple[str, FolderContents]]:
    found: list[tuple[str, FolderContents]] = []
    while folder_id is not None and len(found) < DEEPEST:
        row = database.execute(
            "SELECT name, parent_id, system_prompt, settings FROM folders WHERE id = ?", (folder_id,)
        ).fetchone()
        if row is None:
            break
        found.append((str(row[0]), FolderContents(str(row[2]), json.loads(row[3]))))
        folder_id = row[1]
    return found[::-1]


_FIELDS = "name, avatar, system_prompt, preset, model_path"


def persona_id(database: Database, persona: Persona | None) -> int | None:
    """The id of the persona with this name, created if missing; None for no persona. Within a transaction."""
    if persona is None:
        return None
    row = database.execute(
        "SELECT id FROM personas WHERE name = ? AND NOT deleted ORDER BY id", (persona.name,)
    ).fetchone()
    if row is not None:
        return int(row[0])
    values = (persona.name, persona.avatar, persona.system_prompt, persona.preset, persona.model_path)
    made = database.execute(f"INSERT INTO personas ({_FIELDS}) VALUES (?, ?, ?, ?, ?)", values)
    return int(made.lastrowid or 0)


def persona_of(database: Database, number: int | None) -> Persona | None:
    """The persona without its id; None for no persona and for a deleted one."""
    row = database.execute(
        f"SELECT {_FIELDS} FROM personas WHERE id = ? AND NOT deleted", (number,)
    ).fetchone()
    return Persona(0, *row) if row is not None else None
