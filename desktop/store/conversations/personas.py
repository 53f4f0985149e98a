"""Personas: who answers in a conversation.

A name, a picture, a system prompt, a sampler preset and a model, all optional but the name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from desktop.store.database.database import Database, StoreError

__all__ = ["LARGEST_IMAGE", "Persona", "PersonaStore"]

LARGEST_IMAGE = 256 << 10
"""Bytes of an avatar's picture."""
LONGEST_AVATAR = 16


@dataclass(frozen=True, slots=True)
class Persona:
    """`avatar` is an emoji or initials, shown where there is no picture; `preset` is the name of a sampler
    preset.

    Empty texts mean: as it is without the persona. `id` 0 is a persona that is not saved yet.
    """

    id: int
    name: str
    avatar: str = ""
    system_prompt: str = ""
    preset: str = ""
    model_path: str = ""
    deleted: bool = False


class PersonaStore:
    """Reads and writes personas.

    Methods raise `StoreError` for an id that is not there and for trouble with the file.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def list(self) -> tuple[Persona, ...]:
        """All personas that are not deleted, by name."""
        rows = self._database.execute(f"SELECT {_COLUMNS} FROM personas WHERE NOT deleted")
        return tuple(
            sorted((_persona(row) for row in rows), key=lambda found: (found.name.casefold(), found.id))
        )

    def get(self, persona_id: int) -> Persona:
        """One persona, deleted or not."""
        row = self._database.execute(
            f"SELECT {_COLUMNS} FROM personas WHERE id = ?", (persona_id,)
        ).fetchone()
        if row is None:
            raise _missing(persona_id)
        return _persona(row)

    def save(self, persona: Persona) -> Persona:
        """Write all of it but the picture; one with the id 0 is new and returned with its id."""
        persona = replace(
            persona,
            name=" ".join(persona.name.split()) or "Persona",
            avatar=persona.avatar.strip()[:LONGEST_AVATAR],
        )
        values = (persona.name, persona.avatar, persona.system_prompt, persona.preset, persona.model_path)
        if not persona.id:
            cursor = self._database.execute(
                "INSERT INTO personas (name, avatar, system_prompt, preset, model_path) VALUES (?, ?, ?, "
                "?, ?)",
                values,
            )
            return self.get(int(cursor.lastrowid or 0))
        self._set(persona.id, "name = ?, avatar = ?, system_prompt = ?, preset = ?, model_path = ?", *values)
        return self.get(persona.id)

    def image(self, persona_id: int) -> bytes:
        """The picture as the file it was; empty for none."""
        row = self._database.execute("SELECT image FROM personas WHERE id = ?", (persona_id,)).fetchone()
        if row is None:
            raise _missing(persona_id)
        return bytes(row[0])

    def set_image(self, persona_id: int, data: bytes) -> None:
        """Replace the picture; empty takes it away. Raises `StoreError` for more than 256 KiB."""
        if len(data) > LARGEST_IMAGE:
            raise StoreError(
                f"The picture has {len(data):,} bytes, at most {LARGEST_IMAGE:,} are kept: make it smaller."
            )
        self._set(persona_id, "image = ?", data)

    def delete(self, persona_id: int) -> None:
        """Take it out of the list; its conversations go on without it. `restore` brings it back to them."""
        self._set(persona_id, "deleted = 1")

    def restore(self, persona_id: int) -> None:
        """Undo `delete`."""
        self._set(persona_id, "deleted = 0")

    def _set(self, persona_id: int, assignment: str, *values: object) -> None:
        if not self._database.execute(
            f"UPDATE personas SET {assignment} WHERE id = ?", (*values, persona_id)
        ).rowcount:
            raise _missing(persona_id)


_COLUMNS = "id, name, avatar, system_prompt, preset, model_path, deleted"


def _persona(row: tuple[int, str, str, str, str, str, int]) -> Persona:
    return Persona(*row[:-1], deleted=bool(row[-1]))


def _missing(persona_id: int) -> StoreError:
    return StoreError(f"There is no persona number {persona_id}; it may have been removed by another window.")
