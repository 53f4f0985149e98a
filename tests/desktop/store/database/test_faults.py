"""Two processes on one folder, a read-only or full disk, a clock that goes back (tests/e2e/README.md)."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from desktop.services.system.single_instance import AlreadyOpen, take_lock
from desktop.store import backups
from desktop.store.backups import Backups
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.trash import DAY_S, empty_trash
from desktop.store.database.database import StoreError
from desktop.store.database.errors import translated
from desktop.store.database.open import open_conversations
from desktop.store.search.indexing import index_step

ROOT = Path(__file__).resolve().parents[4]
posix = pytest.mark.skipif(sys.platform == "win32", reason="limits and rights of POSIX systems")


def run(code: str, *arguments: object, **how: object) -> str:
    """The output of a separate process."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "QT_QPA_PLATFORM": "offscreen"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, **how)
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- two processes on one folder


def test_a_file_that_another_program_has_locked_is_named(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with (
            closing(sqlite3.connect(path, timeout=0)) as own,
            pytest.raises(
                StoreError, match=f"Another program has locked the chats in {re.escape(str(path))}"
            ),
            translated(path),
        ):
            own.execute("SELECT * FROM sqlite_master").fetchall()


WRITER = """
import sys
from pathlib import Path
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.open import open_conversations

database = open_conversations(Path(sys.argv[1]))
store = ConversationStore(database)
print("ready", flush=True)
sys.stdin.readline()
talk = store.create(sys.argv[2]).id
parent = None
for number in range(150):
    parent = store.add_message(talk, parent, "user", f"{sys.argv[2]} {number}").id
database.close()
"""


def test_two_processes_write_into_one_file_and_lose_nothing(tmp_path: Path) -> None:
    """The lock may fail to keep them apart, as on a network drive without locks."""
    path = tmp_path / "a.sqlite3"
    open_conversations(path).close()
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for name in ("one", "two")
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            writer.communicate("go\n", timeout=120)
        assert [writer.returncode for writer in writers] == [0, 0]
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    database = open_conversations(path)
    store = ConversationStore(database)
    assert database.notices == ()
    said = {row.title: [message.text for message in store.path(row.id)] for row in store.list()}
    assert said == {f"{name} 0": [f"{name} {n}" for n in range(150)] for name in ("one", "two")} or said == {
        name: [f"{name} {n}" for n in range(150)] for name in ("one", "two")
    }
    while not index_step(database).done:
        pass
    assert len(store.search("one", 1000)) == 150
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()


def test_the_second_process_is_kept_out_by_the_lock(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from desktop.services.system.single_instance import *\n"
    code += "try: take_lock(Path(sys.argv[1]))\nexcept AlreadyOpen as found: print(found.process)"
    lock = take_lock(tmp_path)
    assert run(code, tmp_path).strip() == str(os.getpid())
    lock.unlock()
    assert run(code, tmp_path) == ""


# -- a read-only disk

READ_ONLY_START = """
import sys
from pathlib import Path
from PySide6.QtWidgets import QMessageBox
from desktop import app

QMessageBox.critical = lambda parent, title, words: print(words)
print(app.run(data=Path(sys.argv[1])))
"""


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder that cannot be written; for root, who is never refused, on a separate read-only mount."""
    if os.getuid() == 0:
        content = {path.name: path.read_bytes() for path in folder.iterdir()}
        if subprocess.run(["mount", "-t", "tmpfs", "none", folder], capture_output=True).returncode:
            pytest.skip("this system mounts no disks")
        try:
            for name, data in content.items():
                (folder / name).write_bytes(data)
            subprocess.run(["mount", "-o", "remount,ro", folder], check=True, capture_output=True)
            yield
        finally:
            subprocess.run(["umount", folder], check=True, capture_output=True)
    else:
        folder.chmod(0o500)
        try:
            yield
        finally:
            folder.chmod(0o700)


@pytest.mark.slow
@posix
def test_a_start_on_a_read_only_disk_is_refused_with_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    database = open_conversations(folder / "conversations.sqlite3")
    ConversationStore(database).create("Talk")
    database.close()
    with read_only(folder):
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        said = run(READ_ONLY_START, folder).splitlines()
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    words = "Change its permissions, or start with another --data folder."
    assert said == [f"The data folder {folder} is not writable. {words}", "1"]


def test_a_disk_that_turns_read_only_refuses_with_a_sentence(tmp_path: Path) -> None:
    database = open_conversations(tmp_path / "a.sqlite3")
    store = ConversationStore(database)
    talk = store.create("Talk").id
    database.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError, match=r"can be read but not saved.*read-only"):
        store.add_message(talk, None, "user", "words")
    assert store.path(talk) == ()
    assert store.get(talk).title == "Talk"
    database.execute("PRAGMA query_only = OFF")
    assert store.add_message(talk, None, "user", "words").text == "words"
    database.close()


# -- a full disk at every write

FULL = """
import hashlib, resource, signal, sys
from pathlib import Path
from desktop.services.models.file_hashes import FILE_NAME
from desktop.store.attachments.message_format import Attachment
from desktop.store import backups
from desktop.store.backups import Backups
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.database import StoreError
from desktop.store.database.errors import translated
from desktop.store.database.open import open_conversations
from desktop.store.attachments.pictures import PictureStore, StoredPicture
from desktop.store.attachments.whole_texts import PackedText, WholeTextStore
from desktop.store.conversations.drafts import DraftStore
from desktop.store.transfer.exporters.write import FORMATS, export_conversations
from desktop.store.caches.file_hashes import FileHashes
from desktop.store.conversations.folders import FolderStore
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.settings.preferences import Preferences
from desktop.store.settings.presets import Preset, write_preset
from desktop.store.settings.saved_prompts import Prompt, PromptStore, write_prompts
from desktop.store.conversations.queue import QueueStore
from desktop.store.conversations.stores import ConversationStores
from desktop.views.transcript.row_widgets.save_code import write_code
from engine.platform.whole_file import write_whole

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
database = open_conversations(folder / "conversations.sqlite3")
stores = ConversationStores(database)
store = stores.kept
talk = store.create("Talk").id
first = store.add_message(talk, None, "user", "first")
reply = store.add_message(talk, first.id, "assistant", "", "running")
preferences = Preferences(folder / "preferences.json")
preferences.remember_model("/models/before.gguf")
hashes = FileHashes(folder / FILE_NAME)
hashes.put("before", "1")
names = ("prompts.json", "preset.json", "code.py", "text.md", "chats.json", "chats.md", "chats.html")
for name in names:
    (folder / name).write_text("what was there before")
long = "word " * 60_000


def code():
    sentence = write_code(folder / "code.py", long)
    if sentence:
        raise StoreError(sentence)


def quietly(hash):
    hashes.put(hash, "2")  # a cache: it tells nothing
    if hash not in (folder / FILE_NAME).read_text():
        raise StoreError(hash)


def export(format):
    return lambda: list(export_conversations(database, [talk], folder / f"chats{format.suffix}", format))


writes = {
    "chat": lambda: store.create(long),
    "message": lambda: store.add_message(talk, first.id, "user", long),
    "checkpoint": lambda: store.checkpoint(reply.id, long),
    "end of a reply": lambda: store.finish(reply.id, long, "complete", {}, bytes(200_000)),
    "edit": lambda: store.edit_message(first.id, long),
    "draft": lambda: DraftStore(database).put(talk, long),
    "files of a draft": lambda: DraftStore(database).put_files(talk, (Attachment("a.txt", long),)),
    "picture": lambda: PictureStore(database).put(StoredPicture("image/png", 9, 9, bytes(300_000))),
    "whole text": lambda: WholeTextStore(database).put(talk, [PackedText("a", "0" * 32, bytes(300_000))]),
    "queue": lambda: QueueStore(stores).add(talk, long, ""),
    "prompt": lambda: PromptStore(database).put(Prompt(0, "name", long)),
    "persona": lambda: PersonaStore(database).save(Persona(0, "Ada", "", long)),
    "folder": lambda: FolderStore(database).create(long),
    "preferences": lambda: preferences.remember_model("/models/after.gguf"),
    "copy": lambda: Backups(database.path).make(),
    "prompts file": lambda: write_prompts(folder / "prompts.json", [Prompt(0, "name", long)]),
    "preset file": lambda: write_preset(folder / "preset.json", Preset("name", {})),
    "code file": code,
    "text file": lambda: write_whole(folder / "text.md", long),
    "hashes": lambda: quietly("after"),
    **{f"export {format.suffix}": export(format) for format in FORMATS},
}


def state():
    rows = [database.execute(f"SELECT * FROM {table}").fetchall() for table in (
        "conversations", "messages", "drafts", "draft_files", "queued_messages", "prompts", "personas",
        "pictures", "whole_texts",
        "folders")]
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*")
             if path.is_file() and "sqlite3" not in path.name}
    return repr(rows), files


soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for name, write in writes.items():
    before = state()
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        write()
    except StoreError as error:
        assert str(error).count("\\n") == 0
    except OSError as error:
        assert name == "text file", name
    else:
        print("said to be written:", name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    if state() != before:
        print("changed:", name)
    write()
    if name != "copy" and state() == before:
        print("not written with room:", name)
print(len(writes), "writes")
stores.close()
database.close()
"""


@posix
def test_a_full_disk_at_every_write_changes_nothing(tmp_path: Path) -> None:
    said = run(FULL, tmp_path).splitlines()
    assert len(said) == 1, said
    assert int(said[0].split()[0]) > 20
    database = open_conversations(tmp_path / "conversations.sqlite3")
    assert database.notices == ()
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
    assert [path.name for path in tmp_path.iterdir() if re.search(r"\.(new|part)$", path.name)] == []
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.glob("conversations*"))


# -- a clock that goes backwards


def test_a_clock_that_goes_backwards_changes_no_order_and_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    clock = iter(range(10_000_000))
    monkeypatch.setattr(time, "time", lambda: now - 86_400.0 * next(clock))  # each look is a day earlier
    database = open_conversations(tmp_path / "a.sqlite3")
    store = ConversationStore(database)
    talk, thrown = store.create("Talk").id, store.create("Thrown away").id
    parent = None
    for number in range(20):
        parent = store.add_message(talk, parent, "user", f"message {number}").id
    again = store.edit_message(parent, "another last one")
    store.delete(thrown)
    assert [message.text for message in store.path(talk)] == [f"message {n}" for n in range(19)] + [
        "another last one"
    ]
    assert store.variants(again.id) == (parent, again.id)
    assert "message 7" in [hit.snippet for hit in store.search("message 7")]
    assert list(empty_trash(database, 30 * DAY_S)) == []  # it was thrown away "later" than now
    store.restore(thrown)
    database.close()
    database = open_conversations(tmp_path / "a.sqlite3")
    assert len(ConversationStore(database).path(talk)) == 20
    database.close()


def test_a_copy_from_the_future_does_not_prevent_later_ones(tmp_path: Path) -> None:
    database = open_conversations(tmp_path / "a.sqlite3")
    store, copies = ConversationStore(database), Backups(database.path)
    store.create("Talk")
    now = float(int(time.time()))
    wrong = copies.make(now + 9 * 365 * 86_400)  # the clock was years ahead
    assert wrong is not None
    assert copies.due(now)
    right = copies.make(now - 7200)
    assert right is not None
    assert copies.latest(now) == right
    assert copies.due(now)
    assert copies.make(now) is not None
    assert not copies.due(now + 60)
    assert {backup.path for backup in copies.list()} >= {right.path}
    database.close()


def test_copies_from_the_future_replace_no_others(tmp_path: Path) -> None:
    copies, now = Backups(tmp_path / "a.sqlite3"), 1_800_000_000
    copies.folder.mkdir()

    def note(made_at: int) -> Path:
        stamp = datetime.fromtimestamp(made_at, UTC).strftime(backups._STAMP)
        path = copies.folder / f"a-{stamp}.sqlite3"
        path.write_bytes(b"")
        return path

    for hour in range(200):
        note(now + 9 * 365 * 86_400 + 7 * 86_400 * hour)
    recent = [note(now - 3600 * hour) for hour in range(3)]
    assert set(recent) <= copies.kept(now).keys()


def test_the_lock_names_its_holder(tmp_path: Path) -> None:
    lock = take_lock(tmp_path)
    with pytest.raises(AlreadyOpen, match="already open"):
        take_lock(tmp_path)
    lock.unlock()
