"""A model dragged onto the window: what counts as one, and the sign that it can be dropped."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QMimeData, Qt
from PySide6.QtWidgets import QLabel, QWidget

__all__ = ["DropHint", "dropped_model"]


def dropped_model(data: QMimeData) -> Path | None:
    """The one local .gguf file or folder in `data`; a .safetensors file stands for its folder; None for anything else."""
    urls = data.urls()
    if len(urls) != 1 or not urls[0].isLocalFile():
        return None
    path = Path(urls[0].toLocalFile())
    if path.suffix.lower() == ".gguf" or path.is_dir():
        return path
    return path.parent if path.suffix.lower() == ".safetensors" else None


class DropHint(QLabel):
    """Covers its parent while a model hovers over it."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__("Drop the model here to open it", parent)
        self.setObjectName("dropHint")
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def cover(self) -> None:
        """Show over the whole parent."""
        parent = self.parentWidget()
        if parent is not None:
            self.setGeometry(parent.rect().adjusted(8, 8, -8, -8))
        self.raise_()
        self.show()
