"""Check boxes and radio buttons are as wide as their words, and so are their focus rings."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QHBoxLayout, QRadioButton, QVBoxLayout, QWidget

from desktop.views.layout.fill import fill
from desktop.views.widgets.wrapping_text import WrappingCheckBox

WORDS = "Let other programs use the model"


@pytest.mark.parametrize("kind", [WrappingCheckBox, QRadioButton])
@pytest.mark.parametrize("layout", [QVBoxLayout, QHBoxLayout])
@pytest.mark.parametrize("mirrored", [False, True])
def test_they_end_where_their_words_end(
    qtbot, kind: type[QAbstractButton], layout: type[QVBoxLayout | QHBoxLayout], mirrored: bool
) -> None:
    page = QWidget()
    qtbot.addWidget(page)
    if mirrored:
        page.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    button = kind(WORDS)
    fill(layout(page), button, margins=(0, 0, 0, 0))
    page.resize(900, 60)
    page.show()
    assert button.width() == button.sizeHint().width() < 500
    assert (page.width() - 1 - button.geometry().right() if mirrored else button.x()) == 0


def test_a_narrow_one_still_wraps(qtbot) -> None:
    page = QWidget()
    qtbot.addWidget(page)
    box = WrappingCheckBox(WORDS)
    fill(QVBoxLayout(page), box, margins=(0, 0, 0, 0))
    page.resize(120, 200)
    page.show()
    assert "\n" in box.text()
    assert box.width() <= 120
