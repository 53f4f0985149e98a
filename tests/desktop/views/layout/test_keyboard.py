"""The whole window without a mouse: panes, Tab, menus, the Edit menu, a name for every control."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSlider,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QHeaderView,
    QKeySequenceEdit,
    QLineEdit,
    QMenu,
    QPlainTextEdit,
    QScrollBar,
    QTableView,
    QTextEdit,
    QWidget,
)
from pytestqt.qtbot import QtBot

from desktop.app import EngineApi
from desktop.settings import Behaviour
from desktop.views.commands.shortcuts_dialog import ShortcutsDialog
from engine.settings import ConstraintSettings, SamplerSettings
from tests.desktop.fakes import EchoApi
from tests.desktop.focus_ring import unseen_focus
from tests.desktop.hand import Hand, no_fetch, settled

Key = Qt.Key
CTRL, SHIFT, ALT = (
    Qt.KeyboardModifier.ControlModifier,
    Qt.KeyboardModifier.ShiftModifier,
    Qt.KeyboardModifier.AltModifier,
)
INTERACTIVE = (
    QAbstractButton, QAbstractItemView, QAbstractSlider, QAbstractSpinBox, QComboBox, QKeySequenceEdit,
    QLineEdit, QPlainTextEdit, QTextEdit,
)  # fmt: skip


def make_hand(qtbot, folder) -> Hand:
    echo = EchoApi()
    api = EngineApi(
        echo.open_chat,
        echo.describe,
        no_fetch,
        echo.draft_problem,
        lambda _folders, _stop: iter(()),
        lambda _threads: 2e10,
    )
    made = Hand(qtbot, folder, api=api)
    made.load()
    made.say("About lighthouses")
    made.window.resize(1300, 900)
    return made


@pytest.fixture(scope="module")
def hand(request, qapp, tmp_path_factory):
    made = make_hand(QtBot(request), tmp_path_factory.mktemp("keyboard"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def quiet(request):
    """Nothing waits for its turn when a test is over."""
    yield
    if "hand" not in request.fixturenames:
        return
    hand = request.getfixturevalue("hand")
    hand.qtbot.waitUntil(lambda: settled(hand))


def test_every_control_of_the_main_window_shows_that_it_has_the_focus(hand: Hand) -> None:
    assert hand.window.isActiveWindow()
    assert [*unseen_focus(hand.window)] == []
    header = hand.window.picker.parentWidget()
    hand.window.chat.transcript.setFocus()
    assert header.property("below") == "focused"
    hand.window.chat.composer.setFocus()
    assert header.property("below") == ""


def pane_of(hand: Hand) -> QWidget:
    window = hand.window
    panes = (
        window.sidebar,
        window.picker.parentWidget(),
        window.chat.transcript,
        window.chat.composer,
        window.inspector,
    )
    focus = QApplication.focusWidget()
    return next(pane for pane in panes if pane is focus or pane.isAncestorOf(focus))


def test_f6_cycles_through_the_panes_and_restores_the_focus(hand) -> None:
    window = hand.window
    window.inspector.query.setFocus()
    seen = []
    for _ in range(5):
        hand.press(Key.Key_F6)
        seen.append(pane_of(hand))
    assert seen == [
        window.sidebar,
        window.picker.parentWidget(),
        window.chat.transcript,
        window.chat.composer,
        window.inspector,
    ]
    window.sidebar.query.setFocus()
    hand.press(Key.Key_F6, SHIFT)
    assert pane_of(hand) is window.inspector
    hand.press(Key.Key_F6)
    assert window.sidebar.query.hasFocus()
    window.panes.toggle("left")
    window.inspector.query.setFocus()
    hand.press(Key.Key_F6)
    assert pane_of(hand) is window.picker.parentWidget()
    window.panes.toggle("left")


def _focusable(widget: QWidget) -> bool:
    by_tab = widget.focusPolicy().value & Qt.FocusPolicy.TabFocus.value
    return bool(by_tab) and widget.isVisible() and widget.isEnabled() and widget.focusProxy() is None


@pytest.mark.parametrize("back", [False, True])
def test_tab_reaches_every_control_and_is_trapped_nowhere(hand, back) -> None:
    window = hand.window
    expected = {widget for widget in window.findChildren(QWidget) if _focusable(widget)}
    window.sidebar.query.setFocus()
    reached: set[QWidget] = set()
    for _ in range(2 * len(expected) + 10):
        before = QApplication.focusWidget()
        hand.press(
            Key.Key_Backtab if back else Key.Key_Tab, SHIFT if back else Qt.KeyboardModifier.NoModifier
        )
        now = QApplication.focusWidget()
        assert now is not None
        assert now is not before, f"{before} keeps the keyboard"
        if now in reached and now is window.sidebar.query:
            break
        reached.add(now)
    missing = {widget for widget in expected - reached if _focusable(widget)}
    assert not missing


def name_of(widget: QWidget) -> str:
    """What a screen reader has for a control."""
    if widget.accessibleName():
        return widget.accessibleName()
    return widget.text().strip() if isinstance(widget, QAbstractButton) else ""


def part_of_another(widget: QWidget) -> bool:
    """Qt's own parts of a control, and hidden ones: the control itself has the name."""
    if isinstance(widget, (QScrollBar, QHeaderView)) or widget.objectName().startswith("qt_"):
        return True
    above = widget.parentWidget()
    while above is not None and not isinstance(
        above, (QAbstractSpinBox, QComboBox, QKeySequenceEdit, QLineEdit, QTableView)
    ):
        above = above.parentWidget()
    return above is not None


def nameless(root: QWidget) -> list[str]:
    found = [
        widget
        for widget in root.findChildren(QWidget)
        if isinstance(widget, INTERACTIVE) and not part_of_another(widget)
    ]
    assert found
    chain = []
    for widget in found:
        # A button without any words gets them when it is shown.
        blank = isinstance(widget, QAbstractButton) and not widget.isVisible() and widget.icon().isNull()
        if not name_of(widget) and not blank:
            above, names = widget.parentWidget(), []
            while above is not None and len(names) < 4:
                names.append(type(above).__name__)
                above = above.parentWidget()
            chain.append(f"{type(widget).__name__} {widget.objectName()} in {' < '.join(names)}")
    return chain


def test_the_edit_menu_acts_on_the_focused_widget(hand) -> None:
    window, actions = hand.window, hand.window.actions_by_name
    clipboard = QGuiApplication.clipboard()
    hand.type("some words")
    actions["select_all"].trigger()
    actions["cut"].trigger()
    assert (hand.box.toPlainText(), clipboard.text()) == ("", "some words")
    actions["paste"].trigger()
    assert hand.box.toPlainText() == "some words"
    (menu,) = [menu for menu in window.menuBar().findChildren(QMenu) if actions["cut"] in menu.actions()]
    menu.aboutToShow.emit()
    assert actions["undo"].text().replace("&", "") == "Undo typing"
    actions["undo"].trigger()
    menu.aboutToHide.emit()
    assert hand.box.toPlainText() != "some words"
    hand.box.clear()
    window.chat.transcript.setFocus()
    hand.press(Key.Key_A, CTRL)
    hand.press(Key.Key_C, CTRL)
    assert "About lighthouses" in clipboard.text()
    window.chat.transcript.selection.clear()
    menu.aboutToShow.emit()
    assert not actions["cut"].isEnabled()
    assert "text box" in actions["cut"].toolTip()
    assert actions["select_all"].isEnabled()
    menu.aboutToHide.emit()
    hand.qtbot.waitUntil(actions["cut"].isEnabled)
    spin = next(
        box
        for box in window.inspector.findChildren(QAbstractSpinBox)
        if box.accessibleName() == "Temperature"
    )
    spin.setFocus()
    spin.selectAll()
    actions["copy"].trigger()
    assert clipboard.text().startswith("0.7")


def test_menus_say_what_is_disabled_and_why(hand) -> None:
    actions = hand.window.actions_by_name
    assert actions["regenerate"].isEnabled()
    assert not actions["next_variant"].isEnabled()
    assert "one version" in actions["next_variant"].toolTip()
    hand.press(Key.Key_R, CTRL)
    hand.wait_for("idle")
    hand.qtbot.waitUntil(actions["previous_variant"].isEnabled)
    assert actions["next_variant"].toolTip() == "This is the last version."
    hand.press(Key.Key_N, CTRL)
    for name in ("regenerate", "continue", "copy_reply", "find"):
        assert not actions[name].isEnabled()
        assert actions[name].toolTip().startswith("This chat")
    hand.say("Another one")
    assert actions["continue"].isEnabled()
    for menu in hand.window.menuBar().findChildren(QMenu):
        if menu.title():
            menu.aboutToShow.emit()
            letters = [
                text[text.index("&") + 1].lower()
                for text in (action.text() for action in menu.actions())
                if "&" in text
            ]
            assert len(letters) == len(set(letters)) > 0
            menu.aboutToHide.emit()


def test_the_menu_key_reaches_what_can_be_done_with_a_message(hand) -> None:
    transcript = hand.window.chat.transcript
    item = hand.items()[-1]
    row = transcript.messages.rows_of(item.id)[0]
    hand.qtbot.waitUntil(transcript.settled)
    point = next(
        widget.geometry().center()
        for shown, widget in transcript.pool.footers()
        if shown.item.id == row.item.id
    )
    menu = transcript.make_menu(point)
    texts = [action.text() for action in menu.actions() if action.text()]
    assert texts[:6] == [
        "Copy",
        "Select all",
        "Copy message",
        "Edit message",
        "Regenerate the reply",
        "Continue the reply",
    ]
    assert texts[6:] == [
        "Reply details",
        "Generate several replies",
        "Compare replies…",
        "Fork from here",
        "Delete message",
    ]
    next(action for action in menu.actions() if action.text() == "Copy message").trigger()
    assert QGuiApplication.clipboard().text() == item.text
    next(action for action in menu.actions() if action.text() == "Regenerate the reply").trigger()
    hand.qtbot.waitUntil(lambda: hand.items()[-1].variant_count == 2)
    hand.wait_for("idle")
    menu.deleteLater()


@pytest.mark.slow
def test_settings_are_searched_in_all_panes_and_marked(hand) -> None:
    inspector = hand.window.inspector
    inspector.query.setFocus()
    QTest.keyClicks(inspector.query, "creativity")
    form = inspector.forms[SamplerSettings]
    seen = [name for name in SamplerSettings.__dataclass_fields__ if not form.row(name).isHidden()]
    assert seen == ["temperature"]
    assert "creativity" in form.row("temperature").found.text()
    assert [group.title for group in inspector.groups if not group.isHidden()] == ["Sampling"]
    inspector.query.setText("temperature")
    label = form.row("temperature").label
    assert "<span" in label.text()
    assert label.text().endswith("Temperature</span>")
    hand.press(Key.Key_Escape)
    assert inspector.query.text() == ""
    assert label.text() == "Temperature"
    assert form.row("temperature").found.isHidden()
    inspector.query.setText("healing")
    boxes = inspector.forms[ConstraintSettings].row("heal").editor.findChildren(QAbstractButton)
    assert boxes[0].property("found") is True
    inspector.query.clear()
    assert boxes[0].property("found") is False


def test_the_list_of_keys_is_named_and_walked(hand) -> None:
    dialog = ShortcutsDialog(hand.window.commands.keymap, hand.window)
    dialog.rows["rename"].add.click()
    assert nameless(dialog) == []
    dialog.close()
    dialog.deleteLater()


@pytest.mark.slow
def test_every_control_of_every_page_has_a_name(qtbot, tmp_path) -> None:
    hand = make_hand(qtbot, tmp_path)
    try:
        walk_pages(hand)
    finally:
        hand.close()


def walk_pages(hand: Hand) -> None:
    window = hand.window
    hand.session.set_settings(Behaviour(show_advanced=True))
    window.palette_controller.toggle()
    window.palette_controller.palette.close_palette()
    window.chat.transcript.finding.open()
    assert nameless(window) == []
    window.chat.transcript.finding.close()
    opened = {"library", "shortcuts", "about", "log", "trash", "preferences"}
    choosers = {"open_file", "open_folder", "attach", "import_chats"}  # the system asks for a file
    skipped = {"quit", "starter", "unload", "new_chat", "delete_chat", "cut", "paste"} | choosers
    for name, action in window.actions_by_name.items():
        if name in skipped or not action.isEnabled():
            continue
        before = set(QApplication.topLevelWidgets())
        if name not in opened and not action.text().endswith("…"):
            continue
        action.trigger()
        for page in set(QApplication.topLevelWidgets()) - before:
            if (
                not isinstance(page, QMenu)
                and page.isVisible()
                and type(page).__module__.startswith("desktop")
            ):
                assert nameless(page) == [], name
        for page in QApplication.topLevelWidgets():
            if page is not window and page.isVisible():
                page.close()
    window.palette_controller.palette.close_palette()
    hand.qtbot.waitUntil(lambda: not hand.desktop.services.local_models.searching)
