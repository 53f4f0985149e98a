"""Async handlers on Qt's event loop: begun at once, carried on by the loop, ended with it."""

from __future__ import annotations

import sys

import pytest
from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QFileDialog, QMessageBox, QWidget

from desktop import event_loop
from desktop.views.widgets.flows import answer, chosen_path, flow


class Sender(QObject):
    one = Signal(str, int)
    two = Signal()


def question(parent: QWidget) -> QMessageBox:
    box = QMessageBox(parent)
    box.addButton("Yes", QMessageBox.ButtonRole.AcceptRole)
    box.addButton("No", QMessageBox.ButtonRole.RejectRole)
    return box


@pytest.fixture
def window(qtbot) -> QWidget:
    made = QWidget()
    qtbot.addWidget(made)
    made.show()
    return made


def test_without_a_wait_it_is_a_plain_function(qapp) -> None:
    done: list[int] = []

    @flow
    async def handler(number: int) -> None:
        done.append(number)
        if number < 0:
            raise ValueError("negative")

    handler(1)
    assert done == [1]
    with pytest.raises(ValueError, match="negative"):
        handler(-1)
    assert event_loop._loop is None


@pytest.mark.parametrize("way", ["Yes", "No", "closed"])
def test_a_question_is_answered_once(qtbot, window, way: str) -> None:
    answers: list[str | None] = []

    @flow
    async def handler() -> None:
        button = await answer(box)
        answers.append(button.text() if button is not None else None)

    box = question(window)
    gone: list[bool] = []
    box.destroyed.connect(lambda: gone.append(True))
    handler()
    assert box.isVisible()
    assert not answers
    if way == "closed":
        box.setEscapeButton(box.buttons()[1])
        box.done(7)
    else:
        next(button for button in box.buttons() if button.text() == way).click()
    qtbot.waitUntil(lambda: bool(answers and gone))
    assert answers == [None if way == "closed" else way]


def test_the_first_of_several_signals_counts(qtbot, qapp) -> None:
    sender, found = Sender(), []

    @flow
    async def handler() -> None:
        for _ in range(2):
            found.append(await event_loop.emitted(sender.one, sender.two))

    handler()
    sender.one.emit("a", 1)
    sender.two.emit()
    qtbot.waitUntil(lambda: len(found) == 1)
    sender.two.emit()
    qtbot.waitUntil(lambda: len(found) == 2)
    sender.two.emit()
    assert found == [(0, ("a", 1)), (1, ())]


@pytest.mark.parametrize("taken", [True, False])
def test_a_file_dialog_brings_a_path_or_none(qtbot, window, tmp_path, taken: bool) -> None:
    paths: list[object] = []

    @flow
    async def handler() -> None:
        paths.append(await chosen_path(dialog))

    dialog = QFileDialog(window)
    dialog.setOption(QFileDialog.Option.DontUseNativeDialog)
    handler()
    dialog.fileSelected.emit(str(tmp_path / "a")) if taken else dialog.reject()
    qtbot.waitUntil(lambda: bool(paths))
    assert paths == [tmp_path / "a" if taken else None]


def test_an_error_after_a_wait_is_reported_as_that_of_a_slot(qtbot, window, monkeypatch) -> None:
    errors: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda _kind, error, _trace: errors.append(error))

    @flow
    async def handler() -> None:
        await answer(box)
        raise ValueError("later")

    box = question(window)
    handler()
    box.reject()
    qtbot.waitUntil(lambda: bool(errors))
    assert str(errors[0]) == "later"


def test_the_end_of_the_loop_cancels_what_waits(window) -> None:
    ended: list[bool] = []

    @flow
    async def handler() -> None:
        try:
            await answer(box)
        finally:
            ended.append(True)

    box = question(window)
    handler()
    event_loop.close_loop()
    assert ended == [True]
    assert event_loop._loop is None
