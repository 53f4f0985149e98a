"""Personas, folder settings, temporary chats and drafts in the window, by mouse and keyboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QAbstractSpinBox, QApplication, QPushButton, QWidget

from desktop.store.conversations.drafts import DraftStore
from desktop.store.conversations.folders import FolderStore
from desktop.store.conversations.personas import LARGEST_IMAGE, Persona, PersonaStore
from desktop.store.database.errors import DiskFull
from desktop.views.personas.avatar import face_of
from desktop.views.transcript.row_widgets.small import HeaderRow
from engine.settings import SamplerSettings, StopSettings
from tests.desktop.hand import LARGE, Hand

FULL = "There is not enough disk space to save your chats. Free some space, and they will be saved."


@pytest.fixture
def hand(qtbot, tmp_path) -> Iterator[Hand]:
    made = Hand(qtbot, tmp_path)
    yield made
    made.close()


def write(box, text: str) -> None:
    box.setFocus()
    box.selectAll()
    QTest.keyClicks(box, text)


def refuse(monkeypatch, owner: type, name: str) -> None:
    def full(*_arguments) -> None:
        raise DiskFull(FULL)

    monkeypatch.setattr(owner, name, full)


def authors(hand: Hand) -> list[str]:
    rows = hand.window.chat.transcript.viewport().findChildren(HeaderRow)
    return [row.accessibleName() for row in rows if row.row is not None and row.row.item.role == "assistant"]


def test_a_persona_is_made_chosen_answers_and_comes_back_after_deleting(
    hand, qtbot, tmp_path, monkeypatch
) -> None:
    hand.load()
    window, session = hand.window, hand.session
    other = tmp_path / "other.gguf"
    other.touch()
    window.actions_by_name["personas"].trigger()
    dialog = window.personas.dialog
    assert dialog is not None
    assert dialog.nothing.isVisible()
    assert not dialog.editor.isVisible()
    hand.click("New persona", dialog)
    assert dialog.editor.name.text() == "New persona"
    write(dialog.editor.name, "Ada Lovelace")
    write(dialog.editor.prompt, "You are Ada.")
    dialog.editor.preset.setCurrentText("Creative")
    dialog.editor.preset.activated.emit(dialog.editor.preset.currentIndex())
    picture = QImage(900, 600, QImage.Format.Format_RGB32)
    picture.fill(QColor("teal"))
    picture.save(str(tmp_path / "ada.png"))
    (tmp_path / "words.png").write_text("no picture")
    dialog.editor.take_picture(tmp_path / "words.png")
    assert "is not a readable picture" in dialog.banner.text.text()
    dialog.editor.take_picture(tmp_path / "ada.png")

    with monkeypatch.context() as refused:  # the disk is full: all of it stays in the fields
        refuse(refused, PersonaStore, "save")
        assert not dialog.save()
        assert FULL in dialog.banner.text.text()
        assert dialog.editor.name.text() == "Ada Lovelace"
        dialog.close()
        assert dialog.isVisible()
    dialog.editor.edited.emit()
    dialog.close()
    assert not dialog.isVisible()

    ada = window.personas.service.personas()[0]
    assert (ada.name, ada.system_prompt, ada.preset) == ("Ada Lovelace", "You are Ada.", "Creative")
    kept = QImage.fromData(window.personas.service.image(ada.id))
    assert (kept.width(), kept.height()) == (256, 256)
    assert len(window.personas.service.image(ada.id)) <= LARGEST_IMAGE
    window.personas.service.save(
        Persona(ada.id, ada.name, ada.avatar, ada.system_prompt, ada.preset, str(other))
    )

    picker = window.personas.picker
    picker.entries_requested.emit()
    assert [action.text() for action in picker.entries()] == ["No persona", "Ada Lovelace"]
    picker.entries()[1].trigger()
    assert picker.accessibleName() == "Persona: Ada Lovelace"
    assert window.inspector.prompt.placeholderText() == "You are Ada."
    assert not window.inspector.prompt.text()
    assert session.source_of(SamplerSettings, "temperature") == "persona Ada Lovelace"
    banner = window.chat.banner
    assert banner.offer.text() == "Load other"  # Only offered.
    assert session.model.path.endswith("echo.gguf")
    hand.say("Good morning")
    assert hand.echo.chat.requests[-1].messages[0].content == "You are Ada."
    qtbot.waitUntil(lambda: authors(hand) == ["Ada Lovelace"])
    window.personas.choose(ada.id)
    hand.click("Load other", banner)
    qtbot.waitUntil(lambda: session.model is not None and session.model.path == str(other))

    window.personas.manage()
    hand.click("Duplicate this persona", dialog)
    assert [persona.name for persona in window.personas.service.personas()] == [
        "Ada Lovelace",
        "Ada Lovelace 2",
    ]
    assert dialog.editor.name.text() == "Ada Lovelace 2"
    dialog.list.setCurrentRow(0)
    hand.click("Delete this persona", dialog)
    assert session.persona is None
    assert authors(hand) == ["Ada Lovelace"]  # who said it then
    assert session.messages.items()[-1].persona == ada.id
    hand.click("Undo", dialog)
    assert session.persona == window.personas.service.personas()[0]
    dialog.close()


# offscreen
@pytest.mark.qt_log_ignore("does not support raise", "does not support grabbing the keyboard", extend=True)
def test_a_persona_is_chosen_and_cleared_by_keyboard(hand, qtbot) -> None:
    session = hand.session
    for name in ("Ada", "Bo"):
        hand.window.personas.service.save(Persona(0, name, system_prompt=f"You are {name}."))
    for steps, expected in ((2, "Bo"), (-2, "")):
        hand.press(Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
        menu = hand.window.personas.picker.menu()
        qtbot.waitUntil(menu.isVisible)
        for _ in range(abs(steps)):
            QTest.keyClick(menu, Qt.Key.Key_Down if steps > 0 else Qt.Key.Key_Up)
        QTest.keyClick(menu, Qt.Key.Key_Return)
        assert (session.persona.name if session.persona else "") == expected
    hand.window.actions_by_name["new_temporary"].trigger()
    hand.window.personas.choose(hand.window.personas.service.personas()[0].id)
    assert session.prompt.text == "You are Ada."
    # it is in no list: there is nothing to write in, and nothing breaks
    hand.window.actions_by_name["rename"].trigger()


def test_initials_and_emoji() -> None:
    made = [
        face_of("Ada Lovelace", ""),
        face_of("fox", ""),
        face_of("Ada", "🦊"),
        face_of("(x) Anna Maria Rose", ""),
    ]
    assert made == ["AL", "F", "🦊", "AR"]


def test_a_folder_s_window_changes_what_the_open_chat_has_at_once(hand, qtbot, monkeypatch) -> None:
    window, session = hand.window, hand.session
    folders = FolderStore(session.stores.database)
    work = folders.create("Work").id
    session.stores.kept.move([session.conversation], work)
    window.sidebar_controller.open_folder(work)
    dialog = window.sidebar_controller.folder_dialog
    assert dialog is not None
    write(dialog.name, "Office")
    write(dialog.prompt.box, "At the office.")
    dialog.prompt.box.commit()
    form = dialog.forms[SamplerSettings]
    form.changed.emit("temperature", 0.25)
    assert (session.settings(SamplerSettings).temperature, session.prompt.text) == (0.25, "At the office.")
    qtbot.waitUntil(lambda: session.source_of(SamplerSettings, "temperature") == "folder Office")
    row = window.inspector.forms[SamplerSettings].row("temperature")
    assert "From the folder Office: 0.25" not in row.toolTip()
    assert "From the folder Office" in row.toolTip()
    window.settings_controller._set(SamplerSettings, "temperature", 1.5)
    assert "Set in this chat: 1.5" in row.toolTip()
    assert "From the folder Office: 0.25" in row.toolTip()
    assert "0.25 (from the folder office)" in row.reset.toolTip().lower()

    with monkeypatch.context() as refused:
        refuse(refused, FolderStore, "set_settings")
        form.changed.emit("top_p", 0.5)
        assert FULL in dialog.banner.text.text()
        assert form.shown.top_p == 0.5
        assert folders.get(work).settings == {"SamplerSettings": {"temperature": 0.25}}
        dialog.close()
        assert dialog.isVisible()
    hand.click("Retry", dialog)
    assert folders.get(work).settings == {"SamplerSettings": {"temperature": 0.25, "top_p": 0.5}}
    assert session.settings(SamplerSettings).top_p == 0.5
    form.reset_requested.emit("temperature")
    assert folders.get(work).settings == {"SamplerSettings": {"top_p": 0.5}}
    write(dialog.name, "Bureau")
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: window.sidebar_controller.folder_dialog is None)
    assert folders.get(work).name == "Bureau"
    assert folders.get(work).system_prompt == "At the office."


@pytest.mark.slow
def test_tab_follows_the_layout_of_a_folder_s_window(hand, qtbot) -> None:
    """Settings come when their group is unfolded, and all of them are reached before the button below."""
    window = hand.window
    window.sidebar_controller.open_folder(FolderStore(hand.session.stores.database).create("Work").id)
    dialog = window.sidebar_controller.folder_dialog
    for cls in (StopSettings, SamplerSettings):
        QTest.mouseClick(dialog.groups[cls].header, Qt.MouseButton.LeftButton)
    qtbot.wait(1)
    forms = [dialog.forms[cls] for cls in (SamplerSettings, StopSettings)]
    close = next(button for button in dialog.findChildren(QPushButton) if button.text() == "Close")
    dialog.name.setFocus()
    order: list[QWidget] = []
    while not order or order[-1] is not close:
        QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
        order.append(QApplication.focusWidget())
        assert len(order) < 300
    places = [number for widget in order for number, form in enumerate(forms) if form.isAncestorOf(widget)]
    assert places == sorted(places)
    assert places.count(0) > 40
    assert places.count(1) > 10
    dialog.close()


def test_the_prompt_box_shows_the_inherited_text_until_there_is_an_own_one(hand, qtbot) -> None:
    window, session = hand.window, hand.session
    folders = FolderStore(session.stores.database)
    work = folders.create("Work").id
    folders.set_system_prompt(work, "At work.")
    session.stores.kept.move([session.conversation], work)
    session.follow_place()
    field = window.inspector.prompt_field
    assert (field.box.text(), field.box.placeholderText()) == ("", "At work.")
    assert field.none.isVisible()
    assert not field.reset.isVisible()
    QTest.keyClicks(field.box, "Mine.")
    field.box.commit()
    assert session.prompt.text == "Mine."
    assert not field.none.isVisible()
    hand.click("Reset the system prompt", field)
    assert session.prompt.text == "At work." == field.box.placeholderText()
    QTest.keyClick(field.none, Qt.Key.Key_Space)
    assert session.prompt.text == ""
    assert not field.box.isEnabled()
    hand.restart()
    hand.window.resize(LARGE)  # with wide fonts the screen has no room for the pane
    assert not hand.window.inspector.prompt.isEnabled()
    hand.click("Reset the system prompt", hand.window.inspector)
    assert hand.session.prompt.text == "At work."


@pytest.mark.slow
def test_a_temporary_chat_says_so_and_can_be_kept(hand, qtbot) -> None:
    hand.load()
    window, session = hand.window, hand.session
    first = session.conversation
    strip = window.temporary
    assert not strip.isVisible()
    assert not window.actions_by_name["keep"].isEnabled()
    hand.press(Qt.Key.Key_N, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
    assert strip.isVisible()
    assert window.actions_by_name["keep"].isEnabled()
    hand.say("Between us")
    hand.type("unsent")
    hand.click("Keep this chat")
    assert not strip.isVisible()
    assert hand.texts() == ["Between us", "Between us"]
    assert window.chat.composer.text() == "unsent"
    assert session.conversation != first
    hand.click("New temporary chat")
    assert strip.isVisible()
    assert window.chat.composer.text() == ""
    hand.type("never on the disk")
    window.actions_by_name["delete_chat"].trigger()
    assert not strip.isVisible()
    assert "discarded" in window.chat.banner.text.text()
    hand.restart()
    assert b"never on the disk" not in b"".join(path.read_bytes() for path in hand.folder.rglob("*.sqlite3*"))


@pytest.mark.slow
def test_drafts_survive_a_restart_and_a_crash(hand, qtbot, monkeypatch) -> None:
    hand.load()
    session = hand.session
    store = DraftStore(session.stores.database)
    first = session.conversation
    hand.type("to be continued")
    qtbot.waitUntil(lambda: store.get(first) == "to be continued")  # by the clock: a crash now loses nothing
    reported: list[frozenset[int]] = []
    hand.window.autosave.changed.connect(reported.append)
    hand.window.navigation.new_chat()
    second = session.conversation
    assert second != first
    assert hand.window.chat.composer.text() == ""
    hand.type("at the last moment")
    hand.restart()
    assert hand.session.conversation == second
    assert hand.window.chat.composer.text() == "at the last moment"
    hand.window.navigation.open_chat(first)
    assert hand.window.chat.composer.text() == "to be continued"
    hand.load()
    hand.press(Qt.Key.Key_Return)
    hand.wait_for("idle")
    store = DraftStore(hand.session.stores.database)
    assert store.conversations() == frozenset({second})

    refuse(monkeypatch, DraftStore, "put")
    hand.type("x")
    qtbot.waitUntil(lambda: "not saved yet" in hand.window.chat.banner.text.text())
    hand.window.chat.banner.hide()
    hand.type("y")
    hand.window.autosave.save()
    assert not hand.window.chat.banner.isVisible()  # Reported once, and kept in the box.
    assert hand.window.chat.composer.text() == "xy"
    monkeypatch.undo()
    hand.type("z")
    hand.window.navigation.open_chat(second)
    assert store.get(first) == "xyz"


@pytest.mark.slow
def test_every_control_of_the_new_windows_has_a_name(hand) -> None:
    window = hand.window
    window.sidebar_controller.open_folder(FolderStore(hand.session.stores.database).create("Work").id)
    for group in window.sidebar_controller.folder_dialog.groups.values():
        group.open()
    window.personas.manage()
    hand.click("New persona", window.personas.dialog)
    for dialog in (window.sidebar_controller.folder_dialog, window.personas.dialog):
        shown = [
            widget
            for widget in dialog.findChildren(QWidget)
            if widget.window() is dialog and widget.isVisible()
        ]
        reached = [widget for widget in shown if widget.focusPolicy() & Qt.FocusPolicy.TabFocus]
        assert len(reached) > 7
        for widget in reached:
            inside = isinstance(widget.parentWidget(), QAbstractSpinBox)
            assert (
                inside or widget.accessibleName() or (isinstance(widget, QAbstractButton) and widget.text())
            ), widget
