"""Pictures in the database: as long as anything has them, and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from desktop.store.attachments.message_format import Attachment, auto_source, join, split
from desktop.store.attachments.picture_kinds import HEIC, has_metadata, picture_kind
from desktop.store.attachments.picture_marks import in_words, mark_of, marks, searchable
from desktop.store.attachments.pictures import PictureStore, StoredPicture
from desktop.store.conversations.drafts import DraftStore
from desktop.store.conversations.forking import fork
from desktop.store.conversations.queue import QueueStore
from desktop.store.conversations.stores import ConversationStores
from desktop.store.conversations.trash import empty_trash
from desktop.store.database.database import Database
from desktop.store.database.migrations import MIGRATIONS
from desktop.store.database.migrations_pictures import message_pictures
from desktop.store.database.open import open_conversations
from desktop.store.database.recovery import recover
from desktop.store.search.search import Search

BEACH = StoredPicture("image/jpeg", 640, 480, b"\xff\xd8 beach " * 900)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[ConversationStores]:
    database = open_conversations(tmp_path / "conversations.sqlite3")
    found = ConversationStores(database)
    yield found
    found.close()
    database.close()


def put(database: Database, name: str = "beach.jpg", picture: StoredPicture = BEACH) -> str:
    """Save a picture; returns its mark."""
    key = PictureStore(database).put(picture)
    return mark_of(name, key, picture.width, picture.height).text


def count(database: Database) -> int:
    return int(database.execute("SELECT count(*) FROM pictures").fetchone()[0])


def talk(stores: ConversationStores, text: str) -> tuple[int, int]:
    chat = stores.kept.create("Talk").id
    return chat, stores.kept.add_message(chat, None, "user", text).id


def thrown_away(stores: ConversationStores, chat: int) -> None:
    stores.kept.delete(chat)
    assert list(empty_trash(stores.database))


def test_pictures_and_files_are_read_back_from_a_message() -> None:
    mark = mark_of("beach [1].jpg", "a" * 32, 640, 480)
    files = [Attachment("a.txt", "text"), Attachment(mark.name, "", picture=mark), Attachment("b.txt", "b")]
    message = join(files, "Where?\n![x](picture:b)")
    found, place = split(message)
    assert [file for _, file in found] == files
    assert message[place:] == "Where?\n![x](picture:b)"
    assert in_words(message).split("\n\n")[1] == "[picture: beach (1).jpg]"
    assert auto_source(mark.text) == "beach (1).jpg"
    assert split(f"{mark.text} inline")[0] == ()
    assert len(searchable(message)) == len(message)
    assert "picture" not in searchable(mark.text)


def test_texts_and_broken_files_are_no_clean_pictures() -> None:
    for text in (b"Save as avif", b"Not WEBPWEBP", b"BMW builds cars", b"GIF88a is none", b"", b"\xff\xd8"):
        assert picture_kind(text) == ""
    assert picture_kind(b"RIFF\0\0\0\0WEBP") == "webp"
    assert picture_kind(b"\0\0\0\x18ftypavif") == HEIC
    for kind, data in (("gif", b"GIF89a"), ("png", b"\x89PNG\r\n\x1a\n"), ("jpeg", b"\xff\xd8\xff\xd9")):
        assert has_metadata(kind, data)  # nobody knows what it is


def test_a_picture_is_kept_once_and_goes_with_the_last_message_that_has_it(stores) -> None:
    database = stores.database
    first, _ = talk(stores, put(database))
    second, _ = talk(stores, f"{put(database)}\n\nthe same")
    assert count(database) == 1
    assert PictureStore(database).total() == len(BEACH.data)
    thrown_away(stores, first)
    assert count(database) == 1
    thrown_away(stores, second)
    assert count(database) == 0
    assert database.execute("SELECT * FROM message_pictures").fetchall() == []


def test_versions_and_forks_keep_it(stores) -> None:
    database = stores.database
    chat, message = talk(stores, put(database))
    edited = stores.kept.edit_message(message, f"{stores.kept.message(message).text}\n\nBetter")
    forked = fork(stores, edited.id)
    thrown_away(stores, chat)
    assert count(database) == 1
    assert marks(stores.kept.path(forked)[0].text)[0].name == "beach.jpg"
    thrown_away(stores, forked)
    assert count(database) == 0


def test_a_changed_text_lets_it_go(stores) -> None:
    database = stores.database
    _, message = talk(stores, put(database))
    other = put(database, "boat.jpg", BEACH._replace(data=b"boat"))
    database.execute("UPDATE messages SET text = ? WHERE id = ?", (other, message))
    assert database.execute("SELECT data FROM pictures").fetchall() == [(b"boat",)]


def test_drafts_and_queued_messages_keep_it(stores) -> None:
    database = stores.database
    mark = put(database)
    chat, other = talk(stores, mark)[0], talk(stores, "other")[0]
    drafts, queue = DraftStore(database), QueueStore(stores)
    picture = Attachment("beach.jpg", "", picture=marks(mark)[0])
    assert drafts.put_files(other, [picture]) == ()
    thrown_away(stores, chat)
    assert drafts.files(other) == (picture,)
    assert PictureStore(database).sweep() == 0
    number = queue.add(other, mark, "")
    drafts.put_files(other, [])
    assert PictureStore(database).sweep() == 0
    assert count(database) == 1
    queue.remove(number)
    assert PictureStore(database).sweep() == 1
    assert count(database) == 0


def test_a_temporary_chat_keeps_its_pictures_in_memory_until_it_is_kept(stores) -> None:
    memory = stores.database_of(1 << 30)
    chat = stores.temporary.create("").id
    stores.temporary.add_message(chat, None, "user", put(memory))
    other = stores.temporary.create("").id
    stores.temporary.add_message(other, None, "user", put(memory, picture=BEACH._replace(data=b"other")))
    assert (count(memory), count(stores.database)) == (2, 0)
    kept = stores.keep(chat)
    assert (count(memory), count(stores.database)) == (1, 1)
    key = marks(stores.kept.path(kept.id)[0].text)[0].key
    assert PictureStore(stores.database).get(key) == BEACH
    stores.forget(other)
    assert count(memory) == 0


def test_a_search_finds_the_name_and_no_part_of_the_mark(stores) -> None:
    mark = put(stores.database, "summer beach.jpg")
    talk(stores, f"{mark}\n\nWhere was that?")
    search = Search(stores.database)
    (hit,) = search.find("summer that", 5)
    assert hit.snippet == "summer beach.jpg Where was that?"
    for word in ("picture", marks(mark)[0].key[:12], "640x480"):
        assert search.find(word, 5) == ()
        assert [hits for hits in search.scan(word) if hits] == []


def test_a_file_of_an_earlier_version_is_backed_up_and_gets_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "conversations.sqlite3"
    before = Database(path, MIGRATIONS[: MIGRATIONS.index(message_pictures)])
    before.execute("INSERT INTO conversations (created_at, updated_at) VALUES (1, 1)")
    before.execute("INSERT INTO draft_files VALUES (1, 0, 'a.txt', 'text', '')")
    before.close()
    database = open_conversations(path)
    assert DraftStore(database).files(1) == (Attachment("a.txt", "text"),)
    assert put(database)
    database.close()
    assert (tmp_path / "conversations.before-message_pictures.sqlite3").exists()


def test_recovery_saves_pictures_and_what_has_them(stores, tmp_path: Path) -> None:
    mark = put(stores.database)
    talk(stores, mark)
    stores.database.close()
    database = Database(tmp_path / "new.sqlite3")
    found = recover(tmp_path / "conversations.sqlite3", database)
    assert (found.rows["pictures"], found.rows["message_pictures"], found.lost) == (1, 1, ())
    assert PictureStore(database).get(marks(mark)[0].key) == BEACH
    database.close()
