"""A full disk: a typed error, nothing half-written, and the same call works once there is room."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.drafts import DraftStore
from desktop.store.conversations.stores import ConversationStores
from desktop.store.database.database import Database, DiskFull
from desktop.store.database.open import open_conversations

LARGE = "some words of a long reply " * 4000


def full(database: Database) -> None:
    """Leave the file no room to grow."""
    (count,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {count}")


def room(database: Database) -> None:
    database.execute("PRAGMA max_page_count = 1000000")


def state(database: Database) -> list[object]:
    tables = ("conversations", "messages", "message_tokens", "drafts", "search_state", "message_words_data")
    return [database.execute(f"SELECT * FROM {table}").fetchall() for table in tables]


def test_every_write_is_complete_or_not_done(store: ConversationStore, database: Database) -> None:
    talk = store.create("Talk").id
    question = store.add_message(talk, None, "user", "question")
    reply = store.add_message(talk, question.id, "assistant", "", "running")
    drafts = DraftStore(database)
    writes: list[Callable[[], object]] = [
        lambda: store.checkpoint(reply.id, LARGE),
        lambda: store.finish(reply.id, LARGE, "complete", {"count": 9}, b"\x01" * 90_000),
        lambda: store.add_message(talk, reply.id, "user", LARGE),
        lambda: store.edit_message(question.id, LARGE),
        lambda: store.set_system_prompt(talk, LARGE),
        lambda: store.create(LARGE),
        lambda: drafts.put(talk, LARGE),
        lambda: store.set_text(reply.id, LARGE * 20),
    ]
    for write in writes:
        full(database)
        before = state(database)
        with pytest.raises(DiskFull, match="and they will be saved"):
            write()
        assert state(database) == before
        assert store.message(question.id).text == "question"  # reading still works
        room(database)
        write()
        assert state(database) != before
    assert store.message(reply.id).text == LARGE * 20
    assert len(store.tokens(reply.id)) == 90_000
    database.execute("INSERT INTO message_words (message_words) VALUES ('integrity-check')")
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_keeping_a_temporary_conversation_can_be_tried_again(database: Database) -> None:
    stores = ConversationStores(database)
    talk = stores.temporary.create().id
    for number in range(20):
        stores.temporary.add_message(talk, None, "user", f"{number} {LARGE}")
    full(database)
    with pytest.raises(DiskFull):
        stores.keep(talk)
    assert stores.kept.list() == ()
    assert len(stores.temporary.list()) == 1
    room(database)
    assert len(stores.kept.variants(stores.kept.path(stores.keep(talk).id)[0].id)) == 20
    stores.close()


CHILD = """
import resource, signal, sys
from pathlib import Path
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import StoreError
from desktop.store.database.open import open_conversations

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
database = open_conversations(path)
store = ConversationStore(database)
talk = store.create("Talk").id
written, failed = 0, 0
resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, resource.RLIM_INFINITY))
for number in range(60):
    try:
        store.add_message(talk, None, "user", f"message {number} " + "word " * 4000)
        written += 1
    except StoreError:
        failed += 1
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.add_message(talk, None, "user", "after")
print(written, failed, flush=True)
database.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are POSIX's")
def test_the_system_refuses_to_let_the_file_grow(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    ran = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    written, failed = map(int, ran.stdout.split())
    assert written > 3
    assert failed > 3
    database = open_conversations(path)
    assert database.notices == ()
    assert database.execute("SELECT count(*) FROM messages").fetchone() == (written + 1,)
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert len(ConversationStore(database).search("message", 100)) == written
    database.close()
