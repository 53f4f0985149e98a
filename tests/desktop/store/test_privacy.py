"""No other user of the computer can read what the program stores, in old installations either."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from desktop.diagnostics import Diagnostics
from desktop.store.backups import Backups, prepare_restore, put_in_place
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.data_folder import data_folder
from desktop.store.database.database import Database
from desktop.store.database.integrity_marker import request_check
from desktop.store.database.open import open_conversations
from desktop.store.privacy import close_data
from desktop.store.settings.preferences import Preferences

pytestmark = pytest.mark.skipif(os.name != "posix", reason="rights are POSIX's")


def open_to_others(folder: Path) -> set[str]:
    """What other users have any rights to, by path in the folder."""
    found = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder)) for path in found if stat.S_IMODE(path.lstat().st_mode) & 0o077}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGLENOOK_CACHE", str(tmp_path / "cache"))


def test_everything_is_created_closed(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = data_folder(tmp_path / "above" / "data")
        database = Database(folder / "conversations.sqlite3")
        store = ConversationStore(database)
        store.add_message(store.create().id, None, "user", "private words")
        assert (folder / "conversations.sqlite3-wal").exists()
        assert Backups(database.path).make() is not None
        request_check(database.path)
        Preferences(folder / "preferences.json").remember_model("/models/a.gguf")
        log = Diagnostics(folder / "logs")
        logging.getLogger("desktop").error("something")
        assert open_to_others(tmp_path / "above") == set()
        log.close()
        database.close()
        backup = next((folder / "backups").iterdir())
        put_in_place(prepare_restore(backup, database.path), database.path)
        data = bytearray(database.path.read_bytes())
        data[100:4096] = bytes(3996)
        database.path.write_bytes(data)
        open_conversations(database.path).close()  # sets the damaged file aside and starts afresh
        assert len(list(folder.iterdir())) > 5
        assert open_to_others(tmp_path / "above") == set()
    finally:
        os.umask(before)


def test_an_older_installation_is_closed_at_start(tmp_path: Path) -> None:
    folder, foreign = tmp_path / "data", tmp_path / "elsewhere"
    names = (
        "conversations.sqlite3",
        "conversations.sqlite3.damaged-20250101-000000",
        "conversations.before-full_text_search.sqlite3",
        "preferences.json",
        "preferences.json.damaged-1",
        "window.ini",
        "model-hashes.json",
        "speeds.json",
        "inglenook.lock",
        "logs/inglenook.log.1",
        "backups/conversations-1.sqlite3",
        "models/starter/model.gguf",
    )
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("words")
        (folder / name).chmod(0o664)
    foreign.write_text("not ours")
    (folder / "models" / "link.gguf").symlink_to(foreign)
    (folder / "notes of the user.txt").write_text("the user chose a folder that was there")
    for path in (
        folder,
        folder / "logs",
        folder / "backups",
        folder / "models",
        folder / "models" / "starter",
    ):
        path.chmod(0o775)
    for path in (foreign, folder / "notes of the user.txt"):
        path.chmod(0o644)
    assert close_data(folder) == ""
    assert open_to_others(folder) - {"models/link.gguf"} == {"notes of the user.txt"}
    assert stat.S_IMODE(foreign.stat().st_mode) == 0o644
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o701])
def test_a_folder_that_stays_open_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """For example on a file system without permissions."""

    def refused(self: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    tmp_path.chmod(mode)
    monkeypatch.setattr(Path, "chmod", refused)
    assert data_folder(tmp_path) == tmp_path
    Database(tmp_path / "conversations.sqlite3").close()
    assert "Other users of this computer can open your chats" in close_data(tmp_path)


START = """
import os, sys
from pathlib import Path
from PySide6.QtCore import QTimer
from desktop import app
start = app.Desktop.start

def started(self, *rest):
    start(self, *rest)
    QTimer.singleShot(300, self.end_requested.emit)

app.Desktop.start = started
os.umask(0o022)
raise SystemExit(app.run(data=Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_a_whole_run_leaves_nothing_open(tmp_path: Path) -> None:
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", START, str(tmp_path / "data")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "data" / "window.ini").exists()
    assert open_to_others(tmp_path / "data") == set()


def test_a_database_in_memory_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    database = Database(Path(":memory:"))
    ConversationStore(database).create("Temporary")
    database.close()
    assert list(tmp_path.iterdir()) == []
