"""The pages of notebooks, of chats with several participants, and of rarer windows, for
`tests.tools.pictures`.
"""

from __future__ import annotations

import dataclasses

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMessageBox, QWidget

from desktop.settings import Appearance
from desktop.store.conversations.participants import Cast, Participant
from desktop.views.notebook.page import NotebookPage
from tests.tools.pictures.page_list import act, page, top
from tests.tools.pictures.stage import Stage

_STORY = (
    "The boat had no name when we bought it. It lay on its side in the grass behind the harbour, and the "
    "man who sold it to us said that it had once been blue.\n\nWe painted it in May. "
)
_GOES_ON = (
    "The first coat went on in the rain, and the second in a wind that carried the smell of the nets over "
    "the wall. By the end of the month it was blue again, and the man came to look at it and said nothing."
)
_CAST = Cast(
    (Participant("Ada Lovelace", "A mathematician"), Participant("Cook", "")),
    ("Robin", "The narrator"),
    "turn",
    1,
)

# -- the notebook


def _shown(stage: Stage) -> NotebookPage:
    shown = stage.window.notebooks.open_page
    assert shown is not None, "no notebook is open"
    return shown


def _colours(stage: Stage, name: str) -> None:
    stage.session.set_settings(dataclasses.replace(stage.session.settings(Appearance), token_colours=name))
    stage.spin(0.4)


@page
def notebook_empty(stage: Stage) -> QWidget:
    stage.shut()
    act(stage, "new_notebook")
    return stage.window


@page
def notebook_writing(stage: Stage) -> QWidget:
    shown = _shown(stage)
    shown.editor.insertPlainText(_STORY)
    stage.echo.chat.reply, stage.echo.chat.delay_s = _GOES_ON, 0.05
    shown.write_on()
    stage.spin(0.8)
    return stage.window


@page
def notebook(stage: Stage) -> QWidget:
    stage.echo.chat.delay_s = 0.0
    stage.until(lambda: stage.session.state == "idle")
    stage.spin(1.2)
    return stage.window


@page
def notebook_finding(stage: Stage) -> QWidget:
    _shown(stage).finding.open()
    QTest.keyClicks(stage.focus(), "blue")
    stage.spin(0.3)
    return stage.window


@page
def notebook_tokens(stage: Stage) -> QWidget:
    shown = _shown(stage)
    shown.finding.close()
    _colours(stage, "probability")
    trace = shown.editor.trace
    assert trace is not None
    shown.tokens.open(len(trace.ids) - 4, focus=True)
    stage.spin(0.3)
    return stage.window


@page
def notebook_nothing_before(stage: Stage) -> QWidget:
    shown = _shown(stage)
    shown.tokens.close()
    _colours(stage, "off")
    act(stage, "new_temporary_notebook")
    _shown(stage).write_on()
    return stage.window


# -- several names


@page
def roles_empty(stage: Stage) -> QWidget:
    stage.shut()
    stage.open_talk()
    stage.window.participants.open()
    stage.spin()
    return top(stage)


@page
def roles_dialog(stage: Stage) -> QWidget:
    stage.shut()
    people = [persona.id for persona in stage.window.personas.service.personas()] + [0, 0]
    cast = [
        dataclasses.replace(one, persona=persona)
        for one, persona in zip(_CAST.participants, people, strict=False)
    ]
    harbour = Participant("The harbour master", "Counts the boats twice and trusts neither number")
    stage.session.new_conversation()
    stage.session.set_cast(dataclasses.replace(_CAST, participants=(*cast, harbour)))
    stage.window.participants.open()
    dialog = stage.window.participants.dialog
    assert dialog is not None
    dialog.list.setCurrentRow(2)
    return top(stage)


@page
def roles_wrong(stage: Stage) -> QWidget:
    dialog = stage.window.participants.dialog
    assert dialog is not None
    dialog.own.setText("Robin, cook")
    dialog.buttons.button(dialog.buttons.StandardButton.Ok).click()
    return top(stage)


@page
def roles_chat(stage: Stage) -> QWidget:
    stage.shut()
    stage.echo.chat.reply = "I would count the boats first, and then write down how I counted them."
    stage.session.submit("What is the first thing to do in a harbour?", "")
    stage.spin(0.2)
    stage.until(lambda: stage.session.state == "idle")
    stage.spin(0.4)
    return stage.window


@page
def roles_menu(stage: Stage) -> QWidget | None:
    return stage.take_menu(stage.window.participants.bar.user.showMenu)


# -- what only some meet


@page
def selection_menu(stage: Stage) -> QWidget | None:
    stage.shut()
    stage.show_sidebar()
    shown = stage.window.sidebar.list
    shown.setFocus()
    shown.selectAll()
    shown.scrollToTop()
    place = shown.visualRect(shown.model().index(3, 0)).center()
    return stage.take_menu(lambda: stage.context(shown, place))


@page
def file_dialog(stage: Stage) -> QWidget:
    stage.shut()
    act(stage, "import_chats")
    return top(stage)


@page
def hub_token(stage: Stage) -> QWidget:
    stage.shut()
    act(stage, "library")
    shown = stage.window.model_controller.library
    assert shown is not None
    shown.tabs.setCurrentWidget(shown.hub)
    shown.hub.token.field.setText("hf_secret")
    return top(stage)


@page
def backup_question(stage: Stage) -> QWidget:
    stage.shut()
    act(stage, "restore_backup")
    stage.spin(0.3)
    dialog = stage.window.backups.dialog
    assert dialog is not None
    if not dialog.list.count():
        dialog.make.click()
        stage.until(lambda: dialog.list.count() > 0)
    dialog.list.setCurrentRow(0)
    dialog.restore.click()
    stage.spin()
    return stage.window.findChildren(QMessageBox)[-1]


# -- reading with the caret


@page
def reading(stage: Stage) -> QWidget:
    stage.shut()
    stage.open_talk()
    stage.window.chat.transcript.reading.toggle()
    shown = stage.window.chat.transcript.reading.page
    assert shown is not None
    shown.list.setCurrentRow(3)
    shown.go("code", 1)
    return stage.window


@page
def reading_table(stage: Stage) -> QWidget:
    shown = stage.window.chat.transcript.reading.page
    assert shown is not None
    shown.list.setCurrentRow(1)
    shown.text.setFocus()
    shown.go("table", 1)
    QTest.keyClick(shown.text, Qt.Key.Key_Return)
    return top(stage)


@page
def reading_closed(stage: Stage) -> QWidget:
    top(stage).close()
    stage.window.chat.transcript.reading.close()
    return stage.window
