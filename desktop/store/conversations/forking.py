"""A new conversation that continues from the middle of another one."""

from __future__ import annotations

from desktop.store.attachments.whole_texts import WholeTextStore
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.stores import ConversationStores
from desktop.store.database.database import Database
from engine.words import _

__all__ = ["fork"]

_KEPT = "kind, settings, system_prompt, model_path, folder_id, persona_id, inherits_prompt, roles, local_only"
_ENDED = "CASE state WHEN 'running' THEN 'stopped' ELSE state END"
_STATS = """CASE state WHEN 'running' THEN '{"reason": "cancelled"}' ELSE stats END"""


def fork(stores: ConversationStores, message_id: int) -> int:
    """Copy the shown path up to and including a message, with all variants along it; returns the new id.

    Tokens, statistics and dates are copied, and so are settings, system prompt, folder and persona. A running
    reply is copied as last saved, as a stopped one. A fork of a temporary conversation is temporary. Raises
    `StoreError`.
    """
    return _copy(stores.database_of(message_id), stores.of(message_id), message_id)


def _copy(database: Database, store: ConversationStore, message_id: int) -> int:
    source = store.get(store.message(message_id).conversation_id)
    path = [message.id for message in store.path(source.id)]
    path = path[: path.index(message_id) + 1] if message_id in path else _above(store, message_id)
    with database.transaction():
        made = store.create(_("{title} (fork)", title=source.title or _("New chat"))).id
        database.execute(
            f"UPDATE conversations SET ({_KEPT}) = (SELECT {_KEPT} FROM conversations WHERE id = ?) WHERE "
            "id = ?",
            (source.id, made),
        )
        parent: int | None = None
        for number in path:
            shown: int | None = None
            for sibling in store.variants(number):
                copied = _copy_message(database, sibling, made, parent)
                shown = copied if sibling == number else shown
            if parent is None:
                database.execute("UPDATE conversations SET shown_root = ? WHERE id = ?", (shown, made))
            else:
                database.execute("UPDATE messages SET shown_child = ? WHERE id = ?", (shown, parent))
            parent = shown
        WholeTextStore(database).copy_to(database, source.id, made)
    return made


def _above(store: ConversationStore, message_id: int) -> list[int]:
    """The message and its ancestors, topmost first."""
    found: list[int] = []
    number: int | None = message_id
    while number is not None:
        found.append(number)
        number = store.message(number).parent_id
    return found[::-1]


def _copy_message(database: Database, number: int, conversation_id: int, parent: int | None) -> int:
    cursor = database.execute(
        "INSERT INTO messages (conversation_id, parent_id, role, text, state, created_at, stats, speaker, "
        f"speaker_persona, tool_call) SELECT ?, ?, role, text, {_ENDED}, created_at, {_STATS}, speaker, "
        "speaker_persona, tool_call FROM messages WHERE id = ?",
        (conversation_id, parent, number),
    )
    made = int(cursor.lastrowid or 0)
    database.execute(
        "INSERT INTO message_tokens (message_id, data) SELECT ?, data FROM message_tokens WHERE message_id "
        "= ?",
        (made, number),
    )
    return made
