"""What the hub has as Qt list models: models found, and the quantisations of one of them; two lines for
each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from desktop.items.models.local_models import count_text
from engine.units import size_text

if TYPE_CHECKING:
    from engine.hub import HubChoice, HubModel

__all__ = ["ChoicesModel", "HubModels", "choice_lines", "model_lines"]

_NO_PARENT = QModelIndex()
Index = QModelIndex | QPersistentModelIndex


def model_lines(model: HubModel) -> tuple[str, str]:
    """Its name, and what people look at: size, downloads, licence, age."""
    parts = [
        f"{count_text(model.parameters)} weights" if model.parameters else "",
        " + ".join(model.formats).upper(), f"{_short(model.downloads)} downloads", model.licence,
        f"updated {model.updated[:10]}" if model.updated else "", "terms to accept" if model.gated else "",
    ]  # fmt: skip
    return model.id, " · ".join(part for part in parts if part)


def choice_lines(choice: HubChoice) -> tuple[str, str]:
    """Its name with the recommendation, and its size with the verdict."""
    if not choice.fits_disk:
        verdict = "not enough room on the disk"
    else:
        verdict = (
            f"fits, takes about {size_text(choice.memory_bytes)}"
            if choice.fits_memory
            else "too large for memory"
        )
    return (
        f"{choice.title}  ★ recommended" if choice.recommended else choice.title,
        f"{size_text(choice.bytes)} to download · {verdict}",
    )


def _short(count: int) -> str:
    """For example "950", "12 k", "3.4 M"."""
    for size, unit in ((1_000_000, " M"), (1_000, " k")):
        if count >= size:
            return f"{count / size:.2g}{unit}" if count < 100 * size else f"{count // size}{unit}"
    return str(count)


class _Lines(QAbstractListModel):
    """Rows of two lines of text."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lines: list[tuple[str, str]] = []

    def rowCount(self, parent: Index = _NO_PARENT) -> int:
        """The number of rows."""
        return 0 if parent.isValid() else len(self._lines)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Both lines; as one sentence for a screen reader."""
        if not index.isValid() or not 0 <= index.row() < len(self._lines):
            return None
        first, second = self._lines[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return f"{first}\n{second}"
        if role in (Qt.ItemDataRole.AccessibleTextRole, Qt.ItemDataRole.ToolTipRole):
            return f"{first}, {second}"
        return None


class HubModels(_Lines):
    """The models of a search."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._models: list[HubModel] = []

    def show_models(self, models: Iterable[HubModel]) -> None:
        """Show these and no others."""
        self.beginResetModel()
        self._models = list(models)
        self._lines = [model_lines(model) for model in self._models]
        self.endResetModel()

    def models(self) -> tuple[HubModel, ...]:
        """All of them."""
        return tuple(self._models)

    def model(self, row: int) -> HubModel | None:
        """The model of a row."""
        return self._models[row] if 0 <= row < len(self._models) else None


class ChoicesModel(_Lines):
    """What can be taken of one model."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._choices: list[HubChoice] = []

    def show_choices(self, choices: Iterable[HubChoice]) -> None:
        """Show these and no others."""
        self.beginResetModel()
        self._choices = list(choices)
        self._lines = [choice_lines(choice) for choice in self._choices]
        self.endResetModel()

    def choice(self, row: int) -> HubChoice | None:
        """The choice of a row."""
        return self._choices[row] if 0 <= row < len(self._choices) else None

    def recommended(self) -> int:
        """The row of the recommended choice; -1 for none."""
        return next((row for row, choice in enumerate(self._choices) if choice.recommended), -1)
