"""Moving the data: at every moment one folder is whole, and the program finds it."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from desktop.store import relocation
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database import data_folder as data_folder_module
from desktop.store.database.data_folder import data_folder
from desktop.store.database.database import FILE_NAME, Database, DiskFull, StoreError
from desktop.store.relocation import (
    LIST_NAME,
    STOPPED,
    arrived,
    copy_before,
    data_bytes,
    delete_before,
    fixed_place,
    move_data,
    new_place_trouble,
)  # fmt: skip
from engine.platform import folders
from engine.platform.folders import data_dir
from engine.platform.moved_data import NOTE_NAME

MODEL = b"model" * 1000


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The system's place, with a chat, a model, a link and preferences in it."""
    monkeypatch.delenv("INGLENOOK_DATA", raising=False)
    usual = tmp_path / "usual"
    monkeypatch.setattr(folders, "usual_data_dir", lambda: usual)
    monkeypatch.setattr(data_folder_module, "usual_data_dir", lambda: usual)
    monkeypatch.setattr(relocation, "usual_data_dir", lambda: usual)
    fill(usual)
    return usual


def fill(folder: Path) -> None:
    (folder / "models" / "org").mkdir(parents=True)
    (folder / "models" / "org" / "a.gguf").write_bytes(MODEL)
    (folder / "models" / "link.gguf").symlink_to("org/a.gguf")
    (folder / "logs").mkdir()
    (folder / "inglenook.lock").touch()
    (folder / "notes of the user.txt").touch()
    model = str(folder / "models" / "org" / "a.gguf")
    preferences = {"last_model": model, "models": {model: {}}, "recent_models": [model, "/other/models/b"]}
    (folder / "preferences.json").write_text(json.dumps(preferences), encoding="utf-8")
    database = Database(folder / FILE_NAME)
    store = ConversationStore(database)
    chat = store.create("kept").id
    store.add_message(chat, None, "user", "hello")
    store.set_model_path(chat, model)
    database.close()


def titles(folder: Path) -> list[tuple[str, str]]:
    database = Database(folder / FILE_NAME)
    store = ConversationStore(database)
    found = [(one.title, store.get(one.id).model_path) for one in store.list()]
    database.close()
    return found


def move(source: Path, target: Path) -> None:
    for _ in move_data(source, target, threading.Event()):
        pass


def content(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


def test_everything_moves_and_the_program_finds_it(usual, tmp_path) -> None:
    before, target = content(usual), tmp_path / "disk" / "new ünï"
    size = sum(path.lstat().st_size for path in usual.rglob("*") if path.is_file() and not path.is_symlink())
    stages = [(one.stage, one.done, one.total) for one in move_data(usual, target, threading.Event())]
    assert {stage for stage, _, _ in stages} == {"Copying your data", "Checking the copy"}
    assert stages[-1][1] == stages[-1][2] == 2 * size
    assert max(done for stage, done, _ in stages if stage == "Copying your data") == size
    assert sorted(done for _, done, _ in stages) == [done for _, done, _ in stages]
    assert data_folder() == data_dir() == target
    model = target / "models" / "org" / "a.gguf"
    assert model.read_bytes() == (target / "models" / "link.gguf").read_bytes() == MODEL
    assert titles(target) == [("kept", str(model))]
    assert json.loads((target / "preferences.json").read_text(encoding="utf-8")) == {
        "last_model": str(model),
        "models": {str(model): {}},
        "recent_models": [str(model), "/other/models/b"],
    }
    assert not (target / "inglenook.lock").exists()
    assert not (target / "notes of the user.txt").exists()
    after = content(usual)
    after.pop(NOTE_NAME)
    assert {name: after[name] for name in before} == before
    if os.name == "posix":
        assert target.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(os.name != "posix", reason="folders are not synchronised there")
def test_the_new_names_are_on_the_disk_before_the_old_copy_is_let_go(usual, tmp_path, monkeypatch) -> None:
    synced: set[int] = set()
    fsync = os.fsync

    def noted(handle: int) -> None:
        synced.add(os.fstat(handle).st_ino)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    target = tmp_path / "new"
    move(usual, target)
    files = [path for path in target.rglob("*") if path.is_file()]
    assert {path.parent.stat().st_ino for path in files} <= synced
    assert len({path.parent for path in files}) > 1


def test_the_old_copy_is_kept_until_it_is_deleted(usual, tmp_path) -> None:
    target = tmp_path / "new"
    move(usual, target)
    assert arrived(target)
    assert not arrived(target)
    assert copy_before(target) == usual
    assert copy_before(usual) is None
    assert data_bytes(target) >= len(MODEL)
    delete_before(target)
    assert {path.name for path in usual.iterdir()} == {NOTE_NAME, "notes of the user.txt", "inglenook.lock"}
    assert copy_before(target) is None
    assert data_folder() == target
    delete_before(target)
    assert titles(target)[0][0] == "kept"


def test_it_can_move_again_and_back(usual, tmp_path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    move(usual, first)
    move(first, second)
    assert data_folder() == second
    assert copy_before(second) == first
    assert "not empty" in new_place_trouble(second, first)
    note = (usual / NOTE_NAME).read_text(encoding="utf-8")
    shutil.rmtree(usual)
    usual.mkdir()
    (usual / NOTE_NAME).write_text(note, encoding="utf-8")
    move(second, usual)
    assert data_folder() == usual
    assert titles(usual) == [("kept", str(usual / "models" / "org" / "a.gguf"))]
    assert copy_before(usual) == second


def test_a_place_that_cannot_be_used_is_refused_in_a_sentence(usual, tmp_path, monkeypatch) -> None:
    file, full = tmp_path / "file", tmp_path / "full"
    file.touch()
    full.mkdir()
    (full / "something").touch()
    linked = tmp_path / "linked"
    linked.symlink_to(usual)
    cases: list[tuple[Path, str]] = [
        (usual, "already"), (linked, "already"), (usual / "models" / "x", "inside the data folder"),
        (file, "is a file"), (full, "is not empty"), (tmp_path / ("x" * 300), "cannot be used ("),
    ]  # fmt: skip
    for target, words in cases:
        assert words in new_place_trouble(usual, target)
        with pytest.raises(StoreError, match=re.escape(words)):
            move(usual, target)
    assert (full / "something").exists()
    monkeypatch.setattr(relocation.os, "access", lambda *_: False)
    assert "Nothing can be written in" in new_place_trouble(usual, tmp_path / "new")
    monkeypatch.undo()
    free = data_bytes(usual) + relocation.SPARE
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(relocation.shutil, "disk_usage", lambda _: usage._replace(free=free - 1))
    assert "are free there" in new_place_trouble(usual, tmp_path / "new")
    monkeypatch.setattr(relocation.shutil, "disk_usage", lambda _: usage._replace(free=free))
    assert new_place_trouble(usual, tmp_path / "new") == ""


@pytest.mark.parametrize(
    ("number", "error", "words"),
    [
        (errno.ENOSPC, DiskFull, "is full. Your data is still in its old place"),
        (errno.EROFS, StoreError, "cannot be copied to"),
    ],
)
def test_a_disk_that_fails_meanwhile_changes_nothing(
    usual, tmp_path, monkeypatch, number, error, words
) -> None:
    target, count = tmp_path / "new", itertools.count()

    def fsync(handle: int) -> None:
        if next(count) == 2:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(relocation.os, "fsync", fsync)
    with pytest.raises(error, match=words):
        move(usual, target)
    assert not target.exists()
    assert data_folder() == usual


def test_a_copy_with_other_bytes_is_not_used(usual, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(relocation, "_read", lambda file, path: [b"x"])
    (tmp_path / "new").mkdir()
    with pytest.raises(StoreError, match="not what was written"):
        move(usual, tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []
    assert data_folder() == usual


def test_it_can_be_stopped(usual, tmp_path) -> None:
    stop, target = threading.Event(), tmp_path / "new"
    moving = move_data(usual, target, stop)
    next(moving)
    stop.set()
    with pytest.raises(StoreError, match=STOPPED):
        next(moving)
    assert not target.exists()
    assert data_folder() == usual


KILLED = """
import os, signal, sys, threading
from pathlib import Path
from desktop.store import relocation
from desktop.store.database import database
from engine.platform import folders
usual, target, calls = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
folders.usual_data_dir = relocation.usual_data_dir = lambda: usual
left = [calls]
changes = ("open", "os.rename", "os.remove", "os.symlink", "os.mkdir")
def before(event, arguments):
    if event in changes and target.name in str(arguments):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(before)
for _ in relocation.move_data(usual, target, threading.Event()):
    pass
print("moved", calls - left[0])
"""


def killed_after(usual: Path, target: Path, calls: int) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "INGLENOOK_DATA"}
    return subprocess.run(
        [sys.executable, "-c", KILLED, str(usual), str(target), str(calls)],
        capture_output=True, text=True, timeout=60, env=environ, check=False,
        cwd=Path(__file__).resolve().parents[3],
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="ends a process by a signal")
@pytest.mark.parametrize("times", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_killed_at_any_point_one_folder_is_whole_and_a_second_try_works(
    usual: Path, tmp_path: Path, times: int
) -> None:
    """Killed before a change of the new folder; the last ones are those around the note."""
    target = tmp_path / "new"
    whole = killed_after(usual, target, 10_000)
    assert whole.returncode == 0, whole.stderr
    most = int(whole.stdout.split()[1])
    assert most > 12
    points = sorted({max(1, round(most * part / (times - 1))) for part in range(times)})
    for calls in points:
        for path in (target, usual):
            shutil.rmtree(path, ignore_errors=True)
        fill(usual)
        done = killed_after(usual, target, calls)
        assert done.returncode == -signal.SIGKILL, (calls, done)
        place = data_folder()
        assert titles(place) == [("kept", str(place / "models" / "org" / "a.gguf"))]
        assert (place / "models" / "org" / "a.gguf").read_bytes() == MODEL
        if place == usual:
            assert new_place_trouble(usual, target) == ""
            move(usual, target)
            assert titles(data_folder())[0][0] == "kept"


def test_a_missing_disk_is_named_and_nothing_is_created(usual, tmp_path) -> None:
    move(usual, tmp_path / "new")
    shutil.rmtree(tmp_path / "new")
    with pytest.raises(StoreError, match=r"which your data was moved to, is not there. Connect its disk"):
        data_folder()
    assert not (tmp_path / "new").exists()
    assert data_folder(tmp_path / "new").is_dir()  # whoever names it wants it to be there


@pytest.mark.parametrize(
    "note", ["{", "[]", '{"folder": "near", "before": null}', '{"folder": 3}', "[" * 9999]
)
def test_a_note_that_cannot_be_read_is_named(usual, note) -> None:
    (usual / NOTE_NAME).write_text(note, encoding="utf-8")
    with pytest.raises(StoreError, match=r"moved-to.json cannot be used: it should name the folder"):
        data_folder()


def test_a_list_of_others_paths_removes_nothing(usual, tmp_path) -> None:
    target = tmp_path / "new"
    target.mkdir()
    (target / LIST_NAME).write_text(json.dumps(["../usual", "/etc", 3, "models"]), encoding="utf-8")
    (target / "models").mkdir()
    move(usual, target)
    assert (usual / FILE_NAME).exists()


def test_a_folder_that_was_named_by_hand_is_not_moved(usual, monkeypatch, tmp_path) -> None:
    assert fixed_place() == ""
    move(usual, tmp_path / "new")
    assert fixed_place() == ""
    monkeypatch.setenv("INGLENOOK_DATA", str(tmp_path / "x"))
    assert "--data or INGLENOOK_DATA" in fixed_place()
    monkeypatch.delenv("INGLENOOK_DATA")
    monkeypatch.setattr(folders, "portable_folder", lambda: tmp_path / "inglenook-data")
    assert "portable" in fixed_place()
