"""A scroll area for pages and forms that are higher than their window."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtWidgets import QFrame, QScrollArea, QSizePolicy, QWidget

__all__ = ["DialogBody", "VerticalScrollArea"]


class VerticalScrollArea(QScrollArea):
    """Shows `content` as wide as itself, without a frame; scrolls up and down only and takes no focus."""

    def __init__(self, content: QWidget | None = None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        if content is not None:
            self.setWidget(content)


class DialogBody(VerticalScrollArea):
    """All of a dialog but its buttons: as high as `content` needs, less if the dialog is lower."""

    def __init__(self, content: QWidget, parent: QWidget | None = None) -> None:
        super().__init__(content, parent)
        self._content = content
        self.setObjectName("dialogScroll")
        content.setObjectName("dialogBody")
        policy = QSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)

    def heightForWidth(self, width: int) -> int:
        content = self._content
        return content.heightForWidth(width) if content.hasHeightForWidth() else self.sizeHint().height()

    def sizeHint(self) -> QSize:
        return self._content.sizeHint()

    def minimumSizeHint(self) -> QSize:
        """Not narrower than the content: it does not scroll sideways."""
        return QSize(self._content.minimumSizeHint().width(), self.fontMetrics().height() * 3)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """The dialog follows the size that the content asks for."""
        if event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return super().eventFilter(watched, event)
