"""Who takes part in a conversation: named participants, the user's own names, and who answers when."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from desktop.store.conversations.import_placement import persona_id, persona_of
from desktop.store.conversations.personas import Persona
from desktop.store.database.database import Database
from engine.lazy_dataclass import dataclass

__all__ = [
    "LONGEST_NAME",
    "MOST_AUTOMATIC",
    "MOST_PARTICIPANTS",
    "PLAIN",
    "TURNS",
    "UNNAMED",
    "Author",
    "Cast",
    "Participant",
    "name_of",
    "portable",
    "settled",
]  # fmt: skip

TURNS = ("hand", "turn", "named")
"""Who answers: the one the user chooses, each in turn, or whoever was named last."""
MOST_AUTOMATIC = 50
MOST_PARTICIPANTS = 16
LONGEST_NAME = 60


class Author(NamedTuple):
    """Who wrote a message: the name at the time (empty for the plain model or user) and the persona's id, or
    0.
    """

    name: str = ""
    persona: int = 0


UNNAMED: Author = Author()
"""The plain model, or the user without a name."""


@dataclass(frozen=True, slots=True)
class Participant:
    """Someone who can be made to answer; `description` tells the model who that is.

    `persona` is the persona's id, or 0.
    """

    name: str
    description: str = ""
    persona: int = 0


@dataclass(frozen=True, slots=True)
class Cast:
    """The participants of one conversation; none in a plain chat.

    `own` are the user's names, of which `writing_as` is in use (or the first, if it is not among them).
    `turn` is one of `TURNS`. After the first reply, `automatic` more participants answer before it is the
    user's turn.
    """

    participants: tuple[Participant, ...] = ()
    own: tuple[str, ...] = ()
    turn: str = "turn"
    automatic: int = 0
    writing_as: str = ""

    @property
    def user(self) -> str:
        """The name the user writes as; empty for none."""
        return self.writing_as if self.writing_as in self.own else self.own[0] if self.own else ""

    def text(self) -> str:
        """As JSON; empty for a plain chat."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False) if self != Cast() else ""

    @classmethod
    def read(cls, text: str) -> Cast:
        """Read what `text` returned; unusable parts are left out."""
        try:
            return cls.of(json.loads(text)) if text else cls()
        except (ValueError, RecursionError):
            return cls()

    @classmethod
    def of(cls, value: Any) -> Cast:
        """Build from a JSON object with any content."""
        given = value if isinstance(value, Mapping) else {}
        found: dict[str, Participant] = {}
        for entry in _items(given.get("participants")):
            about = entry if isinstance(entry, Mapping) else {}
            name, number = name_of(about.get("name")), about.get("persona")
            persona = (
                number
                if isinstance(number, int) and not isinstance(number, bool) and 0 < number < 1 << 62
                else 0
            )
            if name and name.casefold() not in found and len(found) < MOST_PARTICIPANTS:
                found[name.casefold()] = Participant(name, _text(about.get("description")), persona)
        own = tuple(
            dict.fromkeys(
                name
                for name in map(name_of, _items(given.get("own")))
                if name and name.casefold() not in found
            )
        )
        turn, count = given.get("turn"), given.get("automatic")
        automatic = (
            min(max(count, 0), MOST_AUTOMATIC)
            if isinstance(count, int) and not isinstance(count, bool)
            else 0
        )
        writing_as = name_of(given.get("writing_as"))
        return cls(tuple(found.values()), own[:MOST_PARTICIPANTS],
            turn if isinstance(turn, str) and turn in TURNS else "turn", automatic,
                   writing_as if writing_as in own else "")  # fmt: skip


PLAIN: Cast = Cast()
"""A chat without named participants."""


def name_of(value: Any) -> str:
    """The value as a name that can precede a colon: one line, no colons, not too long."""
    return " ".join(_text(value).replace(":", " ").split())[:LONGEST_NAME].strip()


def portable(database: Database, cast: Cast) -> dict[str, Any]:
    """The cast for a file that other machines read, with whole personas instead of ids; empty for a plain
    chat.
    """
    if cast == Cast():
        return {}
    made = dataclasses.asdict(cast)
    for entry, participant in zip(made["participants"], cast.participants, strict=True):
        persona = persona_of(database, participant.persona) if participant.persona else None
        names = ("name", "avatar", "system_prompt", "preset", "model_path")
        entry["persona"] = {name: getattr(persona, name) for name in names} if persona is not None else None
    return made


def settled(database: Database, given: Mapping[str, Any]) -> Cast:
    """The cast of such a file in this store; personas are found by name or created. Within a transaction."""
    numbers: list[Any] = []
    for entry in _items(given.get("participants")):
        about = entry if isinstance(entry, Mapping) else {}
        who = about.get("persona")
        persona = None
        if isinstance(who, Mapping) and (name := " ".join(_text(who.get("name")).split())):
            avatar, prompt, preset, model = (
                _text(who.get(field)) for field in ("avatar", "system_prompt", "preset", "model_path")
            )
            persona = Persona(0, name, avatar, prompt, preset, model)
        numbers.append({**about, "persona": persona_id(database, persona) or 0})
    return Cast.of({**given, "participants": numbers})


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _text(value: Any) -> str:
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else ""
