"""The bar above the conversation: the model picker between the buttons of the two side panes."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QWidget

from desktop.views.layout.fill import fill
from desktop.views.models.model_picker import ModelPicker
from desktop.views.widgets.icons import IconButton
from engine.words import _

__all__ = ["TopBar"]


class TopBar(QWidget):
    """`left` and `right` toggle the side panes, `temporary` begins a temporary chat."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("topBar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.left = IconButton("sidebar", _("Show or hide chats"))
        self.picker = ModelPicker()
        self.temporary = IconButton("temporary", _("New temporary chat"))
        self.temporary.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.right = IconButton("inspector", _("Show or hide settings"))
        self._line = fill(
            QHBoxLayout(self), self.left, self.picker, 1, self.temporary, self.right, margins=(8, 6, 8, 6)
        )

    def add_picker(self, picker: QWidget) -> None:
        """Add a picker beside that of the model, where Tab finds it, too."""
        self._line.insertWidget(2, picker)
        self.setTabOrder(self.picker, picker)
