"""Folders of conversations: nested, ordered by the user, each with its own system prompt and settings."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from desktop.store.database.database import Database, StoreError
from desktop.store.database.errors import missing
from engine.lazy_dataclass import dataclass
from engine.words import N_, _

__all__ = ["DEEPEST", "Folder", "FolderContents", "FolderStore", "Removal"]

DEEPEST = 32
"""The most folders inside one another; more cannot be shown."""


@dataclass(frozen=True, slots=True)
class Folder:
    """One folder; `parent_id` None is the top, `position` its place among its siblings from 0.

    `settings` maps the name of a settings class to the values that this folder changes for what is in it.
    """

    id: int
    parent_id: int | None
    name: str
    position: int
    settings: Mapping[str, Mapping[str, Any]]
    system_prompt: str


@dataclass(frozen=True, slots=True)
class FolderContents:
    """What a folder gives to the chats in it."""

    system_prompt: str = ""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Removal(NamedTuple):
    """What `FolderStore.remove` did, so that `put_back` can undo it.

    `folders` are those removed, `children` the subfolders that moved up, `conversations` those that were in a
    removed folder and `thrown_away` those that went to the trash with it.
    """

    folders: tuple[Folder, ...]
    children: tuple[tuple[int, int], ...]
    conversations: tuple[tuple[int, int], ...]
    thrown_away: tuple[int, ...]


class FolderStore:
    """Reads and writes folders.

    Methods raise `StoreError` for an unknown id and for trouble with the file.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> tuple[Folder, ...]:
        """All folders: parents before their contents, siblings in order."""
        by_parent: dict[int | None, list[Folder]] = {}
        for row in self._database.execute(f"SELECT {_COLUMNS} FROM folders ORDER BY position, id"):
            folder = _folder(row)
            by_parent.setdefault(folder.parent_id, []).append(folder)
        found: list[Folder] = []
        waiting = list(reversed(by_parent.get(None, [])))
        while waiting:
            found.append(folder := waiting.pop())
            waiting += reversed(by_parent.get(folder.id, []))
        return tuple(found)

    def get(self, folder_id: int) -> Folder:
        row = self._database.execute(f"SELECT {_COLUMNS} FROM folders WHERE id = ?", (folder_id,)).fetchone()
        if row is None:
            raise missing(N_("folder"), folder_id)
        return _folder(row)

    def above(self, folder_id: int | None) -> tuple[Folder, ...]:
        """The folder and its ancestors, outermost first; empty for None."""
        found: list[Folder] = []
        while folder_id is not None:
            found.append(folder := self.get(folder_id))
            folder_id = folder.parent_id
        return tuple(reversed(found))

    def create(self, name: str, parent_id: int | None = None) -> Folder:
        """Create an empty folder after its siblings."""
        with self._database.transaction():
            self._check_depth(parent_id, 1)
            cursor = self._database.execute(
                "INSERT INTO folders (parent_id, name, position) VALUES (?, ?, ?)",
                (parent_id, _name(name), len(self._siblings(parent_id))),
            )
        return self.get(int(cursor.lastrowid or 0))

    def rename(self, folder_id: int, name: str) -> None:
        self._set(folder_id, "name = ?", _name(name))

    def set_settings(self, folder_id: int, settings: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the values that this folder changes."""
        self._set(folder_id, "settings = ?", json.dumps(settings))

    def set_system_prompt(self, folder_id: int, text: str) -> None:
        """Replace the system prompt of the conversations in it; an empty one stands for that of the parent
        folder.
        """
        self._set(folder_id, "system_prompt = ?", text)

    def move(self, folder_id: int, parent_id: int | None, position: int | None = None) -> None:
        """Move the folder with its contents into another (None: the top), before the sibling at `position` or
        last.

        Raises `StoreError` if the folder would end up inside itself.
        """
        with self._database.transaction():
            self.get(folder_id)
            inside = self._inside(folder_id)
            if parent_id in inside:
                raise StoreError(
                    _("The folder {name} cannot be moved into itself.", name=self.get(folder_id).name)
                )
            depth = max(len(self.above(number)) for number in inside) - len(self.above(folder_id)) + 1
            self._check_depth(parent_id, depth)
            siblings = [number for number in self._siblings(parent_id) if number != folder_id]
            siblings.insert(len(siblings) if position is None else max(0, position), folder_id)
            self._set(folder_id, "parent_id = ?", parent_id)
            self._order(siblings)

    def remove(self, folder_id: int, throw_away: bool = False) -> Removal:
        """Remove a folder. Its contents move to the parent; with `throw_away`, everything in it is removed
        too.

        `throw_away` moves all conversations in it and its subfolders to the trash. `put_back` undoes the
        removal.
        """
        with self._database.transaction():
            folder = self.get(folder_id)
            doomed = self._inside(folder_id) if throw_away else (folder_id,)
            folders = tuple(found for found in self.all() if found.id in doomed)
            marks = json.dumps(doomed)
            held = self._database.execute(
                f"SELECT id, folder_id, deleted FROM conversations WHERE folder_id IN {_MARKED} ORDER BY id",
                (marks,),
            ).fetchall()
            children = tuple(
                (number, folder_id) for number in self._siblings(folder_id) if number not in doomed
            )
            thrown = tuple(number for number, _unused, deleted in held if throw_away and not deleted)
            self._database.execute(
                f"UPDATE conversations SET deleted = 1, deleted_at = ? WHERE id IN {_MARKED}",
                (time.time(), json.dumps(thrown)),
            )
            self._database.execute(
                f"UPDATE conversations SET folder_id = ? WHERE folder_id IN {_MARKED}",
                (folder.parent_id, marks),
            )
            place = self._siblings(folder.parent_id).index(folder_id)
            order = self._siblings(folder.parent_id)
            order[place : place + 1] = [number for number, _unused in children]
            for number, _unused in children:
                self._set(number, "parent_id = ?", folder.parent_id)
            for found in reversed(folders):
                self._database.execute("DELETE FROM folders WHERE id = ?", (found.id,))
            self._order(order)
        return Removal(folders, children, tuple((number, place) for number, place, _unused in held), thrown)

    def put_back(self, removal: Removal) -> None:
        """Undo `remove`, except for what has been deleted permanently since. Without its parent, a folder
        goes to the top.
        """
        with self._database.transaction():
            present = {folder.id for folder in self.all()}
            for folder in removal.folders:
                parent = folder.parent_id if folder.parent_id in present else None
                self._database.execute(
                    "INSERT INTO folders (id, parent_id, name, settings, system_prompt) VALUES (?, ?, ?, "
                    "?, ?)",
                    (folder.id, parent, folder.name, json.dumps(folder.settings), folder.system_prompt),
                )
                present.add(folder.id)
                siblings = [number for number in self._siblings(parent) if number != folder.id]
                siblings.insert(folder.position, folder.id)
                self._order(siblings)
            for number, parent in removal.children:
                if number in present:
                    self._set(number, "parent_id = ?", parent)
            self._order([number for number, _unused in removal.children if number in present])
            for number, place in removal.conversations:
                self._database.execute("UPDATE conversations SET folder_id = ? WHERE id = ?", (place, number))
            self._database.execute(
                f"UPDATE conversations SET deleted = 0, deleted_at = NULL WHERE id IN {_MARKED}",
                (json.dumps(removal.thrown_away),),
            )

    def _set(self, folder_id: int, assignment: str, value: object) -> None:
        if not self._database.execute(
            f"UPDATE folders SET {assignment} WHERE id = ?", (value, folder_id)
        ).rowcount:
            raise missing(N_("folder"), folder_id)

    def _siblings(self, parent_id: int | None) -> list[int]:
        rows = self._database.execute(
            "SELECT id FROM folders WHERE parent_id IS ? ORDER BY position, id", (parent_id,)
        )
        return [int(row[0]) for row in rows]

    def _order(self, siblings: Sequence[int]) -> None:
        for position, number in enumerate(siblings):
            self._database.execute("UPDATE folders SET position = ? WHERE id = ?", (position, number))

    def _inside(self, folder_id: int) -> tuple[int, ...]:
        """The folder and all folders below it."""
        rows = self._database.execute(
            "WITH RECURSIVE inside (id) AS (VALUES (?) UNION SELECT folders.id FROM inside JOIN folders ON "
            "parent_id = inside.id) SELECT id FROM inside",
            (folder_id,),
        )
        return tuple(int(row[0]) for row in rows)

    def _check_depth(self, parent_id: int | None, added: int) -> None:
        if len(self.above(parent_id)) + added > DEEPEST:
            raise StoreError(
                _(
                    "Folders can be nested at most {deepest} levels deep. Move this one further up.",
                    deepest=DEEPEST,
                )
            )


_COLUMNS = "id, parent_id, name, position, settings, system_prompt"
_MARKED = "(SELECT value FROM json_each(?))"


def _folder(row: tuple[Any, ...]) -> Folder:
    number, parent, name, position, settings, prompt = row
    return Folder(number, parent, name, position, json.loads(settings), prompt)


def _name(name: str) -> str:
    return " ".join(name.split()) or _("Folder")
