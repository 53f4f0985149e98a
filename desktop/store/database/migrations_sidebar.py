"""The migration steps of the sidebar: folders, pins, trash, personas and drafts; then the word index.

Both only add tables and columns with constant defaults, so they take milliseconds on a file of any size. What
takes long (indexing a million old messages, removing the old index) is done later in bounded steps
(`indexing.py`).
"""

from __future__ import annotations

import sqlite3

__all__ = ["folders_personas_drafts", "word_search"]

_TABLES = (
    """
    CREATE TABLE folders (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        parent_id INTEGER REFERENCES folders (id),
        name TEXT NOT NULL,
        position INTEGER NOT NULL DEFAULT 0,
        settings TEXT NOT NULL DEFAULT '{}',
        system_prompt TEXT NOT NULL DEFAULT ''
    )
    """,
    """
    CREATE TABLE personas (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL,
        avatar TEXT NOT NULL DEFAULT '',
        image BLOB NOT NULL DEFAULT x'',
        system_prompt TEXT NOT NULL DEFAULT '',
        preset TEXT NOT NULL DEFAULT '',
        model_path TEXT NOT NULL DEFAULT '',
        deleted INTEGER NOT NULL DEFAULT 0
    )
    """,
    """
    CREATE TABLE drafts (
        conversation_id INTEGER PRIMARY KEY REFERENCES conversations (id) ON DELETE CASCADE,
        text TEXT NOT NULL,
        updated_at REAL NOT NULL
    )
    """,
)
_COLUMNS = (
    "folder_id INTEGER REFERENCES folders (id)",
    "pinned INTEGER NOT NULL DEFAULT 0",
    "deleted_at REAL",
    "persona_id INTEGER REFERENCES personas (id)",
    "inherits_prompt INTEGER NOT NULL DEFAULT 1",
    "holes INTEGER NOT NULL DEFAULT 0",
)


def folders_personas_drafts(connection: sqlite3.Connection) -> None:
    """The folder of a conversation, who answers in it, when it was deleted, and its unsent text.

    `holes` is whether any message of it was ever deleted: only then does a search check the ancestors of a
    hit.
    """
    for table in _TABLES:
        connection.execute(table)
    for column in _COLUMNS:
        connection.execute(f"ALTER TABLE conversations ADD COLUMN {column}")
    connection.execute("UPDATE conversations SET deleted_at = updated_at WHERE deleted")
    hole = "UPDATE conversations SET holes = 1 WHERE id = new.conversation_id AND NOT holes"
    connection.execute(
        f"CREATE TRIGGER messages_hole AFTER UPDATE OF deleted ON messages WHEN new.deleted BEGIN {hole}; END"
    )
    connection.execute(
        f"CREATE TRIGGER messages_hole_insert AFTER INSERT ON messages WHEN new.deleted BEGIN {hole}; END"
    )
    # a covering index: the sidebar and the trash are read without touching the rows
    connection.execute("DROP INDEX conversations_recent")
    connection.execute(
        "CREATE INDEX conversations_listed ON conversations (deleted, updated_at DESC, id DESC, title, "
        "folder_id, pinned, deleted_at)"
    )
    connection.execute(
        "CREATE INDEX conversations_folder ON conversations (folder_id) WHERE folder_id IS NOT NULL"
    )
    connection.execute(
        "CREATE INDEX conversations_persona ON conversations (persona_id) WHERE persona_id IS NOT NULL"
    )
    connection.execute("CREATE INDEX folders_parent ON folders (parent_id, position)")


def word_search(connection: sqlite3.Connection) -> None:
    """An index of folded words (`folding.py`) instead of trigrams: a fourteenth of the size, and hits are
    checked anyway.

    Only ids are stored for a word (`detail=none`, contentless); texts are read from `messages`. All messages
    from `low` on are in the index, except a running reply, which is rewritten five times a second and added
    at its end. `ascii` splits only at the spaces that `search_tokens` inserts. Source:
    https://www.sqlite.org/fts5.html
    """
    for name in ("insert", "delete", "update"):
        connection.execute(f"DROP TRIGGER message_search_{name}")
    connection.execute(
        "CREATE VIRTUAL TABLE message_words USING fts5 (text, content='', tokenize='ascii', detail='none', "
        "columnsize=0)"
    )
    _leave_old_index(connection)
    connection.execute("CREATE TABLE search_state (low INTEGER NOT NULL)")
    connection.execute("INSERT INTO search_state SELECT coalesce(max(id), -1) + 1 FROM messages")
    indexed = "{0}.state <> 'running' AND {0}.id >= (SELECT low FROM search_state)"
    insert = "INSERT INTO message_words (rowid, text) SELECT new.id, search_tokens(new.text)"
    delete = (
        "INSERT INTO message_words (message_words, rowid, text) SELECT 'delete', old.id, "
        "search_tokens(old.text)"
    )
    new, old = indexed.format("new"), indexed.format("old")
    connection.execute(
        f"CREATE TRIGGER message_words_insert AFTER INSERT ON messages WHEN {new} BEGIN {insert}; END"
    )
    connection.execute(
        f"CREATE TRIGGER message_words_delete AFTER DELETE ON messages WHEN {old} BEGIN {delete}; END"
    )
    connection.execute(
        f"""
        CREATE TRIGGER message_words_update AFTER UPDATE OF text, state ON messages
        WHEN old.text IS NOT new.text OR (old.state = 'running') <> (new.state = 'running') BEGIN
            {delete} WHERE {old};
            {insert} WHERE {new};
        END
        """
    )


def _leave_old_index(connection: sqlite3.Connection) -> None:
    """Remove the trigram index from the schema; its tables become ordinary ones, to be emptied in steps.

    If it is empty, or SQLite does not allow its schema to be edited (defensive builds), it is dropped at
    once.
    """
    if connection.execute("SELECT 1 FROM messages").fetchone() is not None:
        connection.execute("PRAGMA writable_schema = ON")
        try:
            connection.execute("DELETE FROM sqlite_master WHERE type = 'table' AND name = 'message_search'")
        except sqlite3.OperationalError:
            connection.execute("DROP TABLE message_search")
        finally:
            connection.execute("PRAGMA writable_schema = RESET")
    else:
        connection.execute("DROP TABLE message_search")
