"""Import and export without a window: temporary conversations, the open chat while it grows, an end in the
middle.
"""

from __future__ import annotations

import json

from pypdf import PdfReader

from desktop.services.transfer.transfer import PDF, TransferService
from desktop.services.transfer.transfer_report import Exported, ImportReport
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
    from desktop.store.database.database import Database

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
