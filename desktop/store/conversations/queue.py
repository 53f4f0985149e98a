"""Messages that wait for the running reply to end; they survive the end of the program."""

from __future__ import annotations

from typing import NamedTuple

from desktop.store.conversations.stores import FIRST_TEMPORARY, ConversationStores
from desktop.store.database.database import StoreError

__all__ = ["QueueStore", "Queued"]


class Queued(NamedTuple):
    """One message; `opening` is how the reply to it should begin."""

    id: int
    conversation_id: int
    text: str
    opening: str = ""


class QueueStore:
    """Reads and writes queued messages; those of temporary conversations stay in memory.

    Methods raise `StoreError`.
    """

    def __init__(self, stores: ConversationStores) -> None:
        self._kept = stores.database
        self._memory: list[Queued] = []
        self._next = FIRST_TEMPORARY

    def all(self) -> tuple[Queued, ...]:
        """All of them in order, except those of conversations in the trash."""
        rows = self._kept.execute(
            "SELECT queued_messages.id, conversation_id, text, opening FROM queued_messages JOIN "
            "conversations ON conversations.id = conversation_id WHERE NOT deleted ORDER BY "
            "queued_messages.id"
        )
        return (*(Queued(*row) for row in rows), *self._memory)

    def add(self, conversation_id: int, text: str, opening: str) -> int:
        """Append a message; returns its id."""
        if conversation_id >= FIRST_TEMPORARY:
            self._next += 1
            self._memory.append(Queued(self._next, conversation_id, text, opening))
            return self._next
        cursor = self._kept.execute(
            "INSERT INTO queued_messages (conversation_id, text, opening) VALUES (?, ?, ?)",
            (conversation_id, text, opening),
        )
        return int(cursor.lastrowid or 0)

    def move(self, before: int, now: int) -> None:
        """Move the messages of one chat to another.

        A message that cannot be written stays in memory in the new chat. Raises `StoreError` in that case.
        """
        trouble: StoreError | None = None
        everything = self._memory if before >= FIRST_TEMPORARY else self.all()
        for waiting in [each for each in everything if each.conversation_id == before]:
            try:
                self.add(now, waiting.text, waiting.opening)
            except StoreError as error:
                trouble = error
                self._next += 1
                self._memory.append(waiting._replace(id=self._next, conversation_id=now))
            self.remove(waiting.id)
        if trouble is not None:
            raise trouble

    def remove(self, number: int) -> None:
        """Remove one, if it is there."""
        self._memory = [waiting for waiting in self._memory if waiting.id != number]
        if number < FIRST_TEMPORARY:
            self._kept.execute("DELETE FROM queued_messages WHERE id = ?", (number,))
