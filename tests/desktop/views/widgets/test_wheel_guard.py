"""The wheel scrolls what is around a control that has no focus, and does not change the control."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from desktop.views.widgets.combo_box import ComboBox

pytestmark = pytest.mark.gui
VIEWS = Path(__file__).resolve().parents[4] / "desktop" / "views"
CHANGED_BY_WHEEL = {"QComboBox", "QSpinBox", "QDoubleSpinBox", "QSlider"}


def turn_wheel(control: QWidget) -> bool:
    """Turn the wheel over a control; whether the control has used it."""
    here = QPointF(control.rect().center())
    event = QWheelEvent(
        here, QPointF(control.mapToGlobal(here)), QPoint(), QPoint(0, -120), Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(control, event)
    return event.isAccepted()


def test_a_box_is_changed_only_while_it_has_the_focus(qtbot: QtBot) -> None:
    box = ComboBox()
    qtbot.addWidget(box)
    box.addItems(["one", "two"])
    assert not turn_wheel(box)
    assert box.currentIndex() == 0
    with qtbot.waitActive(box):
        box.show()
        box.activateWindow()
    box.setFocus()
    assert turn_wheel(box)
    assert box.currentIndex() == 1


def called(tree: ast.AST) -> set[str]:
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {getattr(each, "attr", getattr(each, "id", "")) for each in functions}


def test_every_module_that_makes_such_a_control_guards_it() -> None:
    calls = {path.name: called(ast.parse(path.read_text("utf-8"))) for path in VIEWS.rglob("*.py")}
    makers = {name: found for name, found in calls.items() if found & CHANGED_BY_WHEEL}
    assert len(makers) >= 4
    assert [name for name, found in makers.items() if not found & {"guard_wheel", "_guard"}] == []
