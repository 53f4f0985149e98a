"""Reads messages, and the tree that those of one conversation form, from a database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from desktop.store.conversations.participants import Author
from desktop.store.conversations.records import NOTEBOOK, StoredMessage, auto_title
from desktop.store.conversations.tool_calls import read_call
from desktop.store.conversations.tree import Node, Tree
from desktop.store.database.database import Database
from desktop.store.database.errors import missing
from engine.words import N_

__all__ = [
    "first_title",
    "read_ancestry",
    "read_message",
    "read_messages",
    "read_nodes",
    "read_path_to",
    "read_shown_root",
    "read_tree",
    "read_unshown",
]

_COLUMNS = (
    "id, conversation_id, parent_id, role, text, state, created_at, stats, speaker, speaker_persona, "
    "tool_call"
)

_ABOVE = (
    "WITH RECURSIVE above (id, parent) AS (SELECT id, parent_id FROM messages WHERE id = ? UNION ALL "
    "SELECT messages.id, parent_id FROM messages JOIN above ON messages.id = parent)"
)


def read_message(database: Database, message_id: int) -> StoredMessage:
    """One message, deleted or not. Raises `StoreError` for an unknown id."""
    row = database.execute(f"SELECT {_COLUMNS} FROM messages WHERE id = ?", (message_id,)).fetchone()
    if row is None:
        raise missing(N_("message"), message_id)
    siblings = database.execute(
        "SELECT id FROM messages WHERE conversation_id = ? AND parent_id IS ? AND (deleted = 0 OR id = ?) "
        "ORDER BY id",
        (row[1], row[2], message_id),
    )
    return _message(row, tuple(int(found[0]) for found in siblings))


def read_path_to(database: Database, message_id: int) -> tuple[StoredMessage, ...]:
    """The messages that lead to this one, shown or not, deleted or not, first to last; none if it is unknown.

    With as many statements for ten thousand messages as for one.
    """
    ids = read_ancestry(database, message_id)[::-1]
    row = database.execute("SELECT conversation_id FROM messages WHERE id = ?", (message_id,)).fetchone()
    return read_messages(database, ids, read_tree(database, row[0])) if row else ()


def read_ancestry(database: Database, message_id: int) -> tuple[int, ...]:
    """The ids of a message and of all those above it, whether deleted or not, up to the first."""
    return tuple(int(row[0]) for row in database.execute(f"{_ABOVE} SELECT id FROM above", (message_id,)))


def read_unshown(database: Database, message_id: int) -> tuple[tuple[int, int | None], ...]:
    """What has to be chosen so that a message is shown: ids of it and of those above it, with their parents.

    The first of the path, whose parent is None, is always there; of the rest, only what its parent does not
    show yet.
    """
    rows = database.execute(
        f"{_ABOVE} SELECT above.id, parent FROM above LEFT JOIN messages ON messages.id = parent "
        "WHERE parent IS NULL OR shown_child IS NOT above.id",
        (message_id,),
    )
    return tuple(rows.fetchall())


def read_tree(database: Database, conversation_id: int) -> Tree:
    """The places of a conversation's present messages."""
    nodes = read_nodes(database, conversation_id)
    return Tree.build(nodes, read_shown_root(database, conversation_id))


def read_shown_root(database: Database, conversation_id: int) -> int | None:
    """The first message of the shown path, if one was chosen."""
    row = database.execute("SELECT shown_root FROM conversations WHERE id = ?", (conversation_id,)).fetchone()
    return row[0] if row else None


def read_nodes(
    database: Database, conversation_id: int, among: Sequence[int] | None = None
) -> tuple[Node, ...]:
    """The places of a conversation's present messages, or of those `among` them, in the order of their
    ids.
    """
    only = "" if among is None else " AND id IN (SELECT value FROM json_each(?))"
    values = (conversation_id,) if among is None else (conversation_id, json.dumps(list(among)))
    rows = database.execute(
        "SELECT id, parent_id, shown_child FROM messages WHERE conversation_id = ? AND deleted = 0"
        f"{only} ORDER BY id",
        values,
    ).fetchall()
    return tuple(map(Node._make, rows))


def first_title(database: Database, conversation_id: int) -> str:
    """The automatic title of a conversation; empty if there is no text to name it after."""
    row = database.execute(
        "SELECT text FROM messages JOIN conversations ON conversations.id = conversation_id WHERE "
        "conversation_id = ? AND (role = 'user' OR kind = ?) AND messages.deleted = 0 ORDER BY messages.id "
        "LIMIT 1",
        (conversation_id, NOTEBOOK),
    ).fetchone()
    return auto_title(str(row[0])) if row else ""


def read_messages(database: Database, ids: Sequence[int], tree: Tree) -> tuple[StoredMessage, ...]:
    """Messages of the conversation whose tree is `tree`; a deleted one counts among its own variants. None
    takes no statement. Raises `StoreError` where another process has removed one since the tree was read.
    """
    if not ids:
        return ()
    rows = database.execute(
        f"SELECT {_COLUMNS} FROM messages WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(ids),)
    ).fetchall()
    by_id = {int(row[0]): row for row in rows}
    found: list[StoredMessage] = []
    for number in ids:
        if (row := by_id.get(number)) is None:
            raise missing(N_("message"), number)
        siblings = tree.children.get(row[2], [])
        present = row[0] in tree.nodes
        found.append(_message(row, tuple(siblings if present else sorted((*siblings, row[0])))))
    return tuple(found)


def _message(row: tuple[Any, ...], variants: tuple[int, ...]) -> StoredMessage:
    number, conversation, parent, role, text, state, created, stats, author, persona, call = row
    place = variants.index(number)
    return StoredMessage(
        number, conversation, parent, role, text, state, created,
        json.loads(stats) if stats != "{}" else {}, place, len(variants),
        Author(author, persona), read_call(call),
    )  # fmt: skip
