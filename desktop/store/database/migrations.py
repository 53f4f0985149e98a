"""The steps that bring a file of conversations up to date, oldest first. A released step never changes.

Messages form a tree: `parent_id` points up; `shown_child` (of a message) or `shown_root` (of a conversation)
points to the variant on display. Deleting sets a flag, so that it can be undone.
"""

from __future__ import annotations

import sqlite3

from desktop.store.database.migrations_composer import draft_openings_and_files, prompts_and_queue
from desktop.store.database.migrations_files import whole_texts
from desktop.store.database.migrations_notebook import conversation_kinds
from desktop.store.database.migrations_participants import speakers_and_roles
from desktop.store.database.migrations_pictures import message_pictures
from desktop.store.database.migrations_privacy import local_only_conversations
from desktop.store.database.migrations_sidebar import folders_personas_drafts, word_search
from desktop.store.database.migrations_tools import tool_calls

__all__ = ["MIGRATIONS"]


def conversations_and_messages(connection: sqlite3.Connection) -> None:
    """The two tables, and indexes for the sidebar and the tree."""
    connection.execute(
        """
        CREATE TABLE conversations (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            title TEXT NOT NULL DEFAULT '',
            auto_title INTEGER NOT NULL DEFAULT 1,
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL,
            deleted INTEGER NOT NULL DEFAULT 0,
            settings TEXT NOT NULL DEFAULT '{}',
            system_prompt TEXT NOT NULL DEFAULT '',
            model_path TEXT NOT NULL DEFAULT '',
            shown_root INTEGER
        )
        """
    )
    connection.execute(
        """
        CREATE TABLE messages (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            conversation_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
            parent_id INTEGER REFERENCES messages (id) ON DELETE CASCADE,
            role TEXT NOT NULL,
            text TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('complete', 'running', 'stopped', 'failed')),
            created_at REAL NOT NULL,
            stats TEXT NOT NULL DEFAULT '{}',
            deleted INTEGER NOT NULL DEFAULT 0,
            shown_child INTEGER
        )
        """
    )
    # a covering index: the sidebar is read without touching the rows
    connection.execute(
        "CREATE INDEX conversations_recent ON conversations (deleted, updated_at DESC, id DESC, title)"
    )
    connection.execute("CREATE INDEX messages_conversation ON messages (conversation_id, parent_id)")
    connection.execute("CREATE INDEX messages_parent ON messages (parent_id)")
    connection.execute("CREATE INDEX messages_running ON messages (state) WHERE state = 'running'")


def full_text_search(connection: sqlite3.Connection) -> None:
    """A trigram index of message texts, which finds substrings in every script.

    A running reply is not indexed: its text is rewritten five times a second, and indexing it each time would
    cost more than writing it. The change of state at its end adds it. Source:
    https://www.sqlite.org/fts5.html
    """
    connection.execute(
        "CREATE VIRTUAL TABLE message_search USING fts5 (text, content='messages', content_rowid='id', "
        "tokenize='trigram')"
    )
    connection.execute(
        """
        CREATE TRIGGER message_search_insert AFTER INSERT ON messages WHEN new.state <> 'running' BEGIN
            INSERT INTO message_search (rowid, text) VALUES (new.id, new.text);
        END
        """
    )
    connection.execute(
        """
        CREATE TRIGGER message_search_delete AFTER DELETE ON messages WHEN old.state <> 'running' BEGIN
            INSERT INTO message_search (message_search, rowid, text) VALUES ('delete', old.id, old.text);
        END
        """
    )
    connection.execute(
        """
        CREATE TRIGGER message_search_update AFTER UPDATE OF text, state ON messages
        WHEN old.text IS NOT new.text OR old.state <> new.state BEGIN
            INSERT INTO message_search (message_search, rowid, text)
                SELECT 'delete', old.id, old.text WHERE old.state <> 'running';
            INSERT INTO message_search (rowid, text) SELECT new.id, new.text WHERE new.state <> 'running';
        END
        """
    )
    connection.execute(
        "INSERT INTO message_search (rowid, text) SELECT id, text FROM messages WHERE state <> 'running'"
    )


def message_tokens(connection: sqlite3.Connection) -> None:
    """The packed tokens of replies (`token_trace.py`), in a table of their own, apart from paths."""
    connection.execute(
        "CREATE TABLE message_tokens (message_id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE "
        "CASCADE, data BLOB NOT NULL)"
    )


def imported_conversations(connection: sqlite3.Connection) -> None:
    """Where imported conversations and messages came from, to recognise them later, and what their text
    cannot show.

    A conversation in our own JSON is also recognised by its creation time, to the microsecond: hence that
    index.
    """
    connection.execute(
        """
        CREATE TABLE imports (
            source TEXT NOT NULL,
            key TEXT NOT NULL,
            conversation_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
            imported_at REAL NOT NULL,
            PRIMARY KEY (source, key)
        ) WITHOUT ROWID
        """
    )
    connection.execute("CREATE INDEX imports_conversation ON imports (conversation_id)")
    connection.execute(
        """
        CREATE TABLE imported_messages (
            message_id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
            key TEXT NOT NULL,
            raw BLOB
        )
        """
    )
    connection.execute("CREATE INDEX conversations_created ON conversations (created_at)")


def message_origins(connection: sqlite3.Connection) -> None:
    """The provenance of replies, each packed relative to that of `base_id` unless that is 0."""
    connection.execute(
        """
        CREATE TABLE message_origins (
            message_id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
            base_id INTEGER NOT NULL,
            depth INTEGER NOT NULL,
            data BLOB NOT NULL
        )
        """
    )
    connection.execute("CREATE INDEX message_origins_base ON message_origins (base_id) WHERE base_id <> 0")


MIGRATIONS = (
    conversations_and_messages, full_text_search, message_tokens, folders_personas_drafts, word_search,
    imported_conversations, prompts_and_queue, message_origins, speakers_and_roles, draft_openings_and_files,
    conversation_kinds, local_only_conversations, message_pictures, tool_calls,
    whole_texts,
)  # fmt: skip
