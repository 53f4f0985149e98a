"""Files dragged onto the window: which ones they are, and the overlay that invites to drop them."""

from __future__ import annotations

import os
from pathlib import Path

from PySide6.QtCore import QMimeData, Qt
from PySide6.QtWidgets import QLabel, QWidget

from desktop.services.composer.folder_files import MODEL_KINDS, holds_files
from desktop.views.widgets.motion import Fade

__all__ = ["DropOverlay", "dropped_paths", "is_model", "model_path"]


def dropped_paths(data: QMimeData) -> list[Path]:
    """The local files and folders in `data`; none if any of them is not local."""
    urls = data.urls()
    return [Path(url.toLocalFile()) for url in urls] if all(url.isLocalFile() for url in urls) else []


def is_model(path: Path) -> bool:
    """Whether this is a model to open: a .gguf or .safetensors file, or a folder without other files only."""
    if os.path.isdir(path):
        return not holds_files(path)
    return path.suffix.lower() in MODEL_KINDS


def model_path(path: Path) -> Path:
    """The path to open for a model's file: a .safetensors file stands for its folder."""
    return path.parent if path.suffix.lower() == ".safetensors" else path


class DropOverlay(QLabel):
    """Covers its parent while files that can be opened are dragged over it."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("dropHint")
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.setWordWrap(True)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._appearing = Fade(self)
        self.hide()

    def cover(self, words: str) -> None:
        """Show `words` over the whole parent."""
        self.setText(words)
        parent = self.parentWidget()
        if parent is not None:
            self.setGeometry(parent.rect())
        self.raise_()
        self.show()
        self._appearing.start()
