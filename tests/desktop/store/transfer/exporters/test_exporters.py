"""Export: JSON there and back without loss, readable Markdown and web pages, complete files or none."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from desktop.store.attachments.picture_marks import mark_of
from desktop.store.attachments.pictures import StoredPicture
from desktop.store.conversations.bulk_insert import conversation_ids, discard_unfinished, read_whole
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.folders import FolderStore
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.database.chunked_writes import ChunkedWrites
from desktop.store.database.database import Database, StoreError
from desktop.store.transfer.exporters import html
from desktop.store.transfer.exporters.html import html_page
from desktop.store.transfer.exporters.markdown import markdown
from desktop.store.transfer.exporters.names import file_name, free_name
from desktop.store.transfer.exporters.pictures import as_html, text_and_pictures
from desktop.store.transfer.exporters.write import (
    FORMATS,
    Choice,
    ExportFormat,
    export_conversations,
    export_folder,
)
from desktop.store.transfer.importers import import_conversations
from desktop.store.transfer.importers.peek import is_chats
from desktop.store.transfer.records import ConversationRecord
from tests.desktop.store.transfer.importers import files
from tests.desktop.store.transfer.importers.files import broken, dump, imported, run

MARKDOWN, JSON, HTML = FORMATS
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def export(database: Database, path: Path, format: Any, ids: tuple[int, ...] | None = None) -> str:
    list(
        export_conversations(
            database, conversation_ids(database, deleted=True) if ids is None else ids, path, format
        )
    )
    return path.read_text(encoding="utf-8")


def grow(
    store: ConversationStore,
    draw: random.Random,
    text: Any,
    folders: Sequence[int] = (),
    personas: Sequence[int] = (),
) -> int:
    """A conversation that grew by everything a window can do to it."""
    number = store.create(" ".join(text().split()), {"SamplerSettings": {"temperature": draw.random()}}).id
    made: list[int] = []
    for _ in range(draw.randrange(12)):
        parent = draw.choice([None, *made])
        role = draw.choice(["user", "assistant", "system", "tool"])
        message = store.add_message(
            number, parent, role, text(), "running" if role == "assistant" else "complete"
        ).id
        made.append(message)
        if role == "assistant" and draw.random() < 0.8:
            tokens = draw.randbytes(9) if draw.random() < 0.5 else b""
            store.finish(
                message,
                text(),
                draw.choice(["complete", "stopped", "failed"]),
                {"model": text(), "stats": {"new_tokens": 3}},
                tokens,
            )
        change = draw.choice([store.show_variant, store.delete_message, store.undelete_message, None, None])
        if change is not None:
            change(draw.choice(made))
    if draw.random() < 0.5:
        store.rename(number, text())
    store.set_system_prompt(number, text(), draw.random() < 0.5)
    store.pin(number, draw.random() < 0.3)
    store.move([number], draw.choice([None, *folders]))
    store.set_persona(number, draw.choice([None, *personas]))
    if draw.random() < 0.3:
        store.delete(number)
    return number


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), texts=st.lists(TEXT, min_size=1, max_size=9))
def test_export_and_import_lose_nothing(tmp_path: Path, seed: int, texts: list[str]) -> None:
    draw = random.Random(seed)
    for name in ("one", "two"):
        for side in ("", "-wal", "-shm"):
            (tmp_path / (name + side)).unlink(missing_ok=True)
    first, second = Database(tmp_path / "one"), Database(tmp_path / "two")
    store = ConversationStore(first)
    folders = [FolderStore(first).create(draw.choice(texts)).id]
    folders.append(FolderStore(first).create(draw.choice(texts), folders[0]).id)
    who = (
        PersonaStore(first)
        .save(Persona(0, draw.choice(texts), "🦊", draw.choice(texts), "Creative", "/models/a.gguf"))
        .id
    )
    numbers = [grow(store, draw, lambda: draw.choice(texts), folders, [who]) for _ in range(3)]
    export(first, tmp_path / "a.json", JSON)
    assert broken(run(second, tmp_path / "a.json")) == []
    assert [read_whole(second, number) for number in conversation_ids(second, deleted=True)] == [
        read_whole(first, n) for n in numbers
    ]
    other = ConversationStore(second)
    for mine, theirs in zip(numbers, conversation_ids(second, deleted=True), strict=True):
        assert [message.text for message in other.path(theirs)] == [
            message.text for message in store.path(mine)
        ]
        assert [other.tokens(message.id) for message in other.path(theirs)] == [
            store.tokens(message.id) for message in store.path(mine)
        ]
    for database in (first, second):  # it is known where it came from, and where it went to
        before = dump(database)
        assert {event.outcome for event in imported(run(database, tmp_path / "a.json"))} == {"known"}
        assert dump(database) == before
    assert export(second, tmp_path / "b.json", JSON) == (tmp_path / "a.json").read_text(encoding="utf-8")
    first.close()
    second.close()


def test_a_conversation_travels_between_two_machines(tmp_path: Path) -> None:
    one, two = Database(tmp_path / "one"), Database(tmp_path / "two")
    here, there = ConversationStore(one), ConversationStore(two)
    number = here.create().id
    first = here.add_message(number, None, "user", "Hi").id
    export(one, tmp_path / "a.json", JSON)
    copy = imported(run(two, tmp_path / "a.json"))[0].conversation_id
    there.add_message(copy, there.path(copy)[-1].id, "assistant", "From there")
    here.add_message(number, first, "assistant", "From here")
    export(two, tmp_path / "b.json", JSON)
    assert [(event.outcome, event.conversation_id) for event in imported(run(one, tmp_path / "b.json"))] == [
        ("extended", number)
    ]
    assert [here.message(key).text for key in here.variants(here.path(number)[-1].id)] == [
        "From here",
        "From there",
    ]
    one.close()
    two.close()


def test_an_import_travels_with_its_source(database: Database, tmp_path: Path) -> None:
    for name, sample in files.SAMPLES.items():
        (tmp_path / name).write_bytes(sample())
        run(database, tmp_path / name)
    export(database, tmp_path / "a.json", JSON)
    other = Database(tmp_path / "other")
    assert {event.outcome for event in imported(run(other, tmp_path / "a.json"))} == {"new"}
    for name in files.SAMPLES:
        assert {event.outcome for event in imported(run(other, tmp_path / name))} == {"known"}
    assert [read_whole(other, number) for number in conversation_ids(other)] == [
        read_whole(database, n) for n in conversation_ids(database)
    ]
    other.close()


def test_own_json_with_missing_parts(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    number = store.create("T").id
    parent = None
    for word in ("a", "b", "c", "d"):
        parent = store.add_message(number, parent, "user", word).id
    value = json.loads(export(database, tmp_path / "a.json", JSON))
    value[0]["key"] = "another"
    value[0]["messages"][1]["text"] = 5
    value[0]["messages"][2]["stats"] = {
        "model": "m",
        "stats": {"new_tokens": "many", "prefill_seconds": [], "invented": 1},
    }
    value[0]["settings"] = [1]
    value.append(value[0] | {"version": 99})
    (tmp_path / "a.json").write_text(json.dumps(value))
    events = run(database, tmp_path / "a.json")
    copy = imported(events)[0].conversation_id
    assert [message.text for message in store.path(copy)] == ["a", "c", "d"]
    assert store.path(copy)[1].stats == {"model": "m", "stats": {"invented": 1}}
    assert [event.place.rsplit(", ", 1)[-1] for event in broken(events)][:2] == ["message 2", "settings"]
    assert "newer version" in broken(events)[2].reason


def conversation(store: ConversationStore) -> int:
    number = store.create("A *title* <b>").id
    store.set_system_prompt(number, "Be <kind>.")
    user = store.add_message(number, None, "user", "# not a heading\n<script>alert(1)</script>").id
    reply = "<think>\nHm *hm*\n</think>\n\nSee `x` & ![p](http://example.com/p.png) <img src=x>"
    reply += "\n\n```python\nprint('<hi>')\n```\n\n|a|b|\n|-|-|\n|1|2|"
    message = store.add_message(number, user, "assistant", "", "running").id
    store.finish(message, reply, "complete", {"model": "tiny"})
    store.show_variant(store.add_message(number, user, "assistant", "other").id)
    store.show_variant(message)
    return number


def test_half_a_surrogate_pair_in_settings_travels(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    """Settings and kept fields of imported chats may hold one, which has no UTF-8: it stays an escape."""
    number = store.create("Bread", {"StopSettings": {"stop_strings": ["\ud800"]}}).id
    store.add_message(number, None, "user", "Hi")
    path = tmp_path / "a.json"
    list(export_conversations(database, [number], path, FORMATS[1]))
    assert json.loads(path.read_bytes())[0]["settings"] == {"StopSettings": {"stop_strings": ["\ud800"]}}


def test_markdown(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    text = export(database, tmp_path / "a.md", MARKDOWN, (conversation(store),))
    assert text.startswith("# A \\*title\\* \\<b\\>\n\n*")
    assert "## System prompt\n\nBe <kind>.\n\n## You · " in text
    assert "\n## Assistant \\(tiny)".replace("\\(", "(") in text
    assert "> **Thoughts**\n>\n> Hm *hm*\n\nSee `x`" in text
    assert "other" not in text


class Page(HTMLParser):
    """The elements of a page, which must all be closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [str(value) for name, value in attrs if name in ("src", "srcset", "background", "data")]
        if tag not in ("meta", "hr", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data if "style" not in self.open else ""


def test_web_page(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    text = export(database, tmp_path / "a.html", HTML, (conversation(store), conversation(store)))
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.loads == []
    assert not page.tags & {"script", "img", "link", "iframe", "b"}
    assert {"table", "pre", "span", "code", "hr"} <= page.tags
    assert "<script>alert(1)</script>" in page.words
    assert "print('<hi>')" in page.words
    assert "Be <kind>." in page.words
    assert "other" not in page.words
    assert '<a href="http://example.com/p.png">p</a>' in text
    assert re.search(r"@import|url\(", text) is None
    light, dark = text.split("@media screen and (prefers-color-scheme: dark)")
    assert "pre .k { color: #008000" in light  # keywords of Pygments' own style, and of Monokai
    assert "pre .k { color: #66D9EF" in dark


@settings(max_examples=40)
@given(
    st.lists(
        TEXT | st.sampled_from(["<think>", "</think>", "```", "\n", "<!--", "</body>", "[x](javascript:y)"]),
        max_size=8,
    )
)
def test_web_pages_can_contain_any_text(rows: list[str]) -> None:
    from desktop.store.transfer.records import ConversationRecord, MessageRecord

    text = "\n".join(rows)
    for role in ("user", "assistant"):
        record = ConversationRecord(
            "s", "k", text, 1.0, 1.0, (MessageRecord("a", None, role, text, 1.0),), system_prompt=text
        )
        page = Page()
        page.feed("".join(html_page([record])))
        assert page.open == []
        assert not page.tags & {"script", "img"}
        assert "".join(markdown([record])).startswith("# ")


def test_text_and_pictures_of_a_message_as_it_was_typed() -> None:
    shown, gone = mark_of('a" b', "1" * 32, 30, 20), mark_of("c<d", "2" * 32, 1, 1)
    pictures = {shown.key: StoredPicture("image/png", 60, 40, b"\0")}
    picture = '<img src="data:image/png;base64,AA==" alt="a&quot; b" width="30">'
    text = f"<i>{shown.text} & {gone.text}\n"
    assert as_html(text, pictures) == f"&lt;i&gt;{picture} &amp; {escape(gone.words)}\n"
    assert as_html(shown.text, pictures) == picture
    assert as_html("", pictures) == ""
    assert [is_html for is_html, _ in text_and_pictures(text, pictures)] == [False, True, False, False, False]


def test_embedded_pictures_are_shown() -> None:
    from desktop.store.transfer.records import ConversationRecord, MessageRecord

    message = MessageRecord(
        "a", None, "assistant", "![dot](data:image/png;base64,AA==) ![x](data:text/html,y)", 1.0
    )
    page = Page()
    page.feed("".join(html_page([ConversationRecord("s", "k", messages=(message,))])))
    assert page.loads == ["data:image/png;base64,AA=="]


def test_thoughts_are_those_of_replies_alone(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    talk = store.create("Talk").id
    typed = store.add_message(talk, None, "user", "<think>mine</think>\n\nSay it.")
    store.add_message(talk, typed.id, "assistant", "<think>own</think>\n\nSaid.")
    format = next(each for each in FORMATS if each.suffix == ".md")
    assert export(database, tmp_path / "a.md", format, (talk,)).count("**Thoughts**") == 1


def test_files_of_each_chat_go_to_a_folder_that_is_made(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    chats = [store.create(title).id for title in ("Same", "Same")]
    folder = tmp_path / "new" / "inner"

    def write(_record: ConversationRecord, path: Path) -> Iterator[Any]:
        path.write_text("x")
        yield from ()

    list(export_folder(database, Choice(chats), folder, ".x", write))
    assert len(list(folder.iterdir())) == 2


def test_a_folder_that_cannot_be_made_is_reported(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    chosen = Choice((store.create().id,))
    with pytest.raises(StoreError, match=r"cannot be exported to .*taken"):
        list(export_folder(database, chosen, tmp_path / "taken", ".x", lambda _record, _path: iter(())))


def test_an_export_of_nothing_is_a_valid_file(database: Database, tmp_path: Path) -> None:
    for format in FORMATS:
        export(database, tmp_path / f"a{format.suffix}", format, ())
    assert json.loads((tmp_path / "a.inglenook.json").read_text()) == []


def test_a_web_page_is_cancelled_between_two_messages(
    database: Database, store: ConversationStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quitting waited until all of a long chat was written."""
    chat, parent, written = store.create().id, None, list[str]()
    for number in range(20):
        role = "assistant" if number % 2 else "user"
        parent = store.add_message(chat, parent, role, f"text {number}").id
    render = html._rendered
    monkeypatch.setattr(html, "_rendered", lambda text, page: written.append(text) or render(text, page))
    path, page = tmp_path / "a.html", next(each for each in FORMATS if each.suffix == ".html")
    list(export_conversations(database, [chat], path, page, cancel=lambda: len(written) > 1))
    assert written == ["text 1", "text 3"]
    assert list(tmp_path.glob("*.html")) == []


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.suffix)
def test_a_file_is_complete_or_unchanged(
    database: Database, store: ConversationStore, tmp_path: Path, format: Any
) -> None:
    number = conversation(store)
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / "a"
    path.write_text("before")
    assert list(export_conversations(database, [number], path, format, cancel=lambda: True)) == []
    with pytest.raises(StoreError, match="There is no chat number 99"):
        list(export_conversations(database, [number, 99], path, format))
    assert path.read_text() == "before"
    assert [file.name for file in folder.iterdir()] == ["a"]
    with pytest.raises(StoreError, match="cannot be exported"):
        list(export_conversations(database, [number], tmp_path / "nowhere" / "a", format))


def test_nothing_is_made_after_it_was_cancelled(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    path, made = tmp_path / "a", list[int]()

    def write(records: object) -> Iterator[str]:
        for number in range(9):
            made.append(number)
            yield "x"

    cancel = iter([False, True, True]).__next__
    format = ExportFormat("X", ".x", write)
    assert len(list(export_conversations(database, [conversation(store)], path, format, cancel))) == 1
    assert made == [0, 1]
    assert not path.exists()


def test_import_is_lazy(database: Database, tmp_path: Path) -> None:
    """Nothing happens before the first event is requested: a worker can be created on one thread and run on
    another.
    """
    events = import_conversations(database, tmp_path / "nowhere")
    (tmp_path / "nowhere").write_bytes(files.SAMPLES["chatgpt"]())
    assert len(imported(list(events))) == 2


def test_the_first_version_is_still_read(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    number = store.create("Old").id
    store.add_message(number, None, "user", "Hello")
    export(database, tmp_path / "a.json", JSON)
    (entry,) = json.loads((tmp_path / "a.json").read_text())
    for name in ("folder", "pinned", "persona", "inherits_prompt", "deleted_at"):
        del entry[name]
    entry |= {"version": 1, "key": "k"}
    (tmp_path / "b.json").write_text(json.dumps(entry))
    (found,) = imported(run(database, tmp_path / "b.json"))
    whole = read_whole(database, found.conversation_id)
    assert (whole.title, whole.folder, whole.pinned, whole.persona, whole.inherits_prompt) == (
        "Old",
        (),
        False,
        None,
        True,
    )


def test_folders_and_personas_of_the_same_name_are_used(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    folders, personas = FolderStore(database), PersonaStore(database)
    inner = folders.create("Inner", folders.create("Work").id).id
    who = personas.save(Persona(0, "Bo", system_prompt="Be brief.")).id
    number = store.create("Talk").id
    store.move([number], inner)
    store.set_persona(number, who)
    export(database, tmp_path / "a.json", JSON)
    (entry,) = json.loads((tmp_path / "a.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps(entry | {"key": "other", "folder": ["Work", "Inner", "New"]}))
    (found,) = imported(run(database, tmp_path / "b.json"))
    assert [folder.name for folder in folders.above(store.get(found.conversation_id).folder_id)] == [
        "Work",
        "Inner",
        "New",
    ]
    assert store.get(found.conversation_id).persona_id == who
    assert len(personas.list()) == 1
    assert len(folders.all()) == 3


def test_a_conversation_appears_once_it_is_complete(
    database: Database, store: ConversationStore, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("desktop.store.database.chunked_writes.STEP_S", 0.0)
    path = files.written(tmp_path / "a.json", files.chatgpt())
    second = Database.second(database.path)
    other = ConversationStore(second)
    seen: list[int] = []
    rest = ChunkedWrites.pause

    def look(self: ChunkedWrites) -> None:
        rest(self)
        seen.append(len(other.list()))
        if len(seen) == 3:
            raise KeyboardInterrupt  # like a killed program

    monkeypatch.setattr(ChunkedWrites, "pause", look)
    with pytest.raises(KeyboardInterrupt):
        run(database, path)
    assert seen == [0, 0, 0]
    assert store.list() == store.list(deleted=True) == ()
    monkeypatch.undo()
    list(discard_unfinished(database))
    assert dump(database) == []
    (found,) = imported(run(database, path))
    assert (found.outcome, found.messages) == ("new", 5)
    assert len(other.list()) == 1
    second.close()


def test_file_names() -> None:
    assert file_name("a/b\\c: d?\n\u202e e") == "a b c d e"
    assert [file_name(title) for title in ("", "...", "CON", "com1.x", "x" * 300)] == [
        "Chat",
        "Chat",
        "CON chat",
        "com1.x chat",
        "x" * 120,
    ]
    assert len(file_name("日本" * 100).encode()) <= 120
    taken = {"talk.md"}
    assert [free_name("Talk", ".md", taken) for _ in range(2)] == ["Talk (2).md", "Talk (3).md"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("a.json", [files.chatgpt()], True), ("a.json", files.claude(), True),
        ("a.json", [files.open_webui()], True),
        ("a.json", files.lm_studio(), True), ("a.jsonl", files.silly_tavern()[0], True),
        ("a.txt", [files.chatgpt()], False),
        ("a.json", {"dependencies": {"a": 1}}, False), ("a.json", [[1, 2], [3]], False),
        ("a.json", [files.chatgpt(text="x" * 99_999)], True),
    ],
)  # fmt: skip
def test_dropped_files_recognised_as_chats(tmp_path: Path, name: str, value: Any, expected: bool) -> None:
    assert is_chats(files.written(tmp_path / name, value)) is expected


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.zip", b"PK\x03\x04rest", True), ("a.ZIP", b"PK\x05\x06rest", False),
        ("a.zip", files.gpt4all(12), False), ("a.json", b"words", False),
        ("a.chat", files.gpt4all(12), True), ("a.chat", b"PK\x03\x04rest", False),
        ("a.json", b"\xef\xbb\xbf \n" + json.dumps(files.chatgpt()).encode(), True),
        ("a.db", b"SQLite format 2", False),
    ],
)  # fmt: skip
def test_dropped_archives_and_texts(tmp_path: Path, name: str, data: bytes, expected: bool) -> None:
    (tmp_path / name).write_bytes(data)
    assert is_chats(tmp_path / name) is expected
    assert is_chats(tmp_path / "missing.json") is False
