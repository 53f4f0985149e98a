"""The messages of a conversation that are in versions which are not shown."""

from __future__ import annotations

import json
from typing import NamedTuple

from desktop.store.conversations.messages import read_tree
from desktop.store.database.database import Database

__all__ = ["HiddenText", "hidden_texts"]


class HiddenText(NamedTuple):
    """A message that is not shown."""

    message: int
    role: str
    text: str


def hidden_texts(database: Database, conversation_id: int) -> tuple[HiddenText, ...]:
    """The present messages of a conversation that are not on its shown path, oldest first. Raises
    `StoreError` where the database cannot be read.
    """
    tree = read_tree(database, conversation_id)
    shown = set(tree.path())
    ids = [number for number in tree.nodes if number not in shown and tree.reachable(number)]
    if not ids:
        return ()
    rows = database.execute(
        "SELECT id, role, text FROM messages WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (json.dumps(ids),),
    )
    return tuple(HiddenText(*row) for row in rows.fetchall())
