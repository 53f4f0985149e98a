"""Messages that wait until the running reply is complete: they survive the program's end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from desktop.store.conversations.stores import FIRST_TEMPORARY, ConversationStores
from desktop.store.database.database import StoreError

__all__ = ["QueueStore", "Queued"]


@dataclass(frozen=True, slots=True)
class Queued:
    """One message; `opening` is how the reply to it is to begin."""

    id: int
    conversation_id: int
    text: str
    opening: str = ""


class QueueStore:
    """Reads and writes the messages that wait; those of temporary conversations are kept in memory only.

    Raises `StoreError`.
    """

    def __init__(self, stores: ConversationStores) -> None:
        self._kept = stores.database
        self._memory: list[Queued] = []
        self._next = FIRST_TEMPORARY

    def all(self) -> tuple[Queued, ...]:
        """All of them in the order they came, those of conversations in the trash left out."""
        rows = self._kept.execute(
            "SELECT queued_messages.id, conversation_id, text, opening FROM queued_messages JOIN "
            "conversations ON conversations.id = conversation_id WHERE NOT deleted ORDER BY "
            "queued_messages.id"
        )
        return (*(Queued(*row) for row in rows), *self._memory)

    def add(self, conversation_id: int, text: str, opening: str) -> int:
        """Put a message behind the others; returns its number."""
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
        """Let the messages of one chat wait in another one.

        What cannot be written waits there in memory. Raises `StoreError`.
        """
        trouble: StoreError | None = None
        everything = self._memory if before >= FIRST_TEMPORARY else self.all()
        for waiting in [each for each in everything if each.conversation_id == before]:
            try:
                self.add(now, waiting.text, waiting.opening)
            except StoreError as error:
                trouble = error
                self._next += 1
                self._memory.append(replace(waiting, id=self._next, conversation_id=now))
            self.remove(waiting.id)
        if trouble is not None:
            raise trouble

    def remove(self, number: int) -> None:
        """Forget one; nothing happens when it is not there."""
        self._memory = [waiting for waiting in self._memory if waiting.id != number]
        if number < FIRST_TEMPORARY:
            self._kept.execute("DELETE FROM queued_messages WHERE id = ?", (number,))
