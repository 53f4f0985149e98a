"""Pictures in exports and imports."""

from __future__ import annotations

import base64
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from desktop.services.composer.pictures import encoded
from desktop.store.attachments.picture_marks import mark_of, marks
from desktop.store.attachments.pictures import PictureStore, StoredPicture
from desktop.store.conversations.bulk_insert import read_whole
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database
from desktop.store.database.open import open_conversations
from desktop.store.transfer.exporters.html import html_page
from desktop.store.transfer.exporters.markdown import markdown
from desktop.store.transfer.exporters.own import own_json
from desktop.store.transfer.exporters.print import print_pieces
from desktop.store.transfer.importers.pictures import PictureImporter
from desktop.store.transfer.records import ConversationRecord, LeftOut, MessageRecord
from tests.desktop.picture_files import PLACE, drawn, jpeg_with_place, saved
from tests.desktop.store.transfer.importers import files
from tests.desktop.store.transfer.importers.files import imported, node, run, written


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = open_conversations(tmp_path / "conversations.sqlite3")
    yield found
    found.close()


def put(database: Database) -> tuple[StoredPicture, str]:
    picture = encoded(saved(drawn()), "boat.png")
    key = PictureStore(database).put(picture)
    return picture, mark_of("boat.png", key, picture.width, picture.height).text


def talk(database: Database) -> tuple[StoredPicture, int]:
    picture, mark = put(database)
    store = ConversationStore(database)
    chat = store.create("Boats").id
    asked = store.add_message(chat, None, "user", f"{mark}\n\nWhat is <this>?")
    store.add_message(chat, asked.id, "assistant", f"Like this:\n\n{mark}\n\nA *boat*.")
    return picture, chat


def url(picture: StoredPicture) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture.data).decode()}"


def test_every_export_has_the_pictures(database: Database) -> None:
    picture, chat = talk(database)
    record = read_whole(database, chat)
    page = "".join(html_page([record]))
    assert re.findall(r'<img src="([^"]+)" alt="boat.png"', page) == [url(picture)] * 2
    assert "What is &lt;this&gt;?" in page
    text = "".join(markdown([record]))
    assert text.count(f"![boat.png]({url(picture)})") == 2
    assert "What is <this>?" in text
    printed = [piece.html for piece in print_pieces(record)]
    assert sum(f'src="{url(picture)}"' in html for html in printed) == 2
    (found,) = json.loads("".join(own_json([record])))
    (stored,) = found["pictures"].values()
    assert base64.b64decode(stored["data"]) == picture.data
    for whole in (page, text, *printed):
        assert "picture:" not in whole


def test_a_picture_that_is_gone_is_named(database: Database) -> None:
    _, chat = talk(database)
    database.execute("DELETE FROM pictures")
    record = read_whole(database, chat)
    for whole in ("".join(html_page([record])), "".join(markdown([record]))):
        assert whole.count("[picture: boat.png]") + whole.count("picture: boat.png") >= 2
    assert "[picture: boat.png]" in "".join(piece.html for piece in print_pieces(record))


def test_our_own_json_brings_them_back(database: Database, tmp_path: Path) -> None:
    picture, chat = talk(database)
    path = tmp_path / "a.inglenook.json"
    path.write_text("".join(own_json([read_whole(database, chat)])))
    other = open_conversations(tmp_path / "other.sqlite3")
    (made,) = imported(run(other, path, encode=encoded))
    record = read_whole(other, made.conversation_id)
    assert list(record.pictures.values()) == [picture]
    assert record.messages == read_whole(database, chat).messages
    other.close()


def first(database: Database, path: Path) -> tuple[str, list[StoredPicture], Any]:
    events = run(database, path, encode=encoded)
    record = read_whole(database, imported(events)[0].conversation_id)
    return record.messages[0].text, list(record.pictures.values()), record.messages[0].raw


def tree(**message: Any) -> dict[str, Any]:
    about = {"id": "u", "role": "user", "content": "Look", "childrenIds": [], **message}
    return {"id": "c", "chat": {"history": {"messages": {"u": about}, "currentId": "u"}}}


ROLES = ("assistant", "user")
PHOTO = "data:image/jpeg;base64," + base64.b64encode(jpeg_with_place(drawn())).decode()
PART = [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": PHOTO}}]
LLAMA = {
    "conv": {"id": "c", "name": "T", "lastModified": 1, "currNode": "m"},
    "messages": [
        {
            "id": "m", "role": "user", "content": "Look", "parent": None, "type": "text",
            "extra": [{"type": "imageFile", "name": "cat.jpg", "base64Url": PHOTO}],
        }
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (tree(files=[{"type": "image", "url": PHOTO, "name": "cat.jpg"}]), "cat.jpg"),
        (tree(content=PART), ""),
        (LLAMA, "cat.jpg"),
        ({"messages": [{"role": "user", "content": PART}]}, ""),
    ],
    ids=["open webui files", "open webui parts", "llama.cpp", "messages"],
)
def test_pictures_that_an_export_holds_become_pictures(
    database: Database, tmp_path: Path, value: Any, name: str, qapp
) -> None:
    text, (picture,), raw = first(database, written(tmp_path / "a.json", value))
    (mark,) = marks(text)
    assert text == f"{mark.text}\n\nLook"
    assert (mark.name, mark.width, mark.height) == (name, 64, 48)
    assert PLACE not in picture.data
    assert PHOTO not in json.dumps(raw)


def test_chatgpts_pictures_are_found_beside_the_chats(database: Database, tmp_path: Path, qapp) -> None:
    def part(pointer: str) -> dict[str, Any]:
        return {"content_type": "image_asset_pointer", "asset_pointer": pointer}

    parts = [part("file-service://file-AbC1"), part("sediment://file_2"), part("sediment://file_3"), "Look"]
    about = {"attachments": [{"id": "file-AbC1", "name": "cat.png", "mime_type": "image/png"}]}
    asked = {"content_type": "multimodal_text", "parts": parts}
    value = {
        "title": "T", "conversation_id": "x", "current_node": "u",
        "mapping": {"u": node("u", None, [], "user", asked, metadata=about)},
    }  # fmt: skip
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("file-AbC1-cat.png", saved(drawn()))
        archive.writestr("user-1/file_2-sanitized.png", saved(drawn(20, 20)))
        archive.writestr("file_3-broken.png", saved(drawn())[:60])
        archive.writestr("notes.html", "<p>account</p>")
        archive.writestr("conversations.json", json.dumps([value]))
    events = run(database, tmp_path / "export.zip", encode=encoded)
    record = read_whole(database, imported(events)[0].conversation_id)
    cat, other = marks(record.messages[0].text)
    assert record.messages[0].text == f"{cat.text}\n\n{other.text}\n\n[image: file_3]\n\nLook"
    assert (cat.name, other.name, other.width) == ("cat.png", "file_2", 20)
    assert [event.count for event in events if isinstance(event, LeftOut)] == [1]
    (again,) = imported(run(database, tmp_path / "export.zip", encode=encoded))
    assert again.outcome == "known"


def test_without_an_encoder_and_with_broken_bytes_there_are_marks(database: Database, tmp_path: Path) -> None:
    broken = tree(files=[{"type": "image", "url": "data:image/png;base64,AA==", "name": "cat.png"}])
    assert first(database, written(tmp_path / "a.json", broken))[0] == "[image: cat.png]\n\nLook"
    value = tree(files=[{"type": "image", "url": PHOTO, "name": "dog.png"}]) | {"id": "d"}
    events = run(database, written(tmp_path / "b.json", value))
    record = read_whole(database, imported(events)[0].conversation_id)
    assert record.messages[0].text == "[image: dog.png]\n\nLook"


def test_data_in_a_reply_that_is_no_picture_stays_a_part_of_its_text(database: Database, qapp) -> None:
    words = f"![cat]({PHOTO}) and `![dot](data:image/png;base64,AA=)`"
    messages = tuple(
        MessageRecord(role, None, role, words, raw={"n": 1, "t": "x", "u": PHOTO}) for role in ROLES
    )
    record = PictureImporter(encoded, lambda _: None).taken(
        ConversationRecord("s", "k", "T", None, None, messages)
    )
    reply, asked = record.messages
    (cat,) = marks(reply.text)
    assert reply.text == f"{cat.text} and `![dot](data:image/png;base64,AA=)`"
    assert asked.text == f"{cat.text}\n\n and `[image: dot]`"
    assert reply.raw == {"n": 1, "t": "x", "u": cat.text}


def test_pictures_that_no_message_shows_are_not_taken(database: Database, qapp) -> None:
    picture = encoded(saved(drawn()), "boat.png")
    lost = mark_of("gone.png", "0" * 32, 3, 4).text
    for text in ("Hi", lost):
        record = ConversationRecord(
            "s", "k", "T", None, None, (MessageRecord("a", None, "assistant", text),),
            pictures={"1" * 32: picture},
        )  # fmt: skip
        found = PictureImporter(encoded, lambda _: None).taken(record)
        assert (found.pictures, found.messages[0].text) == ({}, text)


# -- pictures in the folders of programs

LM_FILE = "1784921393420 - 431.png"
TAVERN_FILE = "1712345678901_1234 (1).png"


def lm_studio(file: str = LM_FILE) -> dict[str, Any]:
    """A chat as LM Studio writes it, with a picture attached."""
    content = [
        {"type": "text", "text": "Look"},
        {"type": "file", "fileIdentifier": file, "fileType": "image", "sizeBytes": 2048},
    ]
    said = {"type": "singleStep", "role": "user", "content": content}
    value = files.lm_studio()
    return value | {"messages": [{"versions": [said], "currentlySelected": 0}]}


def tavern(**extra: Any) -> str:
    """A chat as SillyTavern writes it, with `extra` in its first message."""
    head = {"user_name": "You", "character_name": "Ann", "create_date": "2024-9-28 @01h 02m 36s"}
    said = {
        "name": "You", "is_user": True, "is_system": False, "send_date": "September 28, 2024 1:02am",
        "mes": "Look", "extra": {"isSmallSys": False, **extra},
    }  # fmt: skip
    return "\n".join(map(json.dumps, (head, said)))


def uploaded(file: str = TAVERN_FILE) -> dict[str, Any]:
    media = {"url": f"/user/images/Ann/{file}", "type": "image", "title": "cat.png", "source": "upload"}
    return {"media": [media], "media_index": 0, "inline_image": True}


PROGRAMS = [
    ("conversations/old/1.conversation.json", json.dumps(lm_studio()), f"user-files/{LM_FILE}", LM_FILE),
    ("chats/Ann/a.jsonl", tavern(**uploaded()), f"user/images/Ann/{TAVERN_FILE}", "cat.png"),
    ("chats/Ann/a.jsonl", tavern(image="user/images/Ann/1.png"), "user/images/Ann/1.png", "1.png"),
]


@pytest.mark.parametrize(
    ("chats", "text", "file", "name"), PROGRAMS, ids=["lm studio", "tavern", "old tavern"]
)
@pytest.mark.parametrize("packed", [False, True])
def test_pictures_in_a_programs_folder_are_found(
    database: Database, tmp_path: Path, chats: str, text: str, file: str, name: str, packed: bool, qapp
) -> None:
    root = tmp_path / "home" / ".program"
    for place, data in ((chats, text.encode()), (file, saved(drawn()))):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_bytes(data)
    path = root / chats
    if packed:
        path = tmp_path / "copy.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"other/{file}", saved(drawn(20, 20)))
            for place in (file, chats):
                archive.write(root / place, f"mine/{place}")
            archive.writestr(f"mine/deeper/{file}", saved(drawn(30, 30)))
    found, (picture,), raw = first(database, path)
    (mark,) = marks(found)
    assert found == f"{mark.text}\n\nLook"
    assert (mark.name, picture.width) == (name, 64)
    assert Path(file).name in json.dumps(raw)


@pytest.mark.parametrize(
    "file",
    ["../secret.png", "a/../../secret.png", "/secret.png", "a//b.png", "", "x\0.png", "x" * 5000, "gone.png"],
)
@pytest.mark.parametrize("packed", [False, True])
def test_only_pictures_in_the_folder_of_the_program_are_read(
    database: Database, tmp_path: Path, file: str, packed: bool, qapp
) -> None:
    root = tmp_path / "program"
    (root / "conversations").mkdir(parents=True)
    (root / "user-files").mkdir()
    for place in (tmp_path, root):
        (place / "secret.png").write_bytes(saved(drawn()))
    path = written(root / "conversations" / "1.json", lm_studio(file))
    if packed:
        path = tmp_path / "copy.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(root / "conversations" / "1.json", "conversations/1.json")
            archive.write(root / "secret.png", "secret.png")
    text, pictures, _raw = first(database, path)
    assert pictures == []
    assert text.startswith("Look\n\n[image")
    assert "inglenook-asset" not in text


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_out_of_the_folder_is_not_followed(database: Database, tmp_path: Path, qapp) -> None:
    root = tmp_path / "program"
    (root / "conversations").mkdir(parents=True)
    (root / "user-files").mkdir()
    (tmp_path / "secret.png").write_bytes(saved(drawn()))
    (root / "user-files" / LM_FILE).symlink_to(tmp_path / "secret.png")
    path = written(root / "conversations" / "1.json", lm_studio())
    assert first(database, path)[0] == f"Look\n\n[image: {LM_FILE}]"


def test_the_data_in_old_chats_of_sillytavern(database: Database, tmp_path: Path, qapp) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(tavern(image=PHOTO))
    text, (picture,), raw = first(database, path)
    (mark,) = marks(text)
    assert text == f"{mark.text}\n\nLook"
    assert PLACE not in picture.data
    assert PHOTO not in json.dumps(raw)
