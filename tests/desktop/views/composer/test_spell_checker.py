"""What the message box underlines, and what its menu offers instead."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QObject, QSize, Qt, Signal
from PySide6.QtGui import QContextMenuEvent, QTextCharFormat
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu
from pytestqt.qtbot import QtBot

from desktop.views.composer.message_edit import MessageEdit
from desktop.views.composer.spell_checker import WORDS_A_STEP, SpellChecker
from tests.desktop.spelling import FakeDictionary, FakeEnchant

pytestmark = pytest.mark.gui
WAVE = QTextCharFormat.UnderlineStyle.SpellCheckUnderline
RIGHT = {"peas", "are", "green", "don't", "sow", "them", "früh"}


class Spelling(QObject):
    """Stands for `SpellingService`, with its dictionary loaded from the beginning."""

    changed = Signal()
    languages = ("en_GB", "xx")
    language = "en_GB"

    def __init__(self) -> None:
        super().__init__()
        self.library = FakeEnchant({"en_GB": set(RIGHT)})
        self.words = FakeDictionary(self.library, "en_GB")
        self.looked_up: dict[str, bool] = {}
        self.chosen: list[str] = []
        self.ready = True

    def begin(self) -> bool:
        return self.ready

    def known(self, word: str) -> bool | None:
        return self.looked_up.get(word)

    def check(self, word: str) -> bool:
        self.looked_up[word] = self.words.check(word)
        return self.looked_up[word]

    def suggest(self, word: str) -> list[str]:
        return self.words.suggest(word)

    def add(self, word: str) -> None:
        self.words.add(word)
        self.looked_up[word] = True
        self.changed.emit()

    def choose(self, language: str) -> None:
        self.chosen.append(language)


class Desk:
    def __init__(self, qtbot: QtBot) -> None:
        self.qtbot, self.box, self.spelling = qtbot, MessageEdit(), Spelling()
        qtbot.addWidget(self.box)
        self.checker = SpellChecker(self.box, self.spelling)  # type: ignore[arg-type]
        self.box.resize(QSize(500, 200))
        self.box.show()
        self.box.setFocus()
        qtbot.waitUntil(self.box.hasFocus)

    def wrong(self) -> list[str]:
        """The underlined words."""
        found, block = [], self.box.document().begin()
        while block.isValid():
            waves = [part for part in block.layout().formats() if part.format.underlineStyle() == WAVE]
            found += [block.text()[part.start : part.start + part.length] for part in waves]
            block = block.next()
        return found

    def menu(self, position: int) -> QMenu:
        """The context menu at a position of the text."""
        cursor = self.box.textCursor()
        cursor.setPosition(position)
        place = self.box.cursorRect(cursor).center()
        event = QContextMenuEvent(
            QContextMenuEvent.Reason.Mouse, place, self.box.viewport().mapToGlobal(place)
        )
        QApplication.sendEvent(self.box.viewport(), event)
        menu = QApplication.activePopupWidget()
        assert isinstance(menu, QMenu)
        return menu


@pytest.fixture
def desk(qtbot: QtBot) -> Desk:
    return Desk(qtbot)


def test_wrong_words_are_underlined_but_not_the_one_being_written(desk: Desk) -> None:
    QTest.keyClicks(desk.box, "pees ar")
    assert desk.wrong() == ["pees"]  # "ar" may become "are"
    QTest.keyClicks(desk.box, "e gren")
    QTest.keyClick(desk.box, Qt.Key.Key_Left)
    assert desk.wrong() == ["pees", "gren"]


@pytest.mark.parametrize(
    "text",
    ["`pees` are green ", "sow https://pees.example ", "pees@example.org ", "x_pees pees2 p ", "/pees are ",
     "```\npees\n```\npeas ", "don’t sow ", "<pees> ", "früh "],
)  # fmt: skip
def test_code_addresses_and_names_are_left_out(desk: Desk, text: str) -> None:
    desk.box.setPlainText(text)
    assert desk.wrong() == []


def test_a_closed_fence_ends_the_code(desk: Desk) -> None:
    desk.box.setPlainText("```\npees\n```\npees ")
    assert desk.wrong() == ["pees"]


def test_a_long_text_is_looked_up_step_by_step(desk: Desk) -> None:
    words = [chr(97 + a) + chr(97 + b) + chr(97 + c) for a in range(8) for b in range(8) for c in range(8)]
    lines = "\n".join(" ".join(words[start : start + 8]) for start in range(0, len(words), 8))
    desk.box.setPlainText(f"{lines}\n")
    assert len(desk.spelling.library.asked) == WORDS_A_STEP
    steps = [len(desk.spelling.library.asked)]
    while steps[-1] < len(words):
        QApplication.processEvents()
        now = len(desk.spelling.library.asked)
        assert now - steps[-1] <= WORDS_A_STEP
        steps.append(now)
    assert desk.wrong() == words


def test_another_dictionary_or_word_is_followed(desk: Desk) -> None:
    desk.spelling.ready = False
    desk.box.setPlainText("pees are mangetout ")
    assert desk.wrong() == []
    desk.spelling.ready = True
    desk.spelling.changed.emit()
    desk.qtbot.waitUntil(lambda: desk.wrong() == ["pees", "mangetout"])
    desk.spelling.add("mangetout")
    desk.qtbot.waitUntil(lambda: desk.wrong() == ["pees"])


def test_underlining_changes_neither_the_text_nor_its_undo(desk: Desk) -> None:
    changes: list[str] = []
    desk.box.setPlainText("pees are ")
    desk.box.textChanged.connect(lambda: changes.append(desk.box.toPlainText()))
    desk.spelling.changed.emit()
    QTest.qWait(20)
    assert changes == []
    assert not desk.box.document().isUndoAvailable()


def test_the_menu_replaces_the_word_and_can_keep_it(desk: Desk) -> None:
    desk.box.setPlainText("pees are green ")
    menu = desk.menu(2)
    shown = [action.text() for action in menu.actions()]
    assert shown[:2] == ["peas", "Add “pees” to the dictionary"]
    menu.actions()[0].trigger()
    menu.close()
    assert desk.box.toPlainText() == "peas are green "
    desk.box.undo()
    assert desk.box.toPlainText() == "pees are green "
    menu = desk.menu(2)
    next(action for action in menu.actions() if action.text().startswith("Add")).trigger()
    menu.close()
    assert "pees" in desk.spelling.library.words["en_GB"]


def test_the_menu_offers_the_languages(desk: Desk) -> None:
    desk.box.setPlainText("peas ")
    menu = desk.menu(2)
    assert not any(action.text().startswith("Add") for action in menu.actions())
    languages = next(action.menu() for action in menu.actions() if action.text() == "Spelling")
    entries = {action.text(): action for action in languages.actions()}
    assert list(entries) == ["Do not check", "British English (United Kingdom)", "xx"]
    assert [name for name, action in entries.items() if action.isChecked()] == [
        "British English (United Kingdom)"
    ]
    entries["Do not check"].trigger()
    assert desk.spelling.chosen == [""]
    menu.close()


def test_without_any_dictionary_the_menu_is_the_usual_one(desk: Desk) -> None:
    desk.spelling.ready, desk.spelling.languages = False, ()  # type: ignore[misc]
    menu = desk.menu(0)
    assert not any(action.text() == "Spelling" for action in menu.actions())
    menu.close()
