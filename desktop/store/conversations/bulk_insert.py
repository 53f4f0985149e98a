"""Whole conversations into the store and out of it: each appears once complete, and is recognised later.

Works on a `Database` rather than a `ConversationStore`, because opening the latter would stop the reply that
is running in the window.
"""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Iterator
from typing import Any

from desktop.blocks.plain_words import plain_words
from desktop.store.attachments.picture_marks import marks
from desktop.store.attachments.pictures import PictureStore, StoredPicture
from desktop.store.attachments.whole_texts import WholeTextStore, packed
from desktop.store.conversations.import_placement import (
    folder_contents,
    folder_of,
    folder_path,
    persona_id,
    persona_of,
)
from desktop.store.conversations.participants import Cast, portable, settled
from desktop.store.conversations.records import NOTEBOOK, STATES, auto_title
from desktop.store.conversations.tool_calls import read_call
from desktop.store.conversations.trash import delete_for_good
from desktop.store.database.chunked_writes import ChunkedWrites
from desktop.store.database.database import Database
from desktop.store.database.errors import missing
from desktop.store.transfer.records import ConversationRecord, Imported, MessageRecord
from engine.words import N_

__all__ = ["OWN", "RecordWriter", "chain_key", "conversation_ids", "discard_unfinished", "read_whole"]

OWN = "inglenook"
"""The source of conversations created here."""
_MOST_RAW_BYTES = 256 << 20
_UNFINISHED = 3
"""The value of `deleted` while a conversation is being written: no list shows it and no search finds it."""


def chain_key(parent: str | None, *parts: object) -> str:
    """A key for a message whose file has none: a hash of its parent's key and of what never changes."""
    text = "\0".join([parent or "", *map(str, parts)])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class RecordWriter:
    """Writes records. Used by the thread that opened the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, record: ConversationRecord) -> Imported:
        """Write the conversation or, if it is already here, what is new in it and the texts that have changed
        in the file; what was written here stays.

        Writes in steps of a few milliseconds, between which the window can write; a new conversation appears
        only after the last one. Parents come before their children in `record`; a message under an unknown
        parent goes to the top. Raises `StoreError`.
        """
        now = time.time()
        found = self._find(record)
        if found is None:
            with ChunkedWrites(self._database) as writes:
                number, title = self._create(record, now)
                added = self._add(number, record, {}, now, writes)
                self._database.execute(
                    "UPDATE conversations SET deleted = ? WHERE id = ?", (int(record.deleted), number)
                )
            return Imported(number, title, record.source, "new", added)
        number, title, deleted = found
        if deleted and not record.deleted:
            return Imported(number, title, record.source, "deleted", 0)
        keys = self._keys(number)
        changed = self._changed(number, record, keys)
        if not changed and all(message.key in keys for message in record.messages):
            return Imported(number, title, record.source, "known", 0)
        with ChunkedWrites(self._database) as writes:
            self._change(changed, record, writes)
            added = len(changed) + self._add(number, record, keys, now, writes)
            latest = self._latest(record, now)
            self._database.execute(
                "UPDATE conversations SET updated_at = max(updated_at, ?) WHERE id = ?", (latest, number)
            )
        return Imported(number, title, record.source, "extended", added)

    def _find(self, record: ConversationRecord) -> tuple[int, str, bool] | None:
        row = self._database.execute(
            "SELECT id, title, deleted FROM imports JOIN conversations ON id = conversation_id "
            "WHERE source = ? AND key = ? AND deleted < 2",
            (record.source, record.key),
        ).fetchone()
        if row is None and record.source == OWN:  # created here, so no row in `imports`
            row = next(
                (
                    row
                    for row in self._database.execute(
                        "SELECT id, title, deleted FROM conversations WHERE created_at = ? AND deleted < 2 "
                        "AND NOT EXISTS (SELECT 1 FROM imports WHERE conversation_id = id)",
                        (record.created_at,),
                    ).fetchall()
                    if record.created_at is not None
                    and _own_key(int(row[0]), record.created_at) == record.key
                ),
                None,
            )
        return (int(row[0]), str(row[1]), bool(row[2])) if row is not None else None

    def _create(self, record: ConversationRecord, now: float) -> tuple[int, str]:
        first = next(
            (
                message.text
                for message in record.messages
                if message.role == "user" or record.kind == NOTEBOOK
            ),
            "",
        )
        given = " ".join(record.title.split())
        if record.source != OWN:  # models write Markdown into the titles of other programs
            given = plain_words(given)
        title = record.title if record.auto_title else given or auto_title(first)
        created = record.created_at if record.created_at is not None else _earliest(record, now)
        cursor = self._database.execute(
            "INSERT INTO conversations (title, auto_title, created_at, updated_at, deleted, settings, "
            "system_prompt, model_path, folder_id, pinned, persona_id, inherits_prompt, deleted_at, roles, "
            "kind, local_only) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                title, record.auto_title or not record.title.strip(), created, self._latest(record, now),
                _UNFINISHED,
                json.dumps(dict(record.settings)), record.system_prompt, record.model_path,
                folder_of(self._database, record.folder, record.folder_contents),
                record.pinned, persona_id(self._database, record.persona), record.inherits_prompt,
                (record.deleted_at if record.deleted_at is not None else now) if record.deleted else None,
                settled(self._database, record.cast).text(), record.kind, record.local_only,
            ),
        )  # fmt: skip
        number = int(cursor.lastrowid or 0)
        self._database.execute(
            "INSERT OR REPLACE INTO imports VALUES (?, ?, ?, ?)", (record.source, record.key, number, now)
        )
        return number, title

    def _latest(self, record: ConversationRecord, now: float) -> float:
        if record.updated_at is not None:
            return record.updated_at
        times = [message.created_at for message in record.messages if message.created_at is not None]
        return max(times) if times else record.created_at if record.created_at is not None else now

    def _add(
        self, number: int, record: ConversationRecord, ids: dict[str, int], now: float, writes: ChunkedWrites
    ) -> int:
        """Insert the messages whose key is not in `ids`, and show what the record shows; how many were
        new.
        """
        fallback = record.created_at if record.created_at is not None else _earliest(record, now)
        times: dict[str, float] = {}
        new: set[str] = set()
        for message in record.messages:
            inherited = times.get(message.parent or "", fallback)
            times[message.key] = message.created_at if message.created_at is not None else inherited
            if message.key not in ids:
                self._put_pictures(message, record, writes)
                ids[message.key] = self._insert(
                    number, message, ids.get(message.parent or ""), times[message.key]
                )
                new.add(message.key)
                writes.pause()
        for name, whole in record.whole_texts:
            WholeTextStore(self._database).put(number, [packed(name, whole)])
            writes.pause()
        for message in record.messages:
            if message.shown_child in ids and (message.shown_child in new or message.key in new):
                self._database.execute(
                    "UPDATE messages SET shown_child = ? WHERE id = ?",
                    (ids[message.shown_child], ids[message.key]),
                )
                writes.pause()
        if record.shown_root in new:
            self._database.execute(
                "UPDATE conversations SET shown_root = ? WHERE id = ?", (ids[record.shown_root], number)
            )
        return len(new)

    def _changed(
        self, number: int, record: ConversationRecord, ids: dict[str, int]
    ) -> dict[int, MessageRecord]:
        """The messages, by id, whose texts in the record take the place of those here."""
        if record.kind == NOTEBOOK:  # its document is written here, too
            return {}
        rows = self._database.execute(
            "SELECT id, text, stats, data IS NOT NULL FROM messages "
            "JOIN imported_messages ON imported_messages.message_id = id "
            "LEFT JOIN message_tokens ON message_tokens.message_id = id "
            "WHERE conversation_id = ? AND state != 'running'",
            (number,),
        ).fetchall()
        here = {int(row[0]): (str(row[1]), bool(row[3]) or "stats" in json.loads(row[2])) for row in rows}
        known = {ids[message.key]: message for message in record.messages if message.key in ids}
        return {id: known[id] for id in known.keys() & here.keys() if _replaces(known[id].text, *here[id])}

    def _change(
        self, changed: dict[int, MessageRecord], record: ConversationRecord, writes: ChunkedWrites
    ) -> None:
        for message_id, message in changed.items():
            self._put_pictures(message, record, writes)
            self._database.execute(
                "UPDATE messages SET text = ?, state = ?, stats = ? WHERE id = ?",
                (message.text, _state(message), json.dumps(dict(message.stats)), message_id),
            )
            self._database.execute(
                "UPDATE imported_messages SET raw = ? WHERE message_id = ?",
                (_packed(message.raw), message_id),
            )
            self._database.execute("DELETE FROM message_tokens WHERE message_id = ?", (message_id,))
            self._put_tokens(message_id, message)
            writes.pause()

    def _put_pictures(
        self, message: MessageRecord, record: ConversationRecord, writes: ChunkedWrites
    ) -> None:
        for mark in marks(message.text):
            if mark.key in record.pictures:
                PictureStore(self._database).put(record.pictures[mark.key])
                writes.pause()

    def _put_tokens(self, message_id: int, message: MessageRecord) -> None:
        if message.tokens:
            self._database.execute("INSERT INTO message_tokens VALUES (?, ?)", (message_id, message.tokens))

    def _insert(self, number: int, message: MessageRecord, parent: int | None, created: float) -> int:
        cursor = self._database.execute(
            "INSERT INTO messages (conversation_id, parent_id, role, text, state, created_at, stats, "
            "deleted, speaker, speaker_persona, tool_call) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                number,
                parent,
                message.role,
                message.text,
                _state(message),
                created,
                json.dumps(dict(message.stats)),
                int(message.deleted),
                message.author,
                self._persona(message),
                message.call.text() if message.call is not None else "",
            ),
        )
        message_id = int(cursor.lastrowid or 0)
        self._database.execute(
            "INSERT INTO imported_messages VALUES (?, ?, ?)", (message_id, message.key, _packed(message.raw))
        )
        self._put_tokens(message_id, message)
        return message_id

    def _persona(self, message: MessageRecord) -> int:
        """The id of the persona that a reply is by, found by name (ids differ between stores); else 0."""
        if message.role != "assistant" or not message.author:
            return 0
        row = self._database.execute(
            "SELECT id FROM personas WHERE name = ? AND NOT deleted ORDER BY id", (message.author,)
        ).fetchone()
        return int(row[0]) if row is not None else 0

    def _keys(self, number: int) -> dict[str, int]:
        return {key: message_id for message_id, key in _message_keys(self._database, number).items()}


def _replaces(text: str, here: str, is_written_here: bool) -> bool:
    """Whether a text of a file takes the place of the one `here`: where it goes on with it, and where it was
    changed in the file. A reply that was continued here is never lost.
    """
    if text == here:
        return False
    return text.startswith(here) or not (is_written_here or here.startswith(text))


def _state(message: MessageRecord) -> str:
    return message.state if message.state in STATES and message.state != "running" else "stopped"


def _packed(raw: Any) -> bytes | None:
    return zlib.compress(json.dumps(raw).encode("ascii")) if raw is not None else None


def discard_unfinished(database: Database) -> Iterator[None]:
    """Delete, in writes, a conversation that a killed import left half written. Not during another import."""
    for (number,) in database.execute(
        "SELECT id FROM conversations WHERE deleted = ?", (_UNFINISHED,)
    ).fetchall():
        yield from delete_for_good(database, int(number))


def conversation_ids(database: Database, deleted: bool = False) -> tuple[int, ...]:
    """The ids of all present conversations, oldest first; with `deleted`, those in the trash too."""
    rows = database.execute("SELECT id FROM conversations WHERE deleted <= ? ORDER BY id", (int(deleted),))
    return tuple(int(row[0]) for row in rows)


def read_whole(database: Database, conversation_id: int) -> ConversationRecord:
    """One conversation with everything the store has of it, deleted messages included.

    A running reply is returned as last saved, as a stopped one. Raises `StoreError` if the conversation does
    not exist.
    """
    head = database.execute(
        "SELECT title, auto_title, created_at, updated_at, deleted, settings, system_prompt, model_path, "
        "shown_root, folder_id, pinned, persona_id, inherits_prompt, deleted_at, roles, kind, local_only "
        "FROM conversations WHERE id = ?",
        (conversation_id,),
    ).fetchone()
    if head is None:
        raise missing(N_("chat"), conversation_id)
    keys = _message_keys(database, conversation_id)
    messages = tuple(_record(row, keys) for row in database.execute(
        "SELECT id, parent_id, role, text, state, created_at, stats, deleted, shown_child, data, raw, "
        "speaker, tool_call FROM messages LEFT JOIN message_tokens ON message_tokens.message_id = id "
        "LEFT JOIN imported_messages ON imported_messages.message_id = id WHERE conversation_id = ? "
        "ORDER BY id",
        (conversation_id,),
    ))  # fmt: skip
    origin = database.execute(
        "SELECT source, key FROM imports WHERE conversation_id = ? LIMIT 1", (conversation_id,)
    ).fetchone()
    source, key = origin if origin is not None else (OWN, _own_key(conversation_id, head[2]))
    (
        title,
        is_auto,
        created,
        updated,
        deleted,
        settings,
        system_prompt,
        model_path,
        shown_root,
        folder,
        pinned,
        persona,
    ) = head[:12]
    return ConversationRecord(
        source, key, title, created, updated, messages, keys.get(shown_root), system_prompt,
        json.loads(settings), model_path, bool(is_auto), bool(deleted), folder_path(database, folder),
        bool(pinned), persona_of(database, persona), bool(head[12]), head[13],
        portable(database, Cast.read(head[14])), head[15], local_only=bool(head[16]),
        pictures=_pictures(database, messages), folder_contents=folder_contents(database, folder),
        whole_texts=tuple((each.name, each.text) for each in WholeTextStore(database).of(conversation_id)),
    )  # fmt: skip


def _pictures(database: Database, messages: tuple[MessageRecord, ...]) -> dict[str, StoredPicture]:
    """The pictures of the messages, by their keys."""
    store = PictureStore(database)
    keys = dict.fromkeys(mark.key for message in messages for mark in marks(message.text))
    return {key: picture for key in keys if (picture := store.get(key)) is not None}


def _record(row: tuple[Any, ...], keys: dict[int, str]) -> MessageRecord:
    number, parent, role, text, state, created, stats, deleted, shown, tokens, raw, author, call = row
    return MessageRecord(
        keys[number], keys.get(parent), role, text, created, "stopped" if state == "running" else state,
        json.loads(stats), keys.get(shown), bool(deleted), bytes(tokens or b""), _unpacked(raw),
        author=author, call=read_call(call),
    )  # fmt: skip


def _unpacked(raw: bytes | None) -> Any:
    return json.loads(zlib.decompressobj().decompress(raw, _MOST_RAW_BYTES)) if raw is not None else None


def _message_keys(database: Database, number: int) -> dict[int, str]:
    """The key of every message: the imported one, or the one derived for a message created here."""
    rows = database.execute(
        "SELECT id, created_at, key FROM messages LEFT JOIN imported_messages ON message_id = id WHERE "
        "conversation_id = ? ORDER BY id",
        (number,),
    )
    return {
        int(row[0]): str(row[2]) if row[2] is not None else _own_key(int(row[0]), float(row[1]))
        for row in rows
    }


def _own_key(number: int, created: float) -> str:
    """The key of something created here: ids are never reused in a store, and the time tells stores apart."""
    return chain_key(None, OWN, number, repr(float(created)))


def _earliest(record: ConversationRecord, now: float) -> float:
    return min(
        (message.created_at for message in record.messages if message.created_at is not None), default=now
    )
