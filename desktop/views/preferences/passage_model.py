"""Which embedding model finds the passages of attached files."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from desktop.items.models.local_models import ModelEntry
from desktop.services.composer.meaning import WORDS_ONLY
from desktop.views.layout.fill import fill
from desktop.views.widgets.combo_box import ComboBox
from desktop.views.widgets.text_label import text_label
from engine.words import N_, _, translate

__all__ = ["PassageModel"]

WORDS = "find passages attached files words meaning embedding model attachments"
"""A search in the Preferences finds it by these."""
_ABOUT = N_(
    "When attached files are too long, the passages that match your question can be kept. An embedding model "
    "finds them by meaning as well as by words, on this computer."
)


class PassageModel(QWidget):
    """`chosen(choice)`: "" for the smallest embedding model, `WORDS_ONLY`, or the path of a model."""

    chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        label = text_label(_("Find passages with"))
        self.box = ComboBox()
        self.box.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.box.setAccessibleName(_("Find passages with"))
        self.box.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        label.setBuddy(self.box)
        about = text_label(translate(_ABOUT), "muted", wraps=True, plain=True)
        fill(QVBoxLayout(self), label, self.box, about, margins=(0, 0, 0, 0), spacing=6)
        self.box.activated.connect(lambda row: self.chosen.emit(self.box.itemData(row)))

    def show_models(self, models: Sequence[ModelEntry], choice: str) -> None:
        """Show these embedding models, the smallest first, and which is chosen."""
        self.box.clear()
        automatic = (
            _("Words and meaning ({model})", model=models[0].name)
            if models
            else _("Words and meaning, once there is an embedding model")
        )
        self.box.addItem(automatic, "")
        self.box.addItem(_("Words only"), WORDS_ONLY)
        for each in models:
            self.box.addItem(_("Words and {model}", model=each.name), each.path)
        self.box.setCurrentIndex(max(0, self.box.findData(choice)))
