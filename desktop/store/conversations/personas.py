"""Personas: a name and, optionally, a picture, a system prompt, a sampler preset and a model."""

from __future__ import annotations

from dataclasses import replace

from desktop.store.database.database import Database, StoreError
from desktop.store.database.errors import missing
from engine.lazy_dataclass import dataclass
from engine.words import N_, _

__all__ = ["LARGEST_IMAGE", "Persona", "PersonaStore"]

LARGEST_IMAGE = 256 << 10
"""Bytes of a persona's picture."""
LONGEST_AVATAR = 16


@dataclass(frozen=True, slots=True)
class Persona:
    """`avatar` is an emoji or initials, shown where there is no picture; `preset` names a sampler preset.

    Empty texts leave things as they are without the persona. `id` 0 is a persona that is not saved yet.
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

    Methods raise `StoreError` for an unknown id and for trouble with the file.
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
            raise missing(N_("persona"), persona_id)
        return _persona(row)

    def save(self, persona: Persona) -> Persona:
        """Write everything but the picture; a persona with the id 0 is new and is returned with its id."""
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
        """The picture as the bytes of its file; empty for none."""
        row = self._database.execute("SELECT image FROM personas WHERE id = ?", (persona_id,)).fetchone()
        if row is None:
            raise missing(N_("persona"), persona_id)
        return bytes(row[0])

    def set_image(self, persona_id: int, data: bytes) -> None:
        """Replace the picture; empty removes it. Raises `StoreError` for more than 256 KiB."""
        if len(data) > LARGEST_IMAGE:
            raise StoreError(
                _(
                    "The picture has {data:,} bytes, but at most {largest_image:,} are allowed. "
                    "Choose a smaller one.",
                    data=len(data),
                    largest_image=LARGEST_IMAGE,
                )
            )
        self._set(persona_id, "image = ?", data)

    def delete(self, persona_id: int) -> None:
        """Remove it from the list; its conversations continue without it until `restore` brings it back."""
        self._set(persona_id, "deleted = 1")

    def restore(self, persona_id: int) -> None:
        self._set(persona_id, "deleted = 0")

    def _set(self, persona_id: int, assignment: str, *values: object) -> None:
        if not self._database.execute(
            f"UPDATE personas SET {assignment} WHERE id = ?", (*values, persona_id)
        ).rowcount:
            raise missing(N_("persona"), persona_id)


_COLUMNS = "id, name, avatar, system_prompt, preset, model_path, deleted"


def _persona(row: tuple[int, str, str, str, str, str, int]) -> Persona:
    return Persona(*row[:-1], deleted=bool(row[-1]))
