"""The Preferences window: its pages, its search, and that each change applies at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QAction
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLabel,
    QListWidget,
    QWidget,
)
from pytestqt.qtbot import QtBot

from desktop.settings import PANES, PREFERENCES, Appearance, Behaviour, LocalServerSettings
from desktop.views.commands.actions import COMMANDS
from desktop.views.preferences.model_folders import ModelFolders
from desktop.views.preferences.window import PreferencesWindow
from desktop.views.settings.form_row import Row
from engine.settings import Settings
from tests.desktop.accessible import faults, popup_faults
from tests.desktop.hand import Hand

pytestmark = pytest.mark.gui
Key, CTRL = Qt.Key, Qt.KeyboardModifier.ControlModifier
TITLES = [page.title for page in PREFERENCES]


@pytest.fixture
def hand(qtbot: QtBot, tmp_path) -> Iterator[Hand]:
    found = Hand(qtbot, tmp_path)
    yield found
    found.close()


def opened(hand: Hand) -> PreferencesWindow:
    hand.press(Key.Key_Comma, CTRL)
    window = hand.window.preferences.preferences
    assert window is not None
    assert window.isVisible()
    return window


def control(window: QWidget, kind: type[QWidget], name: str) -> QWidget:
    found = [each for each in window.findChildren(kind) if each.accessibleName() == name]
    assert len(found) == 1, (name, len(found))
    return found[0]


def pages_shown(window: PreferencesWindow) -> list[str]:
    return [each.page.title for each in window.sections if each.isVisible()]


def rows_made(window: PreferencesWindow) -> set[str]:
    return {each.page.title for each in window.sections if each.findChildren(Row)}


def test_the_rows_of_a_page_are_made_when_it_is_first_shown(hand: Hand) -> None:
    window = opened(hand)
    assert rows_made(window) == {TITLES[0]}
    window.show_page(TITLES.index("Chats"))
    assert rows_made(window) == {TITLES[0], "Chats"}
    window.query.setText("trash")
    assert rows_made(window) == {TITLES[0], "Chats", "Data and updates"}
    hand.window.preferences.preferences = None
    hand.window.preferences.show_preference(TITLES.index("Notifications"), "")
    again = hand.window.preferences.preferences
    assert again is not None
    assert "Chats" not in rows_made(again)
    window.close()


def test_every_setting_of_the_program_has_one_place() -> None:
    shown = [(page.cls, name) for page in PREFERENCES for name in page.names]
    assert len(shown) == len(set(shown))
    for cls in (Appearance, Behaviour):
        assert {name for each, name in shown if each is cls} == set(cls().to_json())
        assert cls not in dict(PANES).values()
    assert {name for cls, name in shown if cls is LocalServerSettings} == {"on", "port", "network"}
    commands = {command.name for command in COMMANDS}
    assert {name for page in PREFERENCES for name in page.commands} <= commands


def test_a_change_applies_at_once_and_is_reset(hand: Hand) -> None:
    window = opened(hand)
    theme = control(window, QComboBox, "Theme")
    theme.setFocus()
    QTest.keyClick(theme, Key.Key_End)
    assert hand.session.settings(Appearance).theme == "dark"
    hand.click("Reset theme", window)
    assert hand.session.settings(Appearance).theme == "system"
    assert hand.session.preferences.saved_names(Appearance) == frozenset()
    window.show_page(TITLES.index("Data and updates"))
    hand.click("Back up chats automatically", window)
    assert not hand.session.settings(Behaviour).backups
    hand.session.set_settings(Behaviour())
    assert hand.button("Back up chats automatically", window).isChecked()


def test_a_change_elsewhere_is_shown(hand: Hand) -> None:
    window = opened(hand)
    hand.window.actions_by_name["larger"].trigger()
    assert control(window, QAbstractSpinBox, "Text size").value() == 110
    hand.window.actions_by_name["normal"].trigger()
    assert control(window, QAbstractSpinBox, "Text size").value() == 100


@pytest.mark.slow
def test_a_saved_setting_of_an_older_version_is_shown(hand: Hand) -> None:
    hand.session.set_settings(Behaviour(send_with="ctrl+enter", several=6, model_titles=False))
    hand.restart()
    window = opened(hand)
    window.show_page(TITLES.index("Chats"))
    assert control(window, QComboBox, "Send with").currentText().strip("\u2066\u2069\u2068") == "Ctrl+Enter"
    assert control(window, QAbstractSpinBox, "Several replies").value() == 6


def test_the_local_server_takes_its_port(hand: Hand) -> None:
    server = hand.desktop.services.local_server
    window = opened(hand)
    window.show_page(TITLES.index("Local server"))
    port = control(window, QAbstractSpinBox, "Port")
    port.selectAll()
    QTest.keyClicks(port, "4321")
    QTest.keyClick(port, Key.Key_Return)
    assert server.settings.port == 4321
    server.change(LocalServerSettings(port=5000))
    assert port.value() == 5000
    hand.click("Reset port", window)
    assert server.settings == LocalServerSettings()


def test_model_folders_and_the_offline_switch(hand: Hand, tmp_path) -> None:
    folder = tmp_path / "models of mine"
    folder.mkdir()
    window = opened(hand)
    window.show_page(TITLES.index("Models"))
    folders = window.findChild(ModelFolders)
    shown = folders.findChild(QListWidget)
    assert not folders.remove.isEnabled()
    hand.window.preferences._add_folder(folder)
    assert hand.session.preferences.model_folders == (str(folder),)
    assert [shown.item(row).text() for row in range(shown.count())] == [str(folder)]
    shown.setCurrentRow(0)
    hand.click("Remove the selected folder", window)
    assert hand.session.preferences.model_folders == ()
    assert shown.count() == 0
    assert not folders.remove.isEnabled()
    folders.offline.setFocus()
    QTest.keyClick(folders.offline, Key.Key_Space)
    assert hand.session.preferences.offline
    hand.desktop.services.hub.set_offline(False)
    assert not folders.offline.isChecked()
    hand.qtbot.waitUntil(lambda: not hand.desktop.services.local_models.searching)


def test_in_a_narrow_window_a_box_goes_from_page_to_page(hand: Hand) -> None:
    window = opened(hand)
    assert window.list.isVisible()
    assert not window.box.isVisible()
    window.resize(320, 400)
    hand.qtbot.waitUntil(window.box.isVisible)
    assert not window.list.isVisible()
    assert window.box.currentText() == TITLES[0]
    window.box.setFocus()
    QTest.keyClick(window.box, Key.Key_Down)
    assert pages_shown(window) == [TITLES[1]]
    assert window.page == 1


def test_search_finds_settings_pages_and_buttons(hand: Hand) -> None:
    window = opened(hand)
    QTest.keyClicks(window.query, "dark")
    assert pages_shown(window) == ["Appearance"]
    form = window.section(Appearance, "theme").form
    shown = [name for name in Appearance().to_json() if form.row(name).isVisible()]
    assert shown == ["theme"]
    window.query.setText("days")
    assert pages_shown(window) == ["Data and updates"]
    assert "<span" in window.section(Behaviour, "trash_days").form.row("trash_days").explained.text()
    window.query.setText("move data")
    assert [button.text() for button in window.findChildren(QAbstractButton) if button.isVisible()] == [
        "", "Restore from a backup…", "Move data…", "Check for updates…", "Close",
    ]  # fmt: skip
    window.query.setText("offline")
    assert pages_shown(window) == ["Models"]
    window.query.setText("zebra")
    assert pages_shown(window) == []
    assert window._nothing.isVisible()
    window.query.setFocus()
    QTest.keyClick(window.query, Key.Key_Escape)
    assert pages_shown(window) == ["Appearance"]
    assert window.isVisible()
    assert "<span" not in window.section(Behaviour, "trash_days").form.row("trash_days").explained.text()


def test_a_search_marks_no_page_and_any_page_ends_it(hand: Hand) -> None:
    """The page before the search stayed marked above what was found, and a click on it did nothing."""
    window = opened(hand)
    window.show_page(TITLES.index("Models"))
    QTest.keyClicks(window.query, "dark")
    assert (window.list.currentRow(), window.box.currentIndex(), window.list.selectedItems()) == (-1, -1, [])
    assert window.box.placeholderText() == "Search results"
    row = window.list.visualItemRect(window.list.item(TITLES.index("Models")))
    QTest.mouseClick(window.list.viewport(), Qt.MouseButton.LeftButton, pos=row.center())
    assert pages_shown(window) == ["Models"]
    assert window.query.text() == ""
    assert window.box.currentText() == "Models"
    QTest.keyClicks(window.query, "dark")
    window.query.clear()
    assert pages_shown(window) == ["Models"]
    assert window.list.currentRow() == TITLES.index("Models") == window.page


def test_buttons_run_commands(hand: Hand) -> None:
    window = opened(hand)
    window.show_page(TITLES.index("Local server"))
    hand.click("Local server…", window)
    server = hand.window.application_controller.server_window
    assert server is not None
    assert server.isVisible()
    server.close()


def test_keys_go_from_page_to_page_and_escape_closes(hand: Hand) -> None:
    window = opened(hand)
    hand.qtbot.waitUntil(lambda: QApplication.focusWidget() is window.list)
    for title in TITLES[1:]:
        QTest.keyClick(window.list, Key.Key_Down)
        assert pages_shown(window) == [title]
    QTest.keyClick(window.list, Key.Key_Escape)
    assert not window.isVisible()


@pytest.mark.slow
def test_tab_reaches_every_control_of_a_page_in_order(hand: Hand) -> None:
    window = opened(hand)
    for number in range(len(TITLES)):
        window.show_page(number)
        hand.qtbot.wait(1)
        body = window._scroll.widget()
        expected = {
            each
            for each in body.findChildren(QWidget)
            if each.isVisible()
            and each.isEnabled()
            and each.focusPolicy() & Qt.FocusPolicy.TabFocus
            and each.focusProxy() is None
        }
        window.query.setFocus()
        order: list[QWidget] = []
        while not order or order[-1] is not window.shut:
            QTest.keyClick(QApplication.focusWidget(), Key.Key_Tab)
            order.append(QApplication.focusWidget())
            assert len(order) < 60
        inside = [each for each in order if body.isAncestorOf(each)]
        heights = [each.mapTo(body, each.rect().center()).y() for each in inside]
        assert set(inside) == expected
        assert all(after >= before - 12 for before, after in itertools.pairwise(heights))


@pytest.mark.slow
def test_place_page_and_size_are_remembered(hand: Hand) -> None:
    window = opened(hand)
    window.resize(640, 480)
    window.show_page(3)
    hand.restart()
    window = opened(hand)
    assert (window.page, window.width(), window.height()) == (3, 640, 480)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("query", "cls", "name"),
    [
        ("#dark mode", Appearance, "theme"),
        ("#trash", Behaviour, "trash_days"),
        ("#port", LocalServerSettings, "port"),
    ],
)
def test_the_palette_goes_to_a_setting(hand: Hand, query: str, cls: type[Settings], name: str) -> None:
    hand.press(Key.Key_K, CTRL)
    palette = hand.window.palette_controller.palette
    QTest.keyClicks(palette.box, query)
    rows = [each.match.entry for each in palette.rows.rows]
    place = next(at for at, each in enumerate(rows) if each.key == f"setting:{cls.__name__}.{name}")
    assert rows[place].detail.startswith("Preferences: ")
    for _ in range(place):
        hand.press(Key.Key_Down)
    hand.press(Key.Key_Return)
    window = hand.window.preferences.preferences
    row = window.section(cls, name).form.row(name)
    hand.qtbot.waitUntil(lambda: row.isAncestorOf(QApplication.focusWidget() or window))
    assert QApplication.focusWidget().visibleRegion().boundingRect().height() > 0


def test_the_palette_goes_to_a_page(hand: Hand) -> None:
    hand.press(Key.Key_K, CTRL)
    palette = hand.window.palette_controller.palette
    QTest.keyClicks(palette.box, "#models folders directories")
    assert palette.rows.rows[0].match.entry.title == "Preferences: Models"
    hand.press(Key.Key_Return)
    window = hand.window.preferences.preferences
    assert pages_shown(window) == ["Models"]


def test_the_menu_role_of_every_command(hand: Hand) -> None:
    """On macOS Qt would move "Settings" by its name to the application's menu."""
    roles = {name: action.menuRole() for name, action in hand.window.actions_by_name.items()}
    own = {name: role for name, role in roles.items() if role != QAction.MenuRole.NoRole}
    assert own == {
        "preferences": QAction.MenuRole.PreferencesRole,
        "quit": QAction.MenuRole.QuitRole,
        "about": QAction.MenuRole.AboutRole,
    }


def cut(window: PreferencesWindow) -> list[str]:
    """Labels and check boxes that are not shown whole, and pages wider than the window."""
    found = [
        label.text()
        for label in window.findChildren(QLabel)
        if label.isVisible() and label.wordWrap() and label.height() < label.heightForWidth(label.width())
    ]
    body = window._scroll.widget()
    for button in body.findChildren(QAbstractButton):
        if button.isVisible() and (
            button.width() < button.minimumSizeHint().width()
            or button.height() < button.sizeHint().height()
            or not QRect(0, 0, window._scroll.viewport().width(), body.height()).contains(
                QRect(button.mapTo(body, button.rect().topLeft()), button.size())
            )
        ):
            found.append(button.text())
    return [*found, *(["too wide"] if body.width() > window._scroll.viewport().width() else [])]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("width", "scale", "theme"), [(400, 100, "light"), (400, 200, "dark"), (760, 100, "dark")]
)
def test_every_page_is_whole_and_keeps_the_rules(hand: Hand, width: int, scale: int, theme: str) -> None:
    hand.session.set_settings(Appearance(theme=theme, text_scale=scale))
    window = opened(hand)
    window.resize(width, 600)
    try:
        assert window.width() == width
        assert (window.box if width == 400 else window.list).isVisible()
        assert (window.list if width == 400 else window.box).isHidden()
        for number in range(len(TITLES)):
            window.show_page(number)
            hand.qtbot.waitUntil(lambda: cut(window) == [])
            assert [*faults(window), *popup_faults(window)] == []
    finally:
        hand.session.set_settings(Appearance())  # the application's font is everybody's
