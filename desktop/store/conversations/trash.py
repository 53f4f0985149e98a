"""The trash: conversations are deleted permanently after a while, or when the user empties it, in short
steps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from desktop.store.database.database import Database

__all__ = ["DAY_S", "delete_for_good", "empty_trash"]

DAY_S = 86_400.0
STEP_MESSAGES = 50
"""Messages deleted in one transaction: about 15 ms with their words in the search index. Larger steps are not
quicker as a whole.
"""


def empty_trash(database: Database, older_than_s: float = 0.0) -> Iterator[int]:
    """Permanently delete what has been in the trash for `older_than_s` seconds; yields the count after each
    step.

    Stopped between two steps, it leaves the rest in the trash; the next call finishes a deletion that had
    begun.
    """
    limit = time.time() - older_than_s
    rows = database.execute(
        "SELECT id FROM conversations WHERE deleted = 1 AND coalesce(deleted_at, updated_at) <= ? OR "
        "deleted = 2 ORDER BY id",
        (limit,),
    ).fetchall()
    for count, (conversation_id,) in enumerate(rows):
        for _ in delete_for_good(database, int(conversation_id)):
            yield count
        yield count + 1


def delete_for_good(database: Database, conversation_id: int) -> Iterator[None]:
    """Permanently delete one conversation and its messages in steps, unless it has left the trash.

    From the first step on no list shows it (`deleted` = 2): half a conversation cannot be restored. Replies
    are deleted before what they answer, because SQLite follows a chain of references only 1000 deep.
    """
    begun = database.execute(
        "UPDATE conversations SET deleted = 2 WHERE id = ? AND deleted > 0", (conversation_id,)
    ).rowcount
    while begun:
        with database.transaction():
            deleted = database.execute(
                "DELETE FROM messages WHERE id IN (SELECT id FROM messages WHERE conversation_id = ? ORDER "
                "BY id DESC LIMIT ?)",
                (conversation_id, STEP_MESSAGES),
            ).rowcount
            if not deleted:
                database.execute("DELETE FROM conversations WHERE id = ?", (conversation_id,))
                return
        yield
