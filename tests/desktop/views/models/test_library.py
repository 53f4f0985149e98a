"""The model library over a fake engine: find, estimate, load, cancel, remove, settings; the hub's page."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QAccessible, QImage, QScreen
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLineEdit,
    QPlainTextEdit,
)

from desktop.app import EngineApi
from desktop.items.models.library import COLUMNS, LibraryModel
from desktop.settings import Behaviour
from desktop.views.models.library_details import LibraryDetails
from desktop.views.models.library_table import LibraryTable
from desktop.views.models.library_window import LibraryWindow
from desktop.views.models.model_defaults import advice_text
from engine.core import ModelInfo
from engine.errors import BadCheckpoint
from engine.hub.local.scan import FoundModel
from engine.settings import CacheSettings, LoadSettings, SamplerSettings
from tests.desktop.fakes import EchoApi
from tests.desktop.hand import Hand, no_fetch
from tests.desktop.services.models.test_hub import FakeHub
from tests.work import calls_in

Key = Qt.Key


class Shelf(EchoApi):
    """Models "m0", "m1", ... in a folder; those named "broken..." are refused; odd ones have makers who
    advise.
    """

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__()
        self.folder, self.names = folder, [f"m{number}" for number in range(count)]
        self.measured = 0

    def describe(self, path: Path) -> ModelInfo:
        if path.stem.startswith("broken"):
            raise BadCheckpoint("The file ends after 1 GB, but its headers call for 4 GB; download it again.")
        advised = (("temperature", 0.6), ("top_k", 20)) if path.stem[-1] in "13579" else ()
        return dataclasses.replace(
            super().describe(path), defaults=advised, quantisation="Q4_K_M", licence="mit"
        )

    def find(self, folders: Sequence[tuple[str, str]], stop: threading.Event) -> Iterator[FoundModel]:
        for name in self.names:
            (self.folder / f"{name}.gguf").touch()
            yield FoundModel(
                self.folder / f"{name}.gguf", name, "Ollama" if name.endswith("2") else "LM Studio"
            )

    def measure(self, threads: int) -> float:
        self.measured += 1
        return 40e9


class Deck:
    """The window with its library open."""

    def __init__(self, qtbot, folder: Path, count: int = 3) -> None:
        self.shelf, self.hub = Shelf(folder, count), FakeHub()
        shelf = self.shelf
        api = EngineApi(
            shelf.open_chat,
            shelf.describe,
            no_fetch,
            shelf.draft_problem,
            shelf.find,
            shelf.measure,
            self.hub,
        )
        self.hand, self.folder, self.qtbot = Hand(qtbot, folder, self.shelf, api=api), folder, qtbot
        self.open()

    def open(self) -> None:
        QTest.keyClick(
            self.hand.window,
            Key.Key_M,
            Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier,
        )
        self.qtbot.waitUntil(lambda: not self.window.local._searching)

    @property
    def window(self) -> LibraryWindow:
        assert self.hand.window.model_controller.library is not None
        return self.hand.window.model_controller.library

    @property
    def session(self):
        return self.hand.session

    def path(self, name: str) -> str:
        return str(self.folder / f"{name}.gguf")

    def shown(self, column: str = "Name") -> list[str]:
        rows = self.window.models
        return [rows.index(row, COLUMNS.index(column)).data() for row in range(rows.rowCount())]

    def until_shown(self, *names: str) -> None:
        self.qtbot.waitUntil(lambda: self.shown() == list(names))

    def select(self, name: str) -> None:
        self.window.local.table.select(self.path(name))
        assert self.window.local.table.path() == self.path(name)


@pytest.fixture
def make(qtbot, qapp, tmp_path) -> Iterator:
    decks: list[Deck] = []

    def made(count: int = 3) -> Deck:
        decks.append(Deck(qtbot, tmp_path, count))
        return decks[-1]

    yield made
    for deck in decks:
        deck.hand.close()


@pytest.fixture
def deck(make) -> Deck:
    return make()


# -- what is found


def test_models_are_found_estimated_and_described(deck: Deck) -> None:
    deck.until_shown("m0", "m1", "m2")
    deck.qtbot.waitUntil(lambda: all(text.startswith("≈") for text in deck.shown("Speed")))
    assert all(text.startswith("Fits, ") for text in deck.shown("Memory"))
    deck.select("m1")
    details = deck.window.local.details
    assert details.name.text().replace("\u200b", "") == "m1"
    assert details.memory.text().startswith("It needs ")
    assert details.speed.text().startswith("Estimated")
    assert deck.window.local.count.text() == "3 models"
    assert deck.shelf.measured == 1


@pytest.mark.slow
def test_search_and_source(deck: Deck) -> None:
    local = deck.window.local
    QTest.keyClicks(local.query, "M1")
    deck.until_shown("m1")
    assert local.count.text() == "1 of 3 models"
    QTest.keyClicks(local.query, "zzz")
    deck.until_shown()
    assert local.nothing.isVisible()
    assert local.nothing.text().startswith("No matching models")
    local.query.clear()
    local.source.setCurrentText("Ollama")
    local.source.activated.emit(local.source.currentIndex())
    deck.until_shown("m2")


def test_a_broken_model_says_why_and_cannot_be_loaded(deck: Deck) -> None:
    deck.shelf.names = ["m0", "broken1"]
    deck.window.local.again.click()
    deck.until_shown("broken1", "m0")
    deck.select("broken1")
    details = deck.window.local.details
    assert (
        details.trouble.text()
        == "The file ends after 1 GB, but its headers call for 4 GB; download it again."
    )
    assert not details.load.isVisible()
    assert not details.kept.isVisible()
    QTest.keyClick(deck.window.local.table, Key.Key_Return)
    assert deck.shelf.opened == []
    deck.select("m0")
    assert details.load.isVisible()
    assert not details.trouble.isVisible()


def test_one_model_is_selected_when_all_are_found(deck: Deck) -> None:
    """The details have something to show; what the user selects stays."""
    local = deck.window.local
    assert local.table.path() == deck.path("m0")
    assert local.details.load.isVisible()
    assert local.query.hasFocus()
    deck.select("m2")
    local.again.click()
    deck.qtbot.waitUntil(lambda: not local._searching)
    assert local.table.path() == deck.path("m2")


def test_an_empty_library_says_what_to_do(make) -> None:
    deck = make(0)
    assert deck.window.local.nothing.isVisible()
    assert deck.window.local.nothing.text().startswith("No models were found")
    assert not deck.window.local.details.isVisible()


def test_the_button_of_an_empty_library_shows_models_to_get(make) -> None:
    deck = make(0)
    local = deck.window.local
    local.get.click()
    assert deck.window.tabs.currentWidget() is deck.window.hub
    deck.window.tabs.setCurrentWidget(local)
    deck.shelf.names = ["m0"]
    local.again.click()
    assert not local.get.isVisible()  # while it looks for models
    deck.until_shown("m0")
    assert local.details.isVisible()
    QTest.keyClicks(local.query, "zzz")
    deck.until_shown()
    assert local.nothing.isVisible()
    assert not local.get.isVisible()


def test_on_a_small_screen_the_window_is_no_higher_than_the_screen(make, monkeypatch) -> None:
    small = QRect(0, 0, 683, 384)
    monkeypatch.setattr(QScreen, "availableGeometry", lambda self: small)
    deck = make(3)
    window = deck.window
    assert window.height() < small.height()
    assert window.width() <= small.width()
    load = window.local.details.load
    deck.qtbot.waitUntil(lambda: load.visibleRegion().boundingRect() == load.rect())


def test_enter_in_the_search_box_opens_no_file(deck: Deck) -> None:
    local, asked = deck.window.local, []
    local.file_requested.disconnect()
    local.file_requested.connect(lambda: asked.append("file"))
    QTest.keyClicks(local.query, "m1")
    deck.until_shown("m1")
    QTest.keyClick(local.query, Key.Key_Return)
    assert asked == []
    assert local.table.hasFocus()
    local.open_file.setFocus()
    QTest.keyClick(local.open_file, Key.Key_Return)
    assert asked == ["file"]


# -- load, cancel, unload


def test_load_with_progress_and_unload(deck: Deck) -> None:
    local = deck.window.local
    deck.shelf.load_steps, deck.shelf.load_hold = 4, threading.Event()
    deck.select("m1")
    local.details.load.click()
    deck.qtbot.waitUntil(
        lambda: local.bar.isVisible() and local.doing.text() == "Loading weights" and local.bar.value() > 0
    )
    deck.shelf.load_hold.set()
    deck.hand.wait_for("idle")
    assert not local.bar.isVisible()
    assert deck.shown() == ["m0", "m1  (loaded)", "m2"]
    assert local.details.load.text() == "Unload"
    assert local.details.load.property("tone") != "primary"
    local.details.load.click()
    deck.hand.wait_for("no_model")
    assert deck.shown() == ["m0", "m1", "m2"]
    assert local.details.load.text() == "Load"


def test_cancel_loading(deck: Deck) -> None:
    deck.shelf.load_steps, deck.shelf.load_delay_s = 1000, 0.02
    deck.select("m0")
    QTest.keyClick(deck.window.local.table, Key.Key_Return)
    deck.qtbot.waitUntil(lambda: deck.window.local.stop.isVisible())
    deck.window.local.stop.click()
    deck.hand.wait_for("no_model")
    assert not deck.window.local.stop.isVisible()
    assert deck.session.model is None


@pytest.mark.slow
def test_a_failed_load_is_shown_in_the_library(deck: Deck) -> None:
    deck.shelf.fail_with = BadCheckpoint("m0.gguf is damaged; download it again.")
    deck.select("m0")
    deck.window.local.details.load.click()
    deck.qtbot.waitUntil(lambda: deck.window.trouble.isVisible())
    assert deck.window.trouble.text() == "m0.gguf is damaged; download it again."


@pytest.mark.slow
def test_the_menu_of_a_model(deck: Deck) -> None:
    deck.select("m1")
    entry = deck.window.models.entry(deck.path("m1"))
    assert entry is not None
    menu = deck.window.local.make_menu(entry)
    assert [action.text() for action in menu.actions() if action.text()] == [
        "Load",
        "Show in folder",
        "Remove from list",
    ]
    menu.actions()[0].trigger()
    deck.hand.wait_for("idle")
    assert deck.shelf.opened == [Path(deck.path("m1"))]


# -- what stays


def test_remove_from_the_list_and_restore(deck: Deck) -> None:
    deck.select("m1")
    QTest.keyClick(deck.window.local.table, Key.Key_Delete)
    deck.until_shown("m0", "m2")
    assert Path(deck.path("m1")).exists()
    deck.window.local.folders.menu().aboutToShow.emit()
    (again,) = [action for action in deck.window.local.folders.menu().actions() if "removed" in action.text()]
    assert again.text() == "Restore 1 removed model"
    again.trigger()
    deck.until_shown("m0", "m1", "m2")


def test_folders(deck: Deck, tmp_path: Path) -> None:
    deck.window._add_folder(tmp_path / "mine")
    assert deck.session.preferences.model_folders == (str(tmp_path / "mine"),)
    menu = deck.window.local.folders.menu()
    menu.aboutToShow.emit()
    (remove,) = [action for action in menu.actions() if action.text().startswith("Remove ")]
    remove.trigger()
    assert deck.session.preferences.model_folders == ()


@pytest.mark.slow
def test_kept_settings(deck: Deck) -> None:
    kept = deck.window.local.details.kept
    deck.select("m1")
    assert kept.isVisible()
    assert (
        kept.advice.text() == "The model author recommends: temperature 0.6, top K 20. "
        "These settings are used when the model is loaded."
    )
    assert not kept.use_advice.isVisible()
    deck.session.set_settings(Behaviour(makers_advice=False))
    assert kept.advice.text().endswith(
        "These settings are not used, because “Use recommended sampling” is off in Preferences."
    )
    kept.use_advice.click()
    assert not kept.use_advice.isVisible()
    assert deck.session.preferences.kept(deck.path("m1"), SamplerSettings) == {
        "temperature": 0.6,
        "top_k": 20,
    }
    kept.rows["dtype"].editor.edited.emit("q8")
    assert kept.rows["dtype"].reset.isVisible()
    deck.window.local.details.load.click()
    deck.hand.wait_for("idle")
    assert deck.shelf.settings[-1][1].dtype == "q8"
    assert deck.session.settings(SamplerSettings).temperature == 0.6
    kept.forget_advice.click()
    assert deck.session.settings(SamplerSettings).temperature == SamplerSettings().temperature
    kept.rows["dtype"].reset.click()
    assert deck.session.settings_for(deck.path("m1"), CacheSettings) == CacheSettings()
    deck.select("m2")
    assert kept.advice.text() == "The model author recommends no sampling settings."


def test_a_template_from_a_file(deck: Deck, tmp_path: Path) -> None:
    kept = deck.window.local.details.kept
    deck.select("m0")
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}\n", "utf-8")
    kept.take_template(tmp_path / "t.jinja")
    assert (
        deck.session.settings_for(deck.path("m0"), LoadSettings).chat_template
        == "{{ messages[0].content }}\n"
    )
    assert kept.rows["chat_template"].editor.value().startswith("{{ messages")
    (tmp_path / "bad.jinja").write_bytes(b"\xff\xfe\x00")
    kept.take_template(tmp_path / "bad.jinja")
    assert deck.window.trouble.text() == "bad.jinja is not a text file. Choose another file."
    (tmp_path / "big.jinja").write_bytes(b" " * 2_000_000)
    kept.take_template(tmp_path / "big.jinja")
    assert "too large" in deck.window.trouble.text()
    kept.take_template(tmp_path / "gone.jinja")
    assert "gone.jinja" in deck.window.trouble.text()


def test_advice_text() -> None:
    assert (
        advice_text((("temperature", 0.6), ("top_p", 0.95), ("top_k", 20)))
        == "temperature 0.6, top P 0.95, top K 20"
    )


# -- the hub's page


def test_search_choose_and_download(deck: Deck) -> None:
    page = deck.window.hub
    deck.window.tabs.setCurrentWidget(page)
    QTest.keyClicks(page.query, "qwen")
    QTest.keyClick(page.query, Key.Key_Return)
    deck.qtbot.waitUntil(lambda: page.found.rowCount() == 3)
    page.results.setCurrentIndex(page.found.index(0))
    deck.qtbot.waitUntil(lambda: page.choices.rowCount() == 2)
    assert page.get.text() == "Download Q2_K"
    page.options.setCurrentIndex(page.choices.index(1))
    deck.hub.gate = threading.Semaphore(5)
    page.get.click()
    key = ("org/qwen-0", "Q4_K_M")
    deck.qtbot.waitUntil(lambda: bool(page.downloads._rows) and page.downloads.row(key).bar.value() == 500)
    row = page.downloads.row(key)
    assert row.pause.isVisible()
    assert not row.load.isVisible()
    row.pause.click()
    deck.qtbot.waitUntil(row.resume.isVisible)
    assert "Paused" in row.text.text()
    deck.hub.gate.release(20)
    row.resume.click()
    deck.qtbot.waitUntil(row.load.isVisible)
    row.load.click()
    deck.hand.wait_for("idle")
    assert deck.shelf.opened[-1].name == "Q4_K_M.gguf"
    row.done.click()
    deck.qtbot.waitUntil(lambda: not page.downloads._rows)


@pytest.mark.slow
def test_no_room_no_download(deck: Deck) -> None:
    page = deck.window.hub
    deck.window.tabs.setCurrentWidget(page)
    page.search()
    deck.qtbot.waitUntil(lambda: page.found.rowCount() == 3)
    page.results.setCurrentIndex(page.found.index(0))
    deck.qtbot.waitUntil(lambda: page.choices.rowCount() == 2)
    chosen = page.choices.choice(0)
    assert chosen is not None
    page.choices.set_rows([dataclasses.replace(chosen, fits_disk=False)])
    page.options.setCurrentIndex(page.choices.index(0))
    assert not page.get.isEnabled()
    page.options.activated.emit(page.choices.index(0))
    assert deck.hand.desktop.services.hub.downloads == ()


def test_offline(deck: Deck) -> None:
    page = deck.window.hub
    deck.window.tabs.setCurrentWidget(page)
    page.offline.click()
    assert not page.query.isEnabled()
    assert page.note.text().startswith("You are working offline")
    page.search()
    assert page.note.text().startswith("You are working offline")
    page.offline.click()
    assert page.query.isEnabled()
    reported = [state for state, _ in itertools.groupby(deck.hub.offline)]  # each question tells it once more
    assert reported[-2:] == [True, False]


def test_the_token_is_not_left_in_the_field(deck: Deck) -> None:
    token = deck.window.hub.token
    deck.window.tabs.setCurrentWidget(deck.window.hub)
    QTest.keyClicks(token.field, "hf_secret")
    assert token.field.echoMode() == QLineEdit.EchoMode.Password
    token.save.click()
    deck.qtbot.waitUntil(lambda: token.where.text() == "The token is saved in the system's keyring.")
    assert token.field.text() == ""
    assert deck.hub.token == "hf_secret"
    token.remove.click()
    deck.qtbot.waitUntil(lambda: deck.hub.token == "")


# -- for everybody


def test_everything_has_a_name_and_can_be_reached(deck: Deck) -> None:
    deck.select("m1")
    for tab in (deck.window.local, deck.window.hub):
        deck.window.tabs.setCurrentWidget(tab)
        kinds = (QAbstractButton, QLineEdit, QComboBox, QAbstractSpinBox, QPlainTextEdit)
        for kind in kinds:
            for control in tab.findChildren(kind):
                if control.isVisible() and control.objectName() != "qt_spinbox_lineedit":
                    interface = QAccessible.queryAccessibleInterface(control)
                    named = interface.text(QAccessible.Text.Name) or control.parent().accessibleName()
                    assert named, control
                    if control.isEnabled() and not isinstance(control.parent(), QLineEdit):
                        assert control.focusPolicy() & Qt.FocusPolicy.TabFocus or isinstance(
                            control.parent(), QAbstractSpinBox
                        ), control


def test_tab_leaves_the_table(deck: Deck) -> None:
    table = deck.window.local.table
    deck.select("m0")
    table.setFocus()
    QTest.keyClick(table, Key.Key_Down)
    assert table.path() == deck.path("m1")
    QTest.keyClick(table, Key.Key_Tab)
    assert not table.hasFocus()


def test_a_narrow_window_puts_the_details_below(deck: Deck) -> None:
    local = deck.window.local
    deck.window.resize(1200, 700)
    deck.qtbot.waitUntil(lambda: local.split.orientation() == Qt.Orientation.Horizontal)
    deck.window.resize(560, 600)
    deck.qtbot.waitUntil(lambda: local.split.orientation() == Qt.Orientation.Vertical)


@pytest.mark.slow
def test_a_thousand_models(make) -> None:
    """A repaint, and scrolling, cost what the rows on screen cost, however many there are."""
    deck = make(1000)
    deck.qtbot.waitUntil(lambda: len(deck.shown()) == 1000)
    table = deck.window.local.table
    bar, rows = table.verticalScrollBar(), table.viewport().height() // table.rowHeight(0) + 2
    picture = QImage(table.viewport().size(), QImage.Format.Format_RGB32)
    table.viewport().render(picture)
    most = 1000 * rows
    assert calls_in(lambda: table.viewport().render(picture)) < most
    for value in range(0, bar.maximum(), max(1, bar.maximum() // 20)):

        def scroll(value: int = value) -> None:
            bar.setValue(value)
            table.viewport().repaint()

        assert calls_in(scroll) < most


def facts(details: LibraryDetails) -> list[str]:
    """What a screen reader reads of the facts that are shown."""
    return [value.accessibleName() for _title, value in details.facts.pairs]


def test_facts_and_field_agree_on_the_template_that_is_used(deck: Deck) -> None:
    def fact() -> str:
        return next(name for name in facts(details) if name.startswith("Chat template:"))

    deck.until_shown("m0", "m1", "m2")
    local = deck.window.local
    details, entry = local.details, local.models.entry(deck.path("m1"))
    bare = dataclasses.replace(entry.info, has_chat_template=False, fallback_template="gemma")
    for info, words in ((entry.info, "the model's own"), (bare, "none; the general template Gemma is used")):
        details.show_entry(dataclasses.replace(entry, info=info), None)
        assert fact() == f"Chat template: {words}"
        assert details.kept.rows["chat_template"].editor.box.placeholderText() == words
    details.kept._keep(LoadSettings, "chat_template", "{{ messages }}")
    assert fact() == "Chat template: yours; the model has none"
    details.kept._forget(LoadSettings, "chat_template")
    assert fact() == "Chat template: none; the general template Gemma is used"


def test_the_use_of_an_embedding_model(deck: Deck) -> None:
    deck.until_shown("m0", "m1", "m2")
    local = deck.window.local
    details, entry = local.details, local.models.entry(deck.path("m1"))
    deck.select("m1")
    deck.qtbot.waitUntil(lambda: details.speed.isVisibleTo(details))
    fit = local.models.fit(deck.path("m1"))
    assert fit is not None
    details.show_entry(dataclasses.replace(entry, info=dataclasses.replace(entry.info, embedding=True)), fit)
    assert "Use: embedding model, for passages of files and the local server" in facts(details)
    assert not any(name.startswith("Pictures:") for name in facts(details))


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ({}, "not read"),
        ({"reads_pictures": True}, "read by the model's own vision encoder"),
        (
            {"reads_pictures": True, "vision_file": f"/m/blobs/sha256-{'b' * 64}"},
            "read by the model's own vision encoder",
        ),
        ({"lacks_vision_file": True}, "not read: its vision encoder, an mmproj file, is missing"),
        (
            {"reads_pictures": True, "vision_file": "/m/mmproj-F16.gguf", "vision_file_bytes": 850_000_000},
            "read by the vision encoder in mmproj-F16.gguf (850 MB)",
        ),
    ],
)
def test_facts_say_whether_pictures_are_read(deck: Deck, seen: dict[str, object], text: str) -> None:
    deck.until_shown("m0", "m1", "m2")
    details, entry = deck.window.local.details, deck.window.local.models.entry(deck.path("m1"))
    details.show_entry(dataclasses.replace(entry, info=dataclasses.replace(entry.info, **seen)), None)
    assert f"Pictures: {text}" in facts(details)
    assert not details.speed.isVisibleTo(details)


def test_no_column_is_hidden_sideways(qtbot, qapp) -> None:
    table = LibraryTable(LibraryModel())
    qtbot.addWidget(table)
    table.show()
    columns, name = range(len(COLUMNS)), "Mistral-Small-24B-Instruct-Q4_K_M  (loaded)"
    for points in (9, 14):
        font = table.font()
        font.setPointSize(points)
        table.setFont(font)
        counts = []
        for width in (1800, 1180, 900, 640, 460, 300):
            table.resize(width, 300)
            QApplication.processEvents()
            shown = [column for column in columns if not table.isColumnHidden(column)]
            assert table.horizontalScrollBar().maximum() == 0
            assert shown[0] == 0
            assert sum(map(table.columnWidth, shown)) == table.viewport().width()
            assert table.columnWidth(0) >= table.fontMetrics().averageCharWidth() * 10
            if len(shown) > 4:  # names are cut for the three columns that matter most only
                assert table.columnWidth(0) >= table.fontMetrics().horizontalAdvance(name)
            counts.append(len(shown))
        assert counts == sorted(counts, reverse=True)
        assert counts[-1] < counts[0]


def test_a_column_stays_as_wide_as_the_user_made_it(qtbot, qapp) -> None:
    table = LibraryTable(LibraryModel())
    qtbot.addWidget(table)
    table.show()
    table.resize(1400, 300)
    column = COLUMNS.index("Memory")
    before = table.columnWidth(column)
    table.horizontalHeader().resizeSection(column, before + 40)
    table.resize(1402, 300)
    QApplication.processEvents()
    assert table.columnWidth(column) == before + 40
    assert table.horizontalScrollBar().maximum() == 0


def test_both_lists_of_the_hub_begin_at_the_same_height(deck: Deck) -> None:
    hub = deck.window.hub
    deck.window.tabs.setCurrentWidget(hub)
    hub._pages.setCurrentIndex(1)
    deck.qtbot.waitUntil(lambda: hub.options.mapTo(hub, QPoint()).y() == hub.results.mapTo(hub, QPoint()).y())
    hub._show_about("Looking.")
    deck.qtbot.waitUntil(lambda: hub.options.mapTo(hub, QPoint()).y() > hub.results.mapTo(hub, QPoint()).y())
    assert hub.about.mapTo(hub, QPoint()).y() == hub.results.mapTo(hub, QPoint()).y()
