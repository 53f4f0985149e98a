"""In every dialog, the button that acts stands before the one that only closes, and has the accent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtWidgets import QDialog, QPushButton, QWidget

from desktop.views.providers.provider_dialog import ProviderDialog
from desktop.views.tools.tool_server_dialog import ToolServerDialog
from desktop.views.transfer.export_dialog import ExportDialog

pytestmark = pytest.mark.gui


@pytest.fixture
def parent(qtbot) -> QWidget:
    made = QWidget()
    qtbot.addWidget(made)
    made.resize(900, 700)
    made.show()
    return made


@pytest.mark.parametrize(
    "make",
    [
        lambda parent: ExportDialog("Peas", (1,), parent),
        lambda parent: ProviderDialog(None, "", parent),
        lambda parent: ToolServerDialog(None, lambda _config: None, parent),
    ],
    ids=["export", "server", "tools"],
)
def test_the_button_that_acts_comes_first_and_has_the_accent(
    qtbot, parent: QWidget, make: Callable[[QWidget], QDialog]
) -> None:
    dialog = make(parent)
    dialog.show()
    qtbot.waitExposed(dialog)
    places = {each.text().replace("&", ""): each for each in dialog.findChildren(QPushButton)}
    acting = [each for each in places.values() if each.property("tone") == "primary"]
    assert len(acting) == 1
    at = [each.mapTo(dialog, each.rect().topLeft()).x() for each in (acting[0], places["Cancel"])]
    assert at == sorted(at)
    dialog.close()
