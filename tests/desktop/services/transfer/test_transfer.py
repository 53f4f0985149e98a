"""Import and export without a window: temporary conversations, the open chat while it grows, an end in the
middle.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from pypdf import PdfReader

from desktop.services.transfer import export_job, transfer
from desktop.services.transfer.export_job import Choice, export
from desktop.services.transfer.transfer import PDF, TransferService
from desktop.services.transfer.transfer_report import Exported, ImportReport
from desktop.store.database.database import Database
from desktop.store.transfer.importers.run import import_conversations
from desktop.store.transfer.records import Imported
from tests.desktop.store.database.test_full_disk import full
from tests.desktop.store.transfer.importers.files import chatgpt, written


def waiting(harness, signal) -> list[object]:
    found: list[object] = []
    signal.connect(found.append)
    return found


def test_a_temporary_chat_is_exported_but_never_stored(harness, tmp_path) -> None:
    service = TransferService(harness.stores)
    talk = harness.stores.temporary.create("Secret").id
    harness.stores.temporary.add_message(talk, None, "user", "Nobody knows")
    ended = waiting(harness, service.exported)
    service.export([talk], "Markdown", tmp_path / "a.md")
    harness.qtbot.waitUntil(lambda: bool(ended))
    assert ended == [Exported(tmp_path / "a.md", 1)]
    assert "Nobody knows" in (tmp_path / "a.md").read_text()
    assert "Nobody knows" in service.markdown(talk)
    assert all(row.title != "Secret" for row in harness.store.list())
    assert service.close()


def test_the_open_chat_shows_imported_messages(harness, tmp_path) -> None:
    service = TransferService(harness.stores)
    service.importing.connect(lambda report: harness.session.catch_up(report.changed))
    ended = waiting(harness, service.imported)
    short = json.loads(json.dumps(chatgpt()))
    for key in ("v", "w"):
        del short["mapping"][key]
    short |= {"current_node": "a"}
    for value in (short, chatgpt()):
        service.import_files([written(tmp_path / "a.json", [value])])
        harness.qtbot.waitUntil(lambda: bool(ended))
        report = ended.pop()
        assert isinstance(report, ImportReport)
        harness.session.catch_up(report.changed)
        if value is short:
            assert (report.new, report.messages) == (1, 3)
            harness.session.open_conversation(report.first)
            assert len(harness.texts()) == 2
    assert (report.extended, report.messages) == (1, 2)
    assert harness.texts()[-2:] == ["Thanks", "Gladly."]
    assert service.close()


def test_an_import_without_room_ends_with_a_sentence(harness, tmp_path, monkeypatch) -> None:
    second = Database.second

    def no_room(path):
        found = second(path)
        full(found)
        return found

    monkeypatch.setattr(Database, "second", no_room)
    service = TransferService(harness.stores)
    ended = waiting(harness, service.imported)
    service.import_files(
        [written(tmp_path / "a.json", [chatgpt(number, "x" * 50_000) for number in range(9)])]
    )
    harness.qtbot.waitUntil(lambda: bool(ended))
    assert "not enough disk space" in ended[0].trouble
    assert harness.store.list(deleted=True) == ()
    assert all(not row.title.startswith("Sky") for row in harness.store.list())
    assert service.close()


def test_closing_stops_the_job_and_leaves_no_partial_file(harness, tmp_path) -> None:
    service = TransferService(harness.stores)
    numbers = [harness.store.create(f"Talk {number}").id for number in range(40)]
    for number in numbers:
        harness.store.add_message(number, None, "user", "some words of a message\n" * 300)
    (tmp_path / "out").mkdir()
    service.export(numbers, PDF, tmp_path / "out")
    harness.qtbot.waitUntil(lambda: any(path.suffix == ".pdf" for path in (tmp_path / "out").iterdir()))
    assert service.close()
    written_files = list((tmp_path / "out").iterdir())
    assert 0 < len(written_files) < 40
    assert all(
        path.suffix == ".pdf" and path.read_bytes().rstrip().endswith(b"%%EOF") for path in written_files
    )


def test_one_pdf_file_has_all_the_chats(harness, tmp_path) -> None:
    service = TransferService(harness.stores)
    numbers = [harness.store.create(title).id for title in ("Apples", "Pears")]
    for number in numbers:
        harness.store.add_message(number, None, "user", "some words")
    ended = waiting(harness, service.exported)
    service.export(numbers, PDF, tmp_path / "a.pdf")
    harness.qtbot.waitUntil(lambda: bool(ended))
    assert ended == [Exported(tmp_path / "a.pdf", 2)]
    pages = [page.extract_text() for page in PdfReader(tmp_path / "a.pdf").pages]
    assert [title in page for title, page in zip(("Apples", "Pears"), pages, strict=True)] == [True, True]
    assert service.close()


def outcome(path: Path, ids: list[int], label: str, target: Path, **choice: bool) -> Exported:
    """What an export comes to, without a thread."""
    events = export(path, Choice(ids, **choice), label, target, threading.Event())
    try:
        while True:
            next(events)
    except StopIteration as end:
        return end.value


@pytest.fixture
def thinking(harness) -> int:
    chat = harness.store.create("Talk / one").id
    harness.store.add_message(chat, None, "assistant", "<think>\nHm.\n</think>\nYes.")
    return chat


@pytest.mark.parametrize(("label", "ending", "kept"), [
    ("Markdown", ".md", False), ("Web page", ".html", False), ("Lossless JSON", ".inglenook.json", True),
])  # fmt: skip
def test_files_in_a_folder_are_those_that_are_written_alone(
    harness, tmp_path, thinking: int, label: str, ending: str, kept: bool
) -> None:
    path, folder, alone = harness.database.path, tmp_path / "out", tmp_path / "alone"
    folder.mkdir()
    assert outcome(path, [thinking], label, alone, thoughts=False) == Exported(alone, 1)
    assert outcome(path, [thinking], label, folder, thoughts=False) == Exported(folder, 1)
    assert [file.name for file in folder.iterdir()] == [f"Talk one{ending}"]
    assert (folder / f"Talk one{ending}").read_text() == alone.read_text()
    assert "Yes." in alone.read_text()
    assert ("Hm." in alone.read_text()) == kept


def test_an_export_of_what_is_gone_ends_with_a_sentence(harness, tmp_path, thinking: int) -> None:
    target = tmp_path / "a.md"
    for path, number in ((harness.database.path, thinking + 1), (tmp_path / "gone" / "chats", thinking)):
        found = outcome(path, [thinking, number], "Markdown", target)
        assert (found.count, found.cancelled, target.exists()) == (0, False, False)
        assert found.trouble


def test_the_file_of_chats_is_closed_again(harness, tmp_path, thinking: int, monkeypatch) -> None:
    """Elsewhere an open file can neither be moved nor replaced by a backup."""
    opened: list[Database] = []
    closed: list[Database] = []
    second, close = Database.second, Database.close
    monkeypatch.setattr(Database, "close", lambda found: closed.append(found) or close(found))
    monkeypatch.setattr(Database, "second", lambda path: opened.append(second(path)) or opened[-1])
    assert outcome(harness.database.path, [thinking], "Markdown", tmp_path / "a.md").count == 1
    service = TransferService(harness.stores)
    imported = waiting(harness, service.imported)
    service.import_files([written(tmp_path / "a.json", [chatgpt()])])
    harness.qtbot.waitUntil(lambda: bool(imported))
    assert service.close()
    assert len(opened) == 2
    assert closed == opened


def test_a_stopped_export_leaves_no_file(harness, tmp_path, thinking: int, monkeypatch) -> None:
    monkeypatch.setattr(export_job, "REPORT_S", 1e12)  # a window that is told of each piece would stand still
    whole = export(harness.database.path, Choice([thinking]), "Markdown", tmp_path / "a", threading.Event())
    assert list(whole) == []
    monkeypatch.setattr(export_job, "REPORT_S", 0.0)
    for label, target in (("Markdown", tmp_path / "a.md"), (PDF, tmp_path / "a.pdf")):
        stop = threading.Event()
        events = export(harness.database.path, Choice([thinking] * 9), label, target, stop)
        next(events)
        stop.set()
        with pytest.raises(StopIteration) as end:
            next(events)
        assert (end.value.value.target, end.value.value.cancelled) == (target, True)
        assert not [path for path in tmp_path.iterdir() if path.suffix in (".md", ".pdf", ".part")]


def test_what_waits_can_be_cancelled_and_the_service_is_busy_until_then(harness, tmp_path, thinking) -> None:
    service = TransferService(harness.stores)
    assert (service.busy, service.importing_now, service.exporting_now) == (False, False, False)
    imported, exported = waiting(harness, service.imported), waiting(harness, service.exported)
    file = written(tmp_path / "a.json", [chatgpt()])
    service.import_files([file, file])
    service.export([thinking], "Markdown", tmp_path / "a.md")
    assert (service.busy, service.importing_now, service.exporting_now) == (True, True, True)
    service.cancel_import()
    service.cancel_export()
    harness.qtbot.waitUntil(lambda: bool(imported and exported))
    assert (service.busy, service.importing_now, service.exporting_now) == (False, False, False)
    assert (imported[0].cancelled, imported[0].trouble) == (True, "")
    assert (exported[0].cancelled, exported[0].trouble, exported[0].count) == (True, "", 0)
    assert not (tmp_path / "a.md").exists()
    service.import_files([file, file])
    harness.qtbot.waitUntil(lambda: len(imported) == 2)
    report = imported[1]
    assert (report.files, report.new, report.known, report.share) == (2, 1, 1, 1.0)
    assert (report.cancelled, report.trouble) == (False, "")
    assert service.close()


def test_an_import_into_a_file_that_is_gone_ends_with_a_sentence(harness, tmp_path, monkeypatch) -> None:
    service = TransferService(harness.stores)
    imported = waiting(harness, service.imported)
    monkeypatch.setattr(harness.stores.database, "path", tmp_path / "gone" / "chats.sqlite3")
    service.import_files([written(tmp_path / "a.json", [chatgpt()])])
    harness.qtbot.waitUntil(lambda: bool(imported))
    assert imported[0].trouble
    assert (imported[0].new, imported[0].cancelled) == (0, False)
    assert service.close()


def test_a_cancelled_import_stops_after_the_chat_it_is_at(harness, tmp_path, monkeypatch) -> None:
    service, goes_on = TransferService(harness.stores), threading.Event()
    imported, reports = waiting(harness, service.imported), list[ImportReport]()
    monkeypatch.setattr(transfer, "REPORT_S", 0.0)

    def held(*what: object, **more: object):
        for event in import_conversations(*what, **more):
            yield event
            if isinstance(event, Imported):
                assert goes_on.wait(60)

    def cancel(report: ImportReport) -> None:
        reports.append(report)
        if report.new:
            service.cancel_import()
            goes_on.set()

    monkeypatch.setattr("desktop.store.transfer.importers.run.import_conversations", held)
    service.importing.connect(cancel)
    service.import_files([
        written(tmp_path / f"{name}.json", [chatgpt(number), chatgpt(number + 1)])
        for name, number in (("a", 1), ("b", 3))
    ])  # fmt: skip
    harness.qtbot.waitUntil(lambda: bool(imported))
    (report,) = imported
    assert (report.new, report.cancelled, report.trouble) == (1, True, "")
    assert [row.title for row in harness.store.list() if row.title.startswith("Sky")] == ["Sky 1"]
    assert sum(len(each.changed) for each in reports) == 1  # a chat is told of once
    assert service.close()


def test_what_goes_wrong_unexpectedly_is_a_sentence(harness, tmp_path, thinking, monkeypatch) -> None:
    def broken(*_what: object, **_more: object) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr("desktop.store.transfer.importers.run.import_conversations", broken)
    monkeypatch.setattr(export_job, "export_conversations", broken)
    service = TransferService(harness.stores)
    imported, exported = waiting(harness, service.imported), waiting(harness, service.exported)
    service.import_files([tmp_path / "a.json"])
    service.export([thinking], "Markdown", tmp_path / "a.md")
    harness.qtbot.waitUntil(lambda: bool(imported and exported))
    for found in (imported[0], exported[0]):
        assert "Something went wrong" in found.trouble
        assert not found.cancelled
    assert not service.busy
    assert service.close()
