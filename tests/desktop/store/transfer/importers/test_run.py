"""The whole import: twice is once, grown chats are extended, damage is reported and contained, cancelling,
memory.
"""

from __future__ import annotations

import json
import random
import time
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import Database
from desktop.store.transfer.importers import import_conversations, json_entries
from desktop.store.transfer.importers.peek import is_chats
from desktop.store.transfer.records import Broken, Event, Imported, Progress
from engine.units import size_text
from tests.desktop.store.transfer.importers import files
from tests.desktop.store.transfer.importers.files import broken, dump, imported, lines, run, shown, written


@pytest.mark.parametrize("sample", files.SAMPLES)
def test_importing_twice_adds_nothing(database: Database, tmp_path: Path, sample: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(files.SAMPLES[sample]())
    first = imported(run(database, path))
    before = dump(database)
    again = imported(run(database, path))
    assert {event.outcome for event in again} == {"known"}
    assert [event.conversation_id for event in again] == [event.conversation_id for event in first]
    assert dump(database) == before


def test_a_conversation_that_grew_is_extended(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    value = files.chatgpt()
    number = imported(run(database, written(tmp_path / "a", [value])))[0].conversation_id
    own = store.add_message(number, store.path(number)[-1].id, "user", "Mine")  # continued here
    value["mapping"]["w"]["children"] = ["x"]
    value["mapping"]["x"] = files.node("x", "w", [], "user", "Theirs")
    value["current_node"] = "x"
    events = imported(run(database, written(tmp_path / "a", [value])))
    assert [(event.outcome, event.messages, event.conversation_id) for event in events] == [
        ("extended", 1, number)
    ]
    assert shown(store, number)[-1] == ("user", "Theirs")
    assert store.variants(own.id) == (own.id, store.path(number)[-1].id)


def test_one_in_the_trash_stays_there(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    path = written(tmp_path / "a", [files.chatgpt()])
    store.delete(imported(run(database, path))[0].conversation_id)
    assert imported(run(database, path))[0].outcome == "deleted"
    assert store.list() == ()


def test_a_running_reply_continues(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    """The import has a connection of its own, and does not disturb what runs in the window."""
    running = store.add_message(store.create().id, None, "assistant", "so far", "running")
    other = Database(database.path)
    assert imported(run(other, written(tmp_path / "a", [files.chatgpt()])))
    other.close()
    store.checkpoint(running.id, "so far, so good")
    assert (store.message(running.id).state, store.message(running.id).text) == ("running", "so far, so good")


def test_imported_messages_are_found_by_the_search(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    run(database, written(tmp_path / "a", [files.chatgpt()]))
    assert [hit.title for hit in store.search("rayleigh")] == ["Sky 1"]


# -- what is broken


def test_one_damaged_entry_is_reported_with_its_place(database: Database, tmp_path: Path) -> None:
    entries = [json.dumps(files.chatgpt(number)) for number in range(1, 6)]
    entries[1] = entries[1].replace('"title":', '"title"', 1)  # not JSON
    entries[3] = json.dumps({"mapping": {"a": {"message": None}}})  # no messages
    (tmp_path / "a.json").write_text("[" + ", ".join(entries) + "]")
    events = run(database, tmp_path / "a.json")
    assert [event.title for event in imported(events)] == ["Sky 1", "Sky 3", "Sky 5"]
    places = [event.place for event in broken(events)]
    start = len("[" + entries[0] + ", ")
    assert places[0] == f"a.json, entry 2 (byte {start:,})"
    assert places[1].startswith("a.json, entry 4 (byte ")
    assert broken(events)[1].reason == "It has no messages."


def test_a_damaged_message_affects_no_other(
    database: Database, store: ConversationStore, tmp_path: Path
) -> None:
    value = files.chatgpt()
    value["mapping"]["a"]["message"] = {"id": "a", "author": 7}
    events = run(database, written(tmp_path / "a", [value]))
    assert [(event.place, event.reason) for event in broken(events)] == [
        ("a, entry 1 (byte 1), node a", "It has no author or no content.")
    ]
    number = imported(events)[0].conversation_id
    assert [text for _, text in shown(store, number)] == ["Why is the sky blue?", "Thanks", "Gladly."]


def test_a_damaged_line(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", *files.silly_tavern())
    rows = path.read_text().splitlines()
    rows[2] = rows[2][:-5]
    path.write_text("\n".join(rows))
    events = run(database, path)
    assert [event.place for event in broken(events)] == ["a.jsonl, line 3"]
    assert len(shown(store, imported(events)[0].conversation_id)) == 2


def test_what_precedes_a_cut_is_kept(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    data = json.dumps([files.chatgpt(number) for number in range(1, 6)]).encode()
    (tmp_path / "a.json").write_bytes(data[: len(data) * 7 // 10])
    events = run(database, tmp_path / "a.json")
    assert len(imported(events)) == 3
    assert broken(events)[0].reason == "The file is incomplete."
    chat = files.gpt4all()
    (tmp_path / "b.chat").write_bytes(chat[:-20])
    events = run(database, tmp_path / "b.chat")
    assert len(shown(store, imported(events)[0].conversation_id)) == 3
    assert "message 4 of 4" in broken(events)[0].place


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16(
    database: Database,
    store: ConversationStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    encoding: str,
) -> None:
    monkeypatch.setattr(json_entries, "CHUNK", 7)  # cuts characters of two and of four bytes
    chats = [files.chatgpt(1, "Größe \U0001f98a"), files.chatgpt(2)]
    data = f"\ufeff{json.dumps(chats, ensure_ascii=False)}".encode(encoding)
    (tmp_path / "a.json").write_bytes(data)
    assert is_chats(tmp_path / "a.json")
    events = run(database, tmp_path / "a.json")
    assert broken(events) == []
    assert shown(store, imported(events)[0].conversation_id)[0] == ("user", "Größe \U0001f98a")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("conversations.json", data[:-1])  # the last character is cut
    events = run(database, tmp_path / "b.zip")
    assert [event.outcome for event in imported(events)] == ["known", "known"]


def test_an_entry_that_is_not_utf_8_is_reported_once(database: Database, tmp_path: Path) -> None:
    chats = [files.chatgpt(1), files.chatgpt(2, "Größe")]
    (tmp_path / "a.json").write_bytes(json.dumps(chats, ensure_ascii=False).encode("latin-1", "replace"))
    events = run(database, tmp_path / "a.json")
    assert len(imported(events)) == 1
    (only,) = broken(events)
    assert only.place.startswith("a.json, entry 2 ")
    assert only.reason.startswith("The text is not UTF-8 at byte ")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"hello", b"{}", b"[]", b"[1, 2, 3]", b'"text"', b"null", b"\xff\xfe" * 50, b"[" * 100_000,
        b'{"a":' * 100_000,
        b"PK\x03\x04 no zip", b"\xf5\xd5\x53\xcc", b"\xf5\xd5\x53\xcc\0\0\0\x63", b'[{"mapping": {}}]',
        b'{"chat_messages": [1]}',
        b'{"n": ' + b"9" * 9000 + b"}",
    ],
)  # fmt: skip
def test_foreign_values_are_reported(database: Database, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    events = run(database, tmp_path / "a")
    assert broken(events)
    assert imported(events) == []


def test_a_missing_file_is_reported(database: Database, tmp_path: Path) -> None:
    assert "cannot be opened" in broken(run(database, tmp_path / "nowhere"))[0].reason


def test_a_cycle_is_reported(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    value = files.chatgpt()
    value["mapping"]["v"]["parent"] = "w"
    events = run(database, written(tmp_path / "a", [value]))
    assert {event.place.rsplit(" ", 1)[-1] for event in broken(events)} == {"v", "w"}
    assert len(shown(store, imported(events)[0].conversation_id)) == 2


def test_lone_surrogates_and_wild_dates(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    value = files.chatgpt(1, "half \ud83d here")
    value |= {"title": "\udc00 title", "create_time": 1e300, "update_time": "never"}
    number = imported(run(database, written(tmp_path / "a", [value])))[0].conversation_id
    assert (store.get(number).title, shown(store, number)[0][1]) == ("? title", "half ? here")
    assert store.get(number).created_at == 1700000000.5


def test_hostile_texts_take_no_longer_than_others(database: Database, tmp_path: Path) -> None:
    """A hundred thousand unclosed brackets: a search that restarts at each would take minutes."""
    value = files.open_webui()
    value["chat"]["history"]["messages"]["2"]["content"] = '<details type="reasoning">' * 40_000
    path = written(
        tmp_path / "a",
        [value, files.chatgpt(1, "\ue200" * 300_000), files.chatgpt(2, '{"title": ' * 100_000)],
    )
    # and search for the next one goes through it
    path.write_bytes(path.read_bytes().replace(b"Sky 2", b"Sky \x01"))
    begin = time.process_time()
    assert len(imported(run(database, path))) == 2
    assert time.process_time() - begin < 20  # of the processor; measured: about 1


def test_an_entry_that_is_too_large(database: Database, tmp_path: Path) -> None:
    entries = [files.chatgpt(1), files.chatgpt(2, "x" * 3_000_000), files.chatgpt(3)]
    events = run(database, written(tmp_path / "a", entries), most_bytes=1 << 20)
    assert [event.title for event in imported(events)] == ["Sky 1", "Sky 3"]
    assert [event.reason for event in broken(events)] == ["It is larger than 1.05 MB."]


def test_a_chat_of_gpt4all_that_is_too_large(database: Database, tmp_path: Path) -> None:
    data = files.gpt4all()
    (tmp_path / "a.chat").write_bytes(data)
    events = run(database, tmp_path / "a.chat", most_bytes=len(data) - 1)
    assert next((event.place, event.reason) for event in broken(events)) == (
        "a.chat", f"It is larger than {size_text(len(data) - 1)}.",
    )  # fmt: skip
    assert imported(run(database, tmp_path / "a.chat", most_bytes=len(data)))


def test_of_many_damaged_messages_a_hundred_are_reported_and_the_others_counted(
    database: Database, tmp_path: Path
) -> None:
    def chat(damaged: int) -> Path:
        good = {"role": "user", "content": f"Hi {damaged}"}
        return written(tmp_path / "a", {"messages": [good, *[{"role": "user", "content": 5}] * damaged]})

    reasons = [event.reason for event in broken(run(database, chat(103)))]
    assert (len(reasons), reasons[-1]) == (101, "3 more of its messages could not be read.")
    assert len(broken(run(database, chat(100)))) == 100


def test_a_chat_in_lines_that_is_too_large_is_skipped_to_its_end(database: Database, tmp_path: Path) -> None:
    def message(number: int, size: int) -> dict[str, str]:
        return {"role": "assistant" if number % 2 else "user", "content": f"{number} " + "x" * size}

    large = [message(number, 100_000) for number in range(24)]
    events = run(database, files.lines(tmp_path / "a.jsonl", *large), most_bytes=1 << 20)
    assert (imported(events), [str(event.place) for event in broken(events)]) == ([], ["a.jsonl, line 1"])
    head, *rest = files.silly_tavern()
    chats = [head, *[rest[1] | {"mes": "x" * 100_000}] * 24, head, *rest]
    events = run(database, files.lines(tmp_path / "b.jsonl", *chats), most_bytes=1 << 20)
    assert [event.reason for event in broken(events)] == ["It is larger than 1.05 MB."]
    assert [event.messages for event in imported(events)] == [len(rest) + 2]  # two swipes are versions


def test_a_damaged_archive(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "conversations.json",
            json.dumps(
                [files.chatgpt(number, random.Random(number).randbytes(9000).hex()) for number in range(9)]
            ),
        )
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40] = bytes(40)
    path.write_bytes(data)
    events = run(database, path)
    assert broken(events)
    assert len(imported(events)) < 9


# -- cancel, progress, memory


def test_cancel_keeps_what_is_done(database: Database, store: ConversationStore, tmp_path: Path) -> None:
    path = written(tmp_path / "a", [files.chatgpt(number) for number in range(50)])
    done: list[Imported] = []
    for event in import_conversations(database, path, lambda: len(done) >= 5):
        if isinstance(event, Imported):
            done.append(event)
    assert len(done) == len(store.list()) == 5
    assert len(imported(run(database, path))) == 50


def big_file(path: Path, size: int) -> int:
    """Write a ChatGPT file of at least `size` bytes; returns the number of conversations in it."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        while file.tell() < size:
            value = files.chatgpt(
                count, random.Random(count).randbytes(1000).hex() + " lorem ipsum \u4f60\u597d" * 100
            )
            value["mapping"]["a"]["message"]["metadata"]["citations"] = [
                {"quote": str(n) * 500} for n in range(1, 30)
            ]
            file.write(("," if count else "") + json.dumps(value))
            count += 1
        file.write("]")
    return count


def check(events: Iterator[Event], count: int) -> Iterator[None]:
    """Pauses at every event; at the end, everything must be imported, with progress that only grows."""
    shares: list[float] = []
    found = 0
    for event in events:
        assert not isinstance(event, Broken)
        found += isinstance(event, Imported)
        if isinstance(event, Progress):
            shares.append(event.done / event.total)
        yield
    assert found == count
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.slow
def test_memory_is_bounded(database: Database, tmp_path: Path) -> None:
    count = big_file(tmp_path / "a.json", 20 << 20)
    tracemalloc.start()
    for _ in check(import_conversations(database, tmp_path / "a.json"), count):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_half_a_gigabyte(database: Database, tmp_path: Path) -> None:
    count = big_file(tmp_path / "a.json", 500 << 20)
    process = psutil.Process()
    before = most = process.memory_info().rss
    begin = time.monotonic()
    for _ in check(import_conversations(database, tmp_path / "a.json"), count):
        most = max(most, process.memory_info().rss)
    print(f"\n{count:,} conversations in {time.monotonic() - begin:.0f} s with {(most - before) >> 20} MB")
    assert most - before < 64 << 20


# -- fuzz


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_raise_nothing(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(files.SAMPLES[data.draw(st.sampled_from(sorted(files.SAMPLES)))]())
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, max(len(content) - 1, 0)))
        kind = data.draw(st.sampled_from(["set", "delete", "insert", "cut"]))
        if kind == "set" and content:
            content[place] = data.draw(st.integers(0, 255))
        elif kind == "delete":
            del content[place : place + data.draw(st.integers(1, 40))]
        elif kind == "insert":
            content[place:place] = data.draw(
                st.sampled_from([b"{", b"}", b"[", b"]", b'"', b",", b"\n", b"null", b"\\u0000", b"\xff"])
            )
        else:
            del content[place:]
    _check_survives(tmp_path, bytes(content))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_values_of_any_kind_in_any_place_raise_nothing(tmp_path: Path, data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(sorted(set(files.SAMPLES) - {"gpt4all", "llama.cpp", "silly-tavern"})))
    value = json.loads(files.SAMPLES[sample]())
    for _ in range(data.draw(st.integers(1, 4))):
        at = value
        for _ in range(data.draw(st.integers(0, 7))):
            inner = [
                key
                for key, below in (at.items() if isinstance(at, dict) else enumerate(at))
                if isinstance(below, (dict, list)) and below
            ]
            if not inner:
                break
            at = at[data.draw(st.sampled_from(inner))]
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if keys:
            at[data.draw(st.sampled_from(keys))] = data.draw(JSON)
    _check_survives(tmp_path, json.dumps(value).encode())


def _check_survives(folder: Path, content: bytes) -> None:
    """The import ends on its own, reports everything in words, and the store is readable afterwards."""
    path, place = folder / "fuzz", folder / "fuzz.sqlite3"
    path.write_bytes(content)
    for side in ("", "-wal", "-shm"):
        place.with_name(place.name + side).unlink(missing_ok=True)
    database = Database(place)
    store = ConversationStore(database)
    events = run(database, path)
    assert broken(events) or imported(events)
    assert all(event.place and event.reason for event in broken(events))
    for event in imported(events):
        for message in store.path(event.conversation_id):
            assert message.created_at < 4e10
    again = {event.outcome for event in imported(run(database, path))}
    assert again <= {"known"}
    database.close()
